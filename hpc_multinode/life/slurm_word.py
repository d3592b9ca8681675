"""Slurm's word on a run, and what it changes in the report of our agents, which cannot know all. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.report import EXIT_REQUEUED, Report, make_cancel_code
from hpc_multinode.slurm.jobs import FINAL, UNKNOWN

if TYPE_CHECKING:
    from datetime import datetime

    from hpc_multinode.registry import Entry
    from hpc_multinode.slurm.jobs import AccountedJob, QueuedJob

# Slurm's states in the words of ``failure_class``.
CLASSES = {
    "OUT_OF_MEMORY": "out_of_memory",
    "NODE_FAIL": "lost_node",
    "BOOT_FAIL": "lost_node",
    "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit",
    "PREEMPTED": "preempted",
    "CANCELLED": "cancelled",
    "REVOKED": "cancelled",
}
_MEMORY_NOTE = "all workers had ended by themselves; what was killed is something that one of them had started"
_FAILED_NOTE = "Slurm says that the job failed, although all workers ended well; submitit/ has what its agents printed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmWord:
    """What Slurm says of one run.

    Attributes:
        taken: When it was asked; None where it never answered.
        age_s: How old the answer is although a new one was asked for, in seconds; None where it is new.
        job: The job, where it knows it.
        is_elsewhere: The job is on another cluster than the one that is asked from here.
        is_gone: It answered, and does not know the job or step any more.
        account: The accounting's row, where it was asked for.
    """

    taken: datetime | None = None
    age_s: float | None = None
    job: QueuedJob | None = None
    is_elsewhere: bool = False
    is_gone: bool = False
    account: AccountedJob | None = None

    @property
    def is_over(self) -> bool:
        """Say whether Slurm has done with the job or step."""
        is_final = self.job is not None and self.job.state in FINAL
        return self.is_gone or is_final or (self.account is not None and self.account.state in FINAL)


def is_own_job(entry: Entry, report: Report) -> bool:
    """Say whether Slurm's job is the run of which a report tells: not a shell around it, and not its job before."""
    return entry.mode == "slurm" and report.job_id in (None, entry.job_id)


def merge_word(report: Report, word: SlurmWord, *, is_own: bool) -> Report:
    """Let Slurm's later word stand where it knows better why a run ended.

    Args:
        report: Ours.
        word: Slurm's.
        is_own: As of ``is_own_job``.
    """
    state = word.job.state if word.job is not None else UNKNOWN
    if word.account is not None and word.account.state in FINAL:  # it may lag behind the queue
        state = word.account.state
    if state == "OUT_OF_MEMORY" and report.state != state:
        code = 137 if report.exit_code == 0 or _FAILED_NOTE in report.notes else report.exit_code
        notes = tuple(note for note in report.notes if note != _FAILED_NOTE)
        notes = notes if report.root_cause is not None else (*notes, _MEMORY_NOTE)
        return _end_otherwise(replace(report, failure_class="out_of_memory", exit_code=code, notes=notes), state)
    if is_own and state == "FAILED" and report.state == "COMPLETED":
        return _end_otherwise(replace(report, exit_code=EXIT_FAILED, notes=(*report.notes, _FAILED_NOTE)), state)
    if state in ("TIMEOUT", "DEADLINE", "NODE_FAIL", "PREEMPTED") and report.state == "CANCELLED":
        return _end_otherwise(replace(report, failure_class=CLASSES[state]), state)
    if state == "CANCELLED" and report.exit_code == EXIT_REQUEUED:  # while it waited for its next attempt
        return replace(report, state=state, failure_class=CLASSES[state], exit_code=make_cancel_code("SIGTERM"))
    return report


def name_end(state: str) -> str:
    """Return the word of ``ended_by`` for a state that an attempt ended in."""
    if state == "COMPLETED":
        return "success"
    word = CLASSES.get(state, "failure")
    return "failure" if word == "out_of_memory" else word


def _end_otherwise(report: Report, state: str) -> Report:
    """Let a report, and the last attempt in it, have ended otherwise than our agents could know."""
    *before, last = report.attempts or ({},)
    attempts = (*before, {**last, "ended_by": name_end(state)}) if last else ()
    return replace(report, state=state, attempts=attempts)
