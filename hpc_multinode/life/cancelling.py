"""End a run wherever it is, and wait until it is gone."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from hpc_multinode.errors import SubmissionError
from hpc_multinode.life.looking import POLL_S, Watcher
from hpc_multinode.registry import is_alive
from hpc_multinode.slurm.commands import cancel_job, find_step, signal_step
from hpc_multinode.slurm.jobs import QUEUED

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.life.view import RunView
    from hpc_multinode.registry import Entry

# A job that was cancelled while it was being requeued may come back: asked again after this time. Seconds.
_ASK_AGAIN_S = 5.0


def wait_until_gone(
    entry: Entry,
    *,
    tell: Callable[[RunView], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    watcher: Watcher | None = None,
) -> RunView:
    """Wait until nothing of a run that was asked to end waits or runs, and return how it stands.

    Args:
        entry: Which run.
        tell: Is told how it stands after each look.
        sleep: Waits so many seconds.
        clock: Tells seconds.
        watcher: Looks at the run.

    Raises:
        SubmissionError: It came back, and Slurm refuses to cancel it again.
    """
    watcher = watcher or Watcher(entry)
    asked_at = clock()
    while True:
        view = watcher.look()
        if watcher.is_end(view) and not is_alive(entry):
            return view
        tell(view)
        # Agents that are asked twice kill their workers at once, so this is for a job that waits again.
        if view.state in QUEUED and clock() - asked_at > _ASK_AGAIN_S:
            ask_to_end(view.entry)
            asked_at = clock()
        sleep(POLL_S)


def ask_to_end(entry: Entry) -> None:
    """Ask a run to end, once.

    Raises:
        SubmissionError: It runs where it cannot be reached from here, or Slurm refuses.
    """
    if entry.mode == "slurm" and entry.job_id is not None:
        refusal = cancel_job(entry.slurm_id)
        if refusal:
            raise SubmissionError(
                what=f"Slurm does not cancel job {entry.job_id}",
                found=refusal,
                fix="try again when Slurm answers; only the owner can cancel",
            )
        return
    if entry.job_id is not None and _signal_step(entry):
        return
    if entry.pid is not None and is_alive(entry):
        os.kill(entry.pid, signal.SIGTERM)
    elif entry.pid is not None and entry.host != socket.gethostname():
        raise SubmissionError(
            what="the run was started on another machine, and only there it can be ended",
            found=f"{entry.run} was started on {entry.host}, this is {socket.gethostname()}",
            fix=f"on {entry.host}: python -m hpc_multinode cancel {entry.run}",
        )


def _signal_step(entry: Entry) -> bool:
    """Signal the agents themselves: srun, when it is signalled, kills them at once."""
    job_id = entry.job_id or ""
    step = f"{job_id}.{entry.step_id}" if entry.step_id is not None else find_step(job_id, entry.run)
    return step is not None and signal_step(step, "TERM")
