"""One rank raises when the bench says so; the others communicate, sleep, or hang: ``die.py WHAT RANK``."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from bench.works.probe import take_slurm_variables, tell

# Work that the others still have: so long do they sleep. A hang ends too, for the bench's sake.
SLEEP_S, HANG_S = 15.0, 40.0


def main(what: str, dying: int) -> None:
    """Be ready, wait for the bench's word, then die or go on."""
    take_slurm_variables()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.barrier()
    tell(rank)
    go = Path(os.environ["BENCH_OUT"]).parent / f"go-{what}"
    while not go.exists():
        time.sleep(0.02)
    # All have seen it before the first is gone.
    dist.barrier()
    if rank == dying:
        Path(os.environ["BENCH_OUT"], "died").write_text(repr(time.time()))
        raise ValueError("the data of this rank is bad")
    if what == "communicate":
        while True:
            dist.all_reduce(torch.ones(1))
            time.sleep(0.02)
    time.sleep(SLEEP_S if what == "sleep" else HANG_S)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
