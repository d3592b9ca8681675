"""A script written for torchrun, unchanged: it knows only torchrun's variables. Demo of ``strategy=script``.

Its own command line comes after ``--``, as in: python -m hpc_multinode strategy=script -- --steps 20
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda" if has_gpu else "cpu")
    model = DistributedDataParallel(nn.Linear(32, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = (model(torch.randn(64, 32, device=device)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} of {world_size}: {steps} steps, loss {loss.item():.4f}")
    dist.destroy_process_group()
