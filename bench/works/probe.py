"""What a worker tells the bench: its time and the start of its node's first process, in a file of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat behind the name, from 0.
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS = 1, 11, 12, 19


def tell(rank: int, **more: Any) -> None:  # noqa: ANN401 - JSON
    """Write what this rank has to say into ``$BENCH_OUT``, in one step.

    Args:
        rank: Global rank.
        more: Further values.
    """
    now = time.time()
    root = find_root_process()
    words = {"rank": rank, "now": now, "started": find_start(root), **more}
    path = Path(os.environ["BENCH_OUT"], f"rank-{rank}.json")
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(words))
    draft.replace(path)


def find_root_process() -> int:
    """Return the process that Slurm has started for this task, an ancestor or this one; without Slurm the topmost."""
    pid = os.getpid()
    while True:
        parent = int(read_stat(pid)[_PARENT])
        if parent <= 1 or Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
            return pid
        pid = parent


def find_start(pid: int) -> float:
    """Return when a process started, as time.time() says it, to a hundredth of a second."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (uptime - int(read_stat(pid)[_START_TICKS]) / _TICKS)


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used, without its children's."""
    stat = read_stat(pid)
    return (int(stat[_USER_TICKS]) + int(stat[_SYSTEM_TICKS])) / _TICKS


def read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat that come after the name."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def take_slurm_variables() -> None:
    """Set torch's variables from those of a task of srun, where nobody else has set them; as people do by hand."""
    for name, slurm in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID")):
        os.environ.setdefault(name, os.environ[slurm])
