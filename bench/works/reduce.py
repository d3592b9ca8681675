"""The first all-reduce: a function for those who make the process group themselves, and a script for torchrun."""

from __future__ import annotations

import torch
import torch.distributed as dist

from bench.works.probe import take_slurm_variables, tell


def reduce_once() -> None:
    """Reduce once in a process group that is there."""
    dist.all_reduce(torch.ones(1))
    tell(dist.get_rank())


def reduce_with_submitit() -> None:
    """Reduce once in a task of submitit's, as its documentation says."""
    from submitit.helpers import TorchDistributedEnvironment  # noqa: PLC0415 - only here

    TorchDistributedEnvironment().export()
    dist.init_process_group("gloo")
    reduce_once()
    dist.destroy_process_group()


def reduce_with_fabric() -> None:
    """Reduce once with Lightning Fabric."""
    from lightning.fabric import Fabric  # noqa: PLC0415 - only here

    fabric = Fabric(accelerator="cpu", strategy="ddp")
    fabric.launch()
    reduce_once()


if __name__ == "__main__":
    take_slurm_variables()
    dist.init_process_group("gloo")
    reduce_once()
    dist.destroy_process_group()
