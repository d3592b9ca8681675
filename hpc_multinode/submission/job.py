"""A job on Slurm as what stands between a Python caller and the agents."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hpc_multinode.errors import SubmissionError
from hpc_multinode.life.looking import POLL_S, Watcher
from hpc_multinode.registry import follow_job
from hpc_multinode.slurm.commands import cancel_job
from hpc_multinode.submission.controller import Controller

if TYPE_CHECKING:
    from hpc_multinode.registry import Entry


def make_job_controller(entry: Entry) -> Controller:
    """Return what tells whether a run's job is over for good, through all its attempts, and cancels it.

    Args:
        entry: The run.
    """
    watcher, looked_at, is_there = Watcher(entry), -POLL_S, True

    def is_running() -> bool:
        nonlocal looked_at, is_there
        if is_there and time.monotonic() - looked_at >= POLL_S:
            is_there = not watcher.is_end(watcher.look())
            looked_at = time.monotonic()
        return is_there

    return Controller(
        is_running=is_running, ask_to_stop=lambda: _cancel(follow_job(entry).slurm_id), job_id=entry.job_id
    )


def _cancel(job_id: str) -> None:
    refusal = cancel_job(job_id)
    if refusal:
        raise SubmissionError(
            what=f"Slurm does not cancel job {job_id}", found=refusal, fix=f"scancel {job_id} when Slurm answers"
        )
