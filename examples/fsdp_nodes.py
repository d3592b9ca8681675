"""A model whose weights are spread over all workers of all nodes (FSDP), here on CPUs with two nodes of two workers.

Run it with: python -m hpc_multinode strategy=pytorch_spawn work.target=examples/fsdp_nodes.py:run nodes=2
resources.workers_per_node=2 (with torch 2.6 or newer)
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def run(world_size: int, global_rank: int, width: int = 64, steps: int = 20) -> None:
    """Fit a small network of which every worker holds one part, and say how large that is."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(device)
    whole = sum(weight.numel() for weight in model.parameters())
    mesh = init_device_mesh(device, (world_size,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    part = sum(weight.to_local().numel() for weight in model.parameters())

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    draws = torch.Generator().manual_seed(global_rank)
    losses = []
    for _ in range(steps):
        loss = (model(torch.randn(32, width, generator=draws).to(device)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        losses.append(mean.item())
    print(f"rank {global_rank} of {world_size}: holds {part} of {whole} weights")
    if global_rank == 0:
        print(f"mean loss {losses[0]:.3f}, after {steps} steps {losses[-1]:.3f}")
