"""Whether the kernel has killed processes of ours because their cgroup's memory ran out."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def count_oom_kills(*, cgroups: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> int:
    """Count the processes of our own cgroup that the kernel has killed for want of memory.

    Slurm puts an agent and its workers into one cgroup, whose limit is what the job has asked for.

    Args:
        cgroups: Where this process's cgroups stand.
        root: Where the cgroup file system is mounted.

    Returns:
        Count from 0; 0 also where there are no cgroups, or they do not tell.

    Source:
        cgroups(7); the kernel's cgroup-v2 (memory.events) and cgroup-v1 (memory.oom_control), both with ``oom_kill``.
    """
    try:
        lines = cgroups.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files = [root / path.lstrip("/") / "memory.events", root / "memory.events"]
        elif "memory" in controllers.split(","):
            files = [root / "memory" / path.lstrip("/") / "memory.oom_control", root / "memory" / "memory.oom_control"]
        else:
            continue
        for file in files:
            count = _read_count(file)
            if count is not None:
                return count
    return 0


def _read_count(file: Path) -> int | None:
    try:
        words = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return None
    return next((int(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "oom_kill"), None)  # noqa: PLR2004 - a pair
