"""Which points of a sweep are to be started: all, or those that no earlier sweep has done or is doing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_multinode.errors import SubmissionError
from hpc_multinode.life.files import read_report
from hpc_multinode.runs import SWEEP
from hpc_multinode.slurm.commands import list_queued_jobs
from hpc_multinode.sweep_record import SweepRecord

if TYPE_CHECKING:
    from hpc_multinode.sweep import Sweep, SweepPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which points of a sweep are to be started.

    Attributes:
        todo: Those that are.
        succeeded: Those that an earlier sweep has computed.
        queued: Those of an earlier sweep that wait or run.
    """

    todo: tuple[SweepPoint, ...]
    succeeded: tuple[SweepPoint, ...] = ()
    queued: tuple[SweepPoint, ...] = ()


def select_points(sweep: Sweep) -> Selection:
    """Leave out the points that have succeeded, wait or run in an earlier sweep of the same run root.

    Raises:
        SubmissionError: Slurm does not say which of them wait or run.
    """
    succeeded: set[str] = set()
    jobs: dict[str, set[str]] = {}
    for file in sorted(sweep.folder.parent.glob(f"*/{SWEEP}")):
        record = SweepRecord.read(file.parent)
        for point in record.points:
            report = read_report(file.parent / str(point.number))
            if report is not None and report.exit_code == 0:
                succeeded.add(point.identity)
            else:  # also one with a bad report may wait again, having been requeued
                jobs.setdefault(point.identity, set()).update(record.tasks_of(point.number, file.parent))
    queued = _find_queued(jobs, sweep.user)
    return Selection(
        succeeded=tuple(point for point in sweep.points if point.identity in succeeded),
        queued=tuple(point for point in sweep.points if point.identity in queued - succeeded),
        todo=tuple(point for point in sweep.points if point.identity not in queued | succeeded),
    )


def _find_queued(jobs: dict[str, set[str]], user: str) -> set[str]:
    """Return the identities of which a job waits or runs."""
    if not any(jobs.values()):
        return set()
    queue = list_queued_jobs(user)
    if queue is None:
        raise SubmissionError(
            what="it cannot be told which points still wait or run",
            found="squeue does not answer",
            fix="try again later; without rerun=failed all points are started",
        )
    return {identity for identity, own in jobs.items() if own & queue}
