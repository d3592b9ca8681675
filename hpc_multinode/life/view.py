"""How a run stands: one judgement from the registry, the run folder and Slurm's word. Pure.

Slurm's word and ours come at different times. The report is ours and says most; it is the last word unless Slurm has
started the job again since, or is about to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hpc_multinode.life.slurm_word import is_own_job, merge_word
from hpc_multinode.records import read_time, time_attempts
from hpc_multinode.report import EXIT_REQUEUED, Report, describe
from hpc_multinode.slurm.jobs import FINAL, QUEUED, UNKNOWN

if TYPE_CHECKING:
    from hpc_multinode.life.files import RunFiles
    from hpc_multinode.life.slurm_word import SlurmWord
    from hpc_multinode.registry import Entry
    from hpc_multinode.slurm.jobs import QueuedJob

# A job that was just submitted may not be listed yet.
_FRESH = timedelta(seconds=5)
_HANDED_ON = timedelta(seconds=60)
# After these ends the job may come back.
_PASSING_ENDS = ("requeue", "preempted", "restart")
_PASSING_CLASSES = ("lost_node", "preempted")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """How a run stands.

    Attributes:
        entry: Which run.
        files: Its folder.
        word: Slurm's word.
        state: One of Slurm's states, or ``UNKNOWN``.
        reason: Why it is in that state, in a few words; empty where there is nothing to say.
        is_over: It has ended for good.
        is_orphan: It is a run on this machine, and its launcher is gone.
        report: The last word on it, where it is over and one is there.
        started: When the current or last attempt started.
        ended: When it ended.
        queued_s: From submission to the first start, or to now. Seconds.
        running_s: All attempts together. Seconds; None where none has started.
    """

    entry: Entry
    files: RunFiles
    word: SlurmWord
    state: str
    reason: str = ""
    is_over: bool = False
    is_orphan: bool = False
    report: Report | None = None
    started: datetime | None = None
    ended: datetime | None = None
    queued_s: float | None = None
    running_s: float | None = None

    @property
    def is_contested(self) -> bool:
        """Say whether Slurm has another word on the end than the report on disk: its accounting may know why."""
        before = self.files.report
        return self.report is not None and before is not None and self.report.state != before.state

    @property
    def is_lost(self) -> bool:
        """Say whether it has ended where it ran, and nobody has written its report."""
        return self.report is None and (self.is_over or self.word.is_over or self.is_orphan)

    @property
    def expected_start(self) -> datetime | None:
        """When Slurm expects to start it, where it says so."""
        job = self.word.job
        return job.started if job is not None and self.state in QUEUED else None

    @property
    def attempts(self) -> tuple[dict[str, Any], ...]:
        """The attempts that have ended: why, and how long each waited and ran."""
        records = self.report.attempts if self.report is not None else self.files.records
        return time_attempts(records, submitted=self.entry.submitted)

    def to_json(self) -> dict[str, Any]:
        """Return what scripts are told, by the names of ``report.json`` where it has them."""
        cause = self.report.root_cause if self.report is not None else None
        return {
            "run": self.entry.run,
            "name": self.entry.name,
            "run_dir": self.entry.run_dir,
            "job_id": self.entry.job_id,
            "mode": self.entry.mode,
            "state": self.state,
            "slurm_state": self.word.job.word if self.word.job is not None else None,
            "reason": self.reason or None,
            "is_over": self.is_over,
            "exit_code": self.report.exit_code if self.report is not None else None,
            "failure_class": self.report.failure_class if self.report is not None else None,
            "world_size": self.entry.world_size,
            "num_nodes": self.entry.num_nodes,
            "local_world_size": self.entry.local_world_size,
            "attempt": self.files.attempt,
            "submitted": self.entry.submitted,
            "expected_start": _write_time(self.expected_start),
            "started": _write_time(self.started),
            "ended": _write_time(self.ended),
            "queued_s": self.queued_s,
            "running_s": self.running_s,
            "state_age_s": self.word.age_s,
            "root_cause": cause.to_json() if cause is not None else None,
            "attempts": list(self.attempts),
        }


def judge(entry: Entry, files: RunFiles, word: SlurmWord, *, is_alive: bool | None, now: datetime) -> RunView:
    """Say how a run stands.

    Args:
        entry: Which run.
        files: What its folder says.
        word: What Slurm says; empty for a run on this machine.
        is_alive: The process that holds the run is there; None where there is none, or it cannot be seen.
        now: The time.
    """
    report = files.report
    if report is not None and not _is_passing(report, entry, files, word, is_alive=is_alive, now=now):
        report = merge_word(report, word, is_own=is_own_job(entry, report))
        view = RunView(
            entry=entry, files=files, word=word, state=report.state, is_over=True, report=report, reason=explain(report)
        )
        return _time(view, now=now)
    state, reason = _find_state(entry, files, word, is_alive=is_alive)
    if files.records and (state in QUEUED or state == "COMPLETING"):
        last = files.records[-1]
        reason = f"{reason}; " if reason else ""
        reason += f"attempt {last.get('attempt')} ended by {str(last.get('ended_by')).replace('_', ' ')}"
    is_orphan = entry.job_id is None and is_alive is False
    view = RunView(
        entry=entry, files=files, word=word, state=state, reason=reason, is_over=state in FINAL, is_orphan=is_orphan
    )
    return _time(view, now=now)


def explain(report: Report) -> str:
    """Say in one line why a run ended; nothing for one that ended well."""
    cause = report.root_cause
    if cause is not None and cause.global_rank is not None:
        # Who it was in two words: the report has the rest.
        return f"rank {cause.global_rank} on {cause.host}{describe(cause).partition(')')[2]}"
    if cause is not None:
        return describe(cause)
    if report.exit_code and report.failure_class is None and report.notes:
        return report.notes[-1].partition(";")[0]
    return (report.failure_class or "").replace("_", " ") if report.exit_code else ""


def _is_passing(
    report: Report, entry: Entry, files: RunFiles, word: SlurmWord, *, is_alive: bool | None, now: datetime
) -> bool:
    """Say whether a report is only that of an earlier attempt."""
    last = report.attempts[-1] if report.attempts else {}
    if files.attempt is not None and files.attempt > last.get("attempt", files.attempt):
        return True
    may_return = (
        report.exit_code == EXIT_REQUEUED
        or last.get("ended_by") in _PASSING_ENDS
        or report.failure_class in _PASSING_CLASSES
    )
    ended = read_time(last.get("ended"))
    if word.is_over:
        # The new job's id may show late on this machine.
        is_handed_on = files.is_handed_on and report.exit_code == EXIT_REQUEUED and report.job_id == entry.job_id
        return is_handed_on and ended is not None and now - ended < _HANDED_ON
    if word.job is None and word.taken is None:  # a run on this machine, or a Slurm that does not answer
        return may_return and is_alive is not False
    if may_return:
        return True
    if word.job is None or word.taken is None or ended is None or word.taken < ended:
        return False  # an answer from before the end says nothing of what came after it
    has_restarted = word.job.started is not None and word.job.started > ended
    return word.job.state in QUEUED or has_restarted


def _find_state(entry: Entry, files: RunFiles, word: SlurmWord, *, is_alive: bool | None) -> tuple[str, str]:
    """Return state and reason of a run that has not ended, or left no report."""
    if is_alive:
        return "RUNNING", ""
    if entry.job_id is None:
        if is_alive is None:
            return UNKNOWN, f"it was started on {entry.host}: ask there"
        return "COMPLETING", "its launcher is gone, and its agents are ending it"
    return _find_job_state(entry, files, word)


def _find_job_state(entry: Entry, files: RunFiles, word: SlurmWord) -> tuple[str, str]:
    if word.account is not None and word.account.state in FINAL:
        return word.account.state, ""
    if word.is_gone:
        where = "the queue" if entry.mode == "slurm" else "its job"
        return UNKNOWN, f"it has left {where} without a report"
    if word.job is not None and entry.mode != "slurm" and word.job.state == "COMPLETED":
        return UNKNOWN, "its job has ended, and it left no report"  # the shell or script around it ended well
    if word.job is not None:
        return word.job.state, _explain_job(word.job)
    silent = f"it is on cluster {entry.cluster}" if word.is_elsewhere else "Slurm does not answer"
    return ("RUNNING" if files.attempts else "PENDING"), f"{silent}; this is from the run folder"


def _explain_job(job: QueuedJob) -> str:
    if job.state == UNKNOWN:
        return f"Slurm says {job.word}"
    if job.state not in QUEUED:
        return ""
    word = f"{job.word}, " if job.state != "PENDING" else ""
    expected = f", expected start {format_time(job.started)}" if job.started is not None else ""
    return f"waiting: {word}{job.reason or 'Slurm has not looked at it yet'}{expected}"


def format_time(moment: datetime) -> str:
    """Write a time for people: the hour alone where it is today."""
    local = moment.astimezone()
    today = datetime.now(local.tzinfo).date()
    return local.strftime("%H:%M" if local.date() == today else "%Y-%m-%d %H:%M")


def is_new(entry: Entry, *, now: datetime) -> bool:
    """Say whether a job was submitted so recently that Slurm may not list it yet."""
    return now - entry.queued_since < _FRESH


def _time(view: RunView, *, now: datetime) -> RunView:
    """Add when it started and ended, and how long it waited and ran."""
    records, job = view.files.records, view.word.job
    spans = [(read_time(one.get("started")), read_time(one.get("ended"))) for one in records]
    submitted = datetime.fromisoformat(view.entry.submitted)
    is_waiting = view.state in QUEUED
    current = None
    if not view.is_over and not is_waiting:
        current = job.started if job is not None else view.files.started
        if current is None and view.entry.job_id is None:
            current = submitted
    first = spans[0][0] if spans else current
    ran = sum((end - start).total_seconds() for start, end in spans if start is not None and end is not None)
    ran += max(0.0, (now - current).total_seconds()) if current is not None else 0.0
    last_start, last_end = spans[-1] if spans else (None, None)
    account = view.word.account
    if view.is_over and not spans and (job is not None or account is not None):
        first = last_start = job.started if job is not None else account.started if account is not None else None
        last_end = job.ends if job is not None else account.ended if account is not None else None
        ran = (last_end - first).total_seconds() if first is not None and last_end is not None else 0.0
    never = last_end if view.is_over else now if is_waiting else None  # it has never started
    queued = first - submitted if first is not None else never - submitted if never is not None else None
    return replace(
        view,
        started=current or last_start,
        ended=last_end if view.is_over else None,
        queued_s=None if queued is None else round(max(0.0, queued.total_seconds()), 1),
        running_s=round(ran, 1) if spans or current is not None or ran else None,
    )


def _write_time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone().isoformat(timespec="milliseconds")
