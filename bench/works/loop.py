"""A loop of all-reduces, timed; and under our launcher, what agent and forkserver take meanwhile."""

from __future__ import annotations

import os
import statistics
import time

import psutil
import torch
import torch.distributed as dist

from bench.works.probe import find_root_process, read_cpu_seconds, take_slurm_variables, tell

_WARM_UP, _STEPS, _FLOATS = 50, 500, 65536


def run(watch_s: float = 0.0) -> None:
    """Time the steps in a process group that is there, and tell.

    Args:
        watch_s: So long, at least, are agent and forkserver watched: they do little, and that every few seconds.
    """
    values = torch.ones(_FLOATS)
    root = find_root_process()
    # Under srun there is nobody between Slurm and the worker.
    others = [root, os.getppid()] if root != os.getpid() else []
    for _ in range(_WARM_UP):
        dist.all_reduce(values)
    dist.barrier()
    cpu = {pid: read_cpu_seconds(pid) for pid in others}
    began = time.monotonic()
    steps = []
    for _ in range(_STEPS):
        start = time.monotonic()
        dist.all_reduce(values)
        steps.append(time.monotonic() - start)
    time.sleep(max(0.0, watch_s - (time.monotonic() - began)))
    took = time.monotonic() - began
    more = {"uss_mb": psutil.Process().memory_full_info().uss / 2**20}
    for name, pid in zip(("agent", "forkserver"), others, strict=False):
        more[f"{name}_cpu_percent"] = 100 * (read_cpu_seconds(pid) - cpu[pid]) / took
        memory = psutil.Process(pid).memory_full_info()
        more[f"{name}_uss_mb"], more[f"{name}_rss_mb"] = memory.uss / 2**20, memory.rss / 2**20
    dist.barrier()
    tell(dist.get_rank(), step_ms=1000 * statistics.median(steps), **more)


if __name__ == "__main__":
    take_slurm_variables()
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
