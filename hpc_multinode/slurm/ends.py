"""Why Slurm sends a signal to a job, and how long it leaves. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What Slurm waits between SIGTERM and SIGKILL where it does not say.
DEFAULT_KILL_WAIT_S = 30.0
# What we keep of it for the report and the way out.
_RESERVE_S = 3.0
WARNING = "SIGUSR2"
# SIGNALING is how a job is shown for a moment while it is being signalled.
_RUNNING = frozenset({"RUNNING", "SIGNALING", "SUSPENDED", "STOPPED"})


class EndKind(Enum):
    """Who or what ends a job."""

    cancelled = "cancelled"
    preempted = "preempted"
    time_limit = "time_limit"
    # By another's hand, and already done: the job waits again as soon as it has ended.
    requeued = "requeued"
    # Slurm cannot be asked.
    unknown = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """Why a job is being ended.

    Attributes:
        kind: Who or what ends it.
        left_s: Seconds until Slurm kills what is left, less a reserve of ours; None where it does not say.
        is_from_signal: They count from the signal, and not from now.
        goes_on: For Slurm the job runs on: the signal was for less than all of it.
    """

    kind: EndKind
    left_s: float | None
    is_from_signal: bool = False
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What Slurm says of a job that gets a signal, by its own names; None where it does not answer.

    Attributes:
        job: ``scontrol show job``.
        kill_wait_s: KillWait of ``scontrol show config``, in seconds.
        grace_s: GraceTime of the job's partition, in seconds.
        restart_count: How often the job had been requeued when this attempt began, as its environment says. Count.
    """

    job: Mapping[str, str] | None
    kill_wait_s: float | None
    grace_s: float | None
    restart_count: int = 0

    def describe(self) -> str:
        """Return what matters of it, for a log."""
        names = ("JobState", "Reason", "Restarts", "PreemptTime", "EndTime")
        said = " ".join(f"{name}={(self.job or {}).get(name)}" for name in names)
        return f"{said} KillWait={self.kill_wait_s} GraceTime={self.grace_s}"


def judge_end(facts: JobFacts, *, signal: str, now: datetime) -> JobEnd:
    """Tell preemption, time limit and cancellation apart, which send the same signals.

    Args:
        facts: What Slurm says of the job.
        signal: Name of the signal that came.
        now: This machine's time, with its zone.

    Source:
        scontrol(1). Tried: in a preemption the job is RUNNING, for a moment SIGNALING, with a PreemptTime; EndTime is
        the end of its grace or Unknown; after scancel it is COMPLETING or CANCELLED, after a requeue COMPLETING
        too, but Restarts counts the next attempt already; at its limit the reason is TimeLimit.
    """
    job = facts.job
    kill_wait_s = DEFAULT_KILL_WAIT_S if facts.kill_wait_s is None else facts.kill_wait_s
    by_kill_wait = JobEnd(kind=EndKind.unknown, left_s=max(0.0, kill_wait_s - _RESERVE_S), is_from_signal=True)
    if job is None:
        # The warning is sent before the time limit, whoever can or cannot be asked.
        return JobEnd(kind=EndKind.time_limit, left_s=None) if signal == WARNING else by_kill_wait
    until_end = _measure_until(_parse(job.get("EndTime")), now)
    is_running = job.get("JobState") in _RUNNING
    preempted_at = _parse(job.get("PreemptTime"))
    if is_running and preempted_at is not None:
        if until_end is None and facts.grace_s is not None:
            until_end = _measure_until(preempted_at + timedelta(seconds=facts.grace_s), now)
        return JobEnd(kind=EndKind.preempted, left_s=until_end)
    restarts = job.get("Restarts", "")
    if restarts.isdigit() and int(restarts) > facts.restart_count:
        return replace(by_kill_wait, kind=EndKind.requeued)
    if job.get("Reason") == "TimeLimit" or job.get("JobState") == "TIMEOUT":
        return replace(by_kill_wait, kind=EndKind.time_limit)
    if signal == WARNING and is_running:
        return JobEnd(kind=EndKind.time_limit, left_s=until_end)
    # A job that goes on running was not cancelled itself: one of its steps was. Slurm treats that alike.
    return replace(by_kill_wait, kind=EndKind.cancelled, goes_on=is_running)


def _parse(time: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(time or "").astimezone()
    except ValueError:  # None, N/A, Unknown
        return None


def _measure_until(end: datetime | None, now: datetime) -> float | None:
    return None if end is None else max(0.0, (end - now).total_seconds() - _RESERVE_S)
