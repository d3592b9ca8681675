"""Processes that workers leave behind: whoever is orphaned below the forkserver comes to it and ends with it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, daemons included.

    Source:
        prctl(2), PR_SET_CHILD_SUBREAPER.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def request_death_signal() -> None:
    """Have the kernel kill this process when its parent ends.

    Source:
        prctl(2), PR_SET_PDEATHSIG.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def count_siblings() -> int:
    """Return how many children this process's parent has, this one included."""
    import psutil  # noqa: PLC0415 - 30 ms, and only where a run is slow to start

    parent = psutil.Process().parent()
    return len(parent.children()) if parent is not None else 1


def kill_descendants() -> None:
    """Kill every process that descends from this one, and return when none is left."""
    import psutil  # noqa: PLC0415 - 30 ms that only the end of a run pays

    myself = psutil.Process()
    while True:
        num_killed = 0
        for child in myself.children(recursive=True):
            try:
                if child.status() != psutil.STATUS_ZOMBIE:
                    child.kill()
                    num_killed += 1
            except psutil.NoSuchProcess:
                continue
        _reap_all()
        if not num_killed:
            return


def _reap_all() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
