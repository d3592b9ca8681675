"""Why Slurm sends a signal: the same signal means a preemption, a cancel or the time limit."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from hpc_multinode.slurm.ends import EndKind, JobEnd, JobFacts, judge_end

NOW = datetime(2025, 12, 1, 10, 0, 0, tzinfo=timezone.utc).astimezone()


def local(second: int) -> str:
    """Return a time of day as Slurm writes it: in its own zone, without naming it."""
    return NOW.replace(second=second, tzinfo=None).isoformat()


def judge(
    signal: str = "SIGTERM", *, grace_s: float | None = 10.0, kill_wait_s: float | None = 30, **job: str
) -> JobEnd:
    """Judge a job that Slurm says this of."""
    return judge_end(JobFacts(job=job, kill_wait_s=kill_wait_s, grace_s=grace_s), signal=signal, now=NOW)


@pytest.mark.parametrize(
    ("signal", "job", "kind", "left_s"),
    [
        ("SIGTERM", {"JobState": "RUNNING", "PreemptTime": local(0), "EndTime": local(20)}, "preempted", 17),
        ("SIGTERM", {"JobState": "SIGNALING", "PreemptTime": local(0), "EndTime": "Unknown"}, "preempted", 7),
        # preempt_send_user_signal
        ("SIGUSR2", {"JobState": "RUNNING", "PreemptTime": local(0), "EndTime": local(40)}, "preempted", 37),
        ("SIGTERM", {"JobState": "RUNNING", "PreemptTime": local(0), "EndTime": local(1)}, "preempted", 0),
        ("SIGTERM", {"JobState": "COMPLETING", "PreemptTime": "None"}, "cancelled", 27),
        ("SIGTERM", {"JobState": "CANCELLED", "PreemptTime": "None"}, "cancelled", 27),
        ("SIGTERM", {"JobState": "RUNNING", "PreemptTime": "None"}, "cancelled", 27),
        ("SIGTERM", {"JobState": "COMPLETING", "PreemptTime": "None", "Restarts": "0"}, "cancelled", 27),
        ("SIGTERM", {"JobState": "COMPLETING", "PreemptTime": "None", "Restarts": "1"}, "requeued", 27),
        ("SIGTERM", {"JobState": "COMPLETING", "Reason": "TimeLimit"}, "time_limit", 27),
        ("SIGTERM", {"JobState": "TIMEOUT"}, "time_limit", 27),
        ("SIGUSR2", {"JobState": "RUNNING", "PreemptTime": "None", "EndTime": local(50)}, "time_limit", 47),
        ("SIGUSR2", {"JobState": "RUNNING", "EndTime": "Unknown"}, "time_limit", None),
    ],
)
def test_what_slurm_says_decides(signal: str, job: dict[str, str], kind: str, left_s: float | None) -> None:
    """Three seconds of what is left are kept for the report and the way out."""
    end = judge(signal, **job)
    assert (end.kind, end.left_s) == (EndKind(kind), left_s)


@pytest.mark.parametrize(("state", "goes_on"), [("RUNNING", True), ("COMPLETING", False), ("CANCELLED", False)])
def test_a_job_that_runs_on_was_not_cancelled_itself(*, state: str, goes_on: bool) -> None:
    """One of its steps was, or one of its nodes got a signal of its own."""
    end = judge(JobState=state, PreemptTime="None")
    assert (end.kind, end.goes_on) == (EndKind.cancelled, goes_on)


@pytest.mark.parametrize(("signal", "kind", "left_s"), [("SIGTERM", "unknown", 27), ("SIGUSR2", "time_limit", None)])
def test_a_slurm_that_does_not_answer(signal: str, kind: str, left_s: float | None) -> None:
    """After SIGTERM there is KillWait; a warning is what we have asked for, and has no end that we know."""
    end = judge_end(JobFacts(job=None, kill_wait_s=None, grace_s=None), signal=signal, now=NOW)
    assert (end.kind, end.left_s) == (EndKind(kind), left_s)


def test_a_preemption_without_any_time() -> None:
    """Nothing is cut where nothing is known."""
    job = {"JobState": "RUNNING", "PreemptTime": local(0), "EndTime": "Unknown"}
    assert judge(grace_s=None, **job).left_s is None


def test_kill_wait_counts_from_the_signal() -> None:
    """And a named end from now."""
    assert judge(JobState="CANCELLED").is_from_signal
    assert not judge(JobState="RUNNING", PreemptTime=local(0), EndTime=local(20)).is_from_signal


def test_a_short_kill_wait() -> None:
    """It is never less than nothing."""
    assert judge(kill_wait_s=2, JobState="CANCELLED").left_s == 0
