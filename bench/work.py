"""What the workers of the benches do: their first all-reduce, and then tell when that was."""

from __future__ import annotations

import json
import os
import time

import psutil
import torch
import torch.distributed as dist


def reduce_once() -> None:
    """Print the seconds from the agent's start to the end of the first all-reduce, and this worker's own memory."""
    dist.all_reduce(torch.ones(1))
    now = time.time()
    forkserver = psutil.Process(os.getppid())
    agent = forkserver.parent()
    began = agent.create_time() if agent is not None else now
    memory_mb = {
        "worker_uss_mb": psutil.Process().memory_full_info().uss / 2**20,
        "agent_rss_mb": agent.memory_info().rss / 2**20 if agent is not None else 0.0,
    }
    print(json.dumps({"seconds": now - began, **memory_mb}))
