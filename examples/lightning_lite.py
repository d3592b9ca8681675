"""Code from the days of LightningLite: its class, its way of naming the precision, no call of ``launch``."""

import torch
from torch import nn

from hpc_multinode.lite import LightningLite

NUM_STEPS = 50


class Train:
    """A class with a static ``run`` is a work too."""

    @staticmethod
    def run() -> None:
        """Fit ``Linear(32, 2)`` to ones."""
        lite = LightningLite(strategy="ddp", precision="bf16")
        torch.manual_seed(lite.global_rank)
        model = nn.Linear(32, 2)
        model, optimizer = lite.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
        for step in range(NUM_STEPS):
            output = model(torch.randn(64, 32, device=lite.device))
            loss = nn.functional.mse_loss(output, torch.ones_like(output))
            optimizer.zero_grad()
            lite.backward(loss)
            optimizer.step()
            if step % 10 == 0 or step == NUM_STEPS - 1:
                print(f"rank {lite.global_rank} of {lite.world_size} step {step} loss {loss.item():.4f}")
