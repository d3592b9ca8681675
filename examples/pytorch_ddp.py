"""Plain PyTorch on every worker: a small model in DistributedDataParallel. Demo of ``strategy=pytorch_spawn``.

The process group is ready when ``run`` is called; nothing of the launcher is imported.
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NUM_STEPS = 50


def run(world_size: int, node_rank: int, global_rank: int, local_rank: int) -> None:
    """Fit ``Linear(32, 2)`` to ones; every rank draws data of its own."""
    torch.manual_seed(global_rank)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    model = DistributedDataParallel(nn.Linear(32, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    print(f"worker {global_rank} of {world_size}: node {node_rank}, local rank {local_rank}, {device}")
    for step in range(NUM_STEPS):
        output = model(torch.randn(64, 32, device=device))
        loss = nn.functional.mse_loss(output, torch.ones_like(output))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == NUM_STEPS - 1:
            print(f"rank {global_rank} step {step} loss {loss.item():.4f}")
