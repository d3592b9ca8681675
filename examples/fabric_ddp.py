"""The same small model through Lightning Fabric, used as its documentation says. Demo of ``strategy=lite``.

No node, device or rank is named: Fabric finds the world that the launcher has started.
"""

import torch
from lightning.fabric import Fabric
from torch import nn

NUM_STEPS = 50


def run() -> None:
    """Fit ``Linear(32, 2)`` to ones."""
    fabric = Fabric(strategy="ddp", precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(fabric.global_rank, verbose=False)
    model = nn.Linear(32, 2)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for step in range(NUM_STEPS):
        output = model(torch.randn(64, 32, device=fabric.device))
        loss = nn.functional.mse_loss(output, torch.ones_like(output))
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        if step % 10 == 0 or step == NUM_STEPS - 1:
            print(f"rank {fabric.global_rank} of {fabric.world_size} step {step} loss {loss.item():.4f}")
