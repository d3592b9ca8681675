"""How a run stands: the report, Slurm's word and what is left when one of them is missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpc_multinode.life.files import RunFiles
from hpc_multinode.life.slurm_word import SlurmWord
from hpc_multinode.life.view import RunView, judge
from hpc_multinode.report import Outcome, Report
from hpc_multinode.slurm.jobs import AccountedJob
from tests.unit.life.runs import at, make_entry, make_job, make_report


def look(
    *,
    report: Report | None = None,
    attempts: tuple[int, ...] = (),
    is_alive: bool | None = None,
    word: SlurmWord | None = None,
    now: float = 200,
    **entry: Any,
) -> RunView:
    """Judge a run."""
    files = RunFiles(path=Path("/runs/one"), report=report, attempts=attempts)
    return judge(make_entry(**entry), files, word or SlurmWord(), is_alive=is_alive, now=at(now))


def says(state: str, *, taken: float = 190, **job: Any) -> SlurmWord:
    """Return Slurm's word on a job that it knows."""
    return SlurmWord(taken=at(taken), job=make_job(state, **job))


GONE = SlurmWord(taken=at(190), is_gone=True)


def accounts(state: str, code: int = 0) -> SlurmWord:
    """Return the word of the accounting on a job that left the queue."""
    row = AccountedJob(
        job_id="4711", state=state, exit_code=code, signal=0, submitted=None, started=None, ended=None, fields={}
    )
    return SlurmWord(taken=at(190), is_gone=True, account=row)


def test_waiting_job_tells_why() -> None:
    """A job that waits is PENDING, with Slurm's reason and the expected start in words."""
    view = look(word=says("PENDING", reason="Priority", started=at(9000)))
    assert (view.state, view.is_over) == ("PENDING", False)
    assert view.reason.startswith("waiting: Priority, expected start ")
    assert view.queued_s == 200


def test_job_that_vanished_is_not_completed() -> None:
    """A job that squeue does not know and that left no report is UNKNOWN, neither running nor completed."""
    view = look(word=GONE, attempts=(0,))
    assert (view.state, view.is_over, view.is_lost) == ("UNKNOWN", False, True)


def test_word_that_slurm_does_not_have_is_told() -> None:
    """A state of a newer Slurm is UNKNOWN with its word."""
    view = look(word=says("FROBNICATING"))
    assert (view.state, view.reason, view.is_over) == ("UNKNOWN", "Slurm says FROBNICATING", False)


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL"])
def test_final_state_without_a_report_is_the_end(state: str) -> None:
    """Slurm's word ends a run whose agents could not write."""
    view = look(word=says(state), attempts=(0,))
    assert (view.state, view.is_over, view.is_lost) == (state, True, True)


def test_accounting_tells_the_end_of_a_job_that_left_the_queue() -> None:
    """Where squeue has forgotten a job the accounting's final state counts."""
    assert look(word=accounts("CANCELLED")).is_over


def test_end_of_an_earlier_job_does_not_count() -> None:
    """A run that went on in a new job, whose id shows late here, is not what its first job ended as."""
    view = look(report=make_report(job_id="4712"), attempts=(0,), word=says("FAILED", taken=190))
    assert (view.state, view.is_contested) == ("COMPLETED", False)


def test_accounting_that_lags_ends_nothing() -> None:
    """A row that still says RUNNING after the job left the queue is no end."""
    assert not look(word=accounts("RUNNING"), attempts=(0,)).is_over


def test_report_is_the_last_word() -> None:
    """With a report a run is over although its job is still ending."""
    view = look(report=make_report(), attempts=(0,), word=says("COMPLETING", started=at(59)))
    assert (view.state, view.is_over) == ("COMPLETED", True)
    assert (view.queued_s, view.running_s) == (60, 60)


@pytest.mark.parametrize(
    "report",
    [
        make_report("PREEMPTED", 75, ended_by="requeue"),
        make_report("PREEMPTED", 75, ended_by="preempted", failure_class="preempted"),
        make_report("NODE_FAIL", 1, ended_by="lost_node", failure_class="lost_node"),
    ],
    ids=["requeue", "preempted", "lost node"],
)
@pytest.mark.parametrize("state", ["COMPLETING", "REQUEUED", "PENDING", "RUNNING", "CONFIGURING"])
def test_report_of_a_run_that_comes_back_is_not_the_end(report: Report, state: str) -> None:
    """As long as Slurm knows the job, a report of requeue, preemption or a lost node is that of an attempt."""
    view = look(report=report, attempts=(0,), word=says(state))
    assert (view.state, view.is_over, view.report) == (state, False, None)


@pytest.mark.parametrize("word", [GONE, says("FAILED"), says("CANCELLED")], ids=["gone", "failed", "cancelled"])
def test_report_of_a_run_that_did_not_come_back_is_the_end(word: SlurmWord) -> None:
    """Once Slurm has done with the job, the report of its last attempt counts."""
    report = make_report("NODE_FAIL", 1, ended_by="lost_node", failure_class="lost_node")
    assert look(report=report, attempts=(0,), word=word).is_over


def test_run_that_is_cancelled_between_its_attempts_is_cancelled() -> None:
    """It does not wait for ever to come back."""
    view = look(report=make_report("REQUEUED", 75, ended_by="requeue"), attempts=(0,), word=says("CANCELLED"))
    assert view.report is not None
    assert (view.state, view.is_over, view.report.exit_code) == ("CANCELLED", True, 143)


def test_requeue_by_hand_makes_a_finished_run_wait_again() -> None:
    """``scontrol requeue`` of a run that has its report starts it anew."""
    view = look(report=make_report(), attempts=(0,), word=says("PENDING", reason="BeginTime"))
    assert (view.state, view.is_over) == ("PENDING", False)


def test_answer_from_before_the_end_says_nothing_of_what_came_after() -> None:
    """A kept answer that still shows the job waiting does not bring back a run that has ended since."""
    assert look(report=make_report(), attempts=(0,), word=says("PENDING", taken=30)).is_over


def test_new_attempt_overtakes_the_report() -> None:
    """While a later attempt runs, the report of an earlier one is not the end."""
    view = look(report=make_report("FAILED", 1), attempts=(0, 1), word=says("RUNNING", started=at(150)))
    assert (view.state, view.files.attempt, view.is_over) == ("RUNNING", 1, False)
    assert view.running_s == 60 + 50


def test_new_attempt_that_died_silently_is_lost() -> None:
    """The report of attempt 0 does not speak for attempt 1, which left none."""
    view = look(report=make_report(), attempts=(0, 1), word=says("NODE_FAIL"))
    assert (view.state, view.is_lost) == ("NODE_FAIL", True)


@pytest.mark.parametrize(
    ("report", "word", "state", "failure_class", "code"),
    [
        (make_report("FAILED", 137, failure_class="signal"), says("OUT_OF_MEMORY"), "OUT_OF_MEMORY",
         "out_of_memory", 137),
        (make_report(), accounts("OUT_OF_MEMORY"), "OUT_OF_MEMORY", "out_of_memory", 137),
        (make_report("CANCELLED", 143, failure_class="cancelled"), says("TIMEOUT"), "TIMEOUT", "time_limit", 143),
        (make_report(), says("TIMEOUT"), "COMPLETED", None, 0),
        (make_report("FAILED", 3), says("FAILED"), "FAILED", None, 3),
    ],
)  # fmt: skip
def test_slurms_later_word_is_merged(
    report: Report, word: SlurmWord, state: str, failure_class: str | None, code: int
) -> None:
    """Slurm knows of memory and time; memory that ran out is a failure even after exit code 0."""
    view = look(report=report, attempts=(0,), word=word)
    assert view.report is not None
    assert (view.state, view.report.failure_class, view.report.exit_code) == (state, failure_class, code)


@pytest.mark.parametrize(("attempts", "state"), [((), "PENDING"), ((0,), "RUNNING")])
def test_silent_slurm_leaves_what_the_folder_says(attempts: tuple[int, ...], state: str) -> None:
    """Without an answer the run folder tells whether it has started, and the reason says where that is from."""
    view = look(attempts=attempts)
    assert view.state == state
    assert "does not answer" in view.reason


@pytest.mark.parametrize(
    ("is_alive", "state", "is_lost"), [(True, "RUNNING", False), (False, "COMPLETING", True), (None, "UNKNOWN", False)]
)
def test_local_run_lives_as_its_launcher(is_alive: bool | None, state: str, is_lost: bool) -> None:  # noqa: FBT001
    """On this machine the launcher's process tells; from another machine nothing can be said."""
    view = look(is_alive=is_alive, mode="local", job_id=None)
    assert (view.state, view.is_lost, view.is_over) == (state, is_lost, False)


def test_reason_of_a_failure_is_one_short_line() -> None:
    """The list says which rank on which host, and what happened."""
    cause = Outcome(node_rank=1, host="n2", global_rank=3, local_rank=1, pid=7, exit_code=1, exception="ValueError",
                    message="no luck\nreally")  # fmt: skip
    view = look(report=make_report("FAILED", 1, failure_class="exception", root_cause=cause), attempts=(0,))
    assert view.reason == "rank 3 on n2 raised ValueError: no luck"


@pytest.mark.parametrize(
    "word", [says("COMPLETED"), SlurmWord(taken=at(190), job=make_job("RUNNING"), is_gone=True)], ids=["job", "step"]
)
def test_step_that_left_no_report_is_not_what_its_job_is(word: SlurmWord) -> None:
    """The shell around a run may go on, or end well, when the run's own step was killed."""
    view = look(attempts=(0,), mode="step", word=word)
    assert (view.state, view.is_lost) == ("UNKNOWN", True)


def test_run_between_its_attempts_tells_what_ended_the_last() -> None:
    """While a preempted job waits again, its reason is Slurm's and the end of the attempt before."""
    report = make_report("PREEMPTED", 75, ended_by="preempted")
    view = look(report=report, attempts=(0,), word=says("PENDING", reason="BeginTime"))
    assert view.reason == "waiting: BeginTime; attempt 0 ended by preempted"


def test_job_that_failed_after_all_workers_ended_well_has_failed() -> None:
    """Srun may fail although every agent ended with 0; then the run is no success, and says whose word that is."""
    view = look(report=make_report(), attempts=(0,), word=says("FAILED", taken=190))
    assert view.report is not None
    assert (view.state, view.report.exit_code, view.is_contested) == ("FAILED", 1, True)
    assert view.reason.startswith("Slurm says that the job failed, although all workers ended well")


def test_shell_around_a_run_may_fail() -> None:
    """Of a step or of tasks of srun the job is somebody else's: its failure is not the run's."""
    view = look(report=make_report(), attempts=(0,), word=says("FAILED", taken=190), mode="step")
    assert (view.state, view.is_contested) == ("COMPLETED", False)


def test_accounting_that_lags_is_not_believed() -> None:
    """While the accounting still has the job as running, the queue's word on its end counts."""
    word = dataclasses.replace(says("FAILED", taken=190), account=accounts("RUNNING").account)
    assert look(report=make_report(), attempts=(0,), word=word).state == "FAILED"
    word = dataclasses.replace(word, account=accounts("OUT_OF_MEMORY").account)
    view = look(report=make_report(), attempts=(0,), word=word)
    assert view.report is not None
    assert (view.state, view.report.exit_code, view.report.failure_class) == ("OUT_OF_MEMORY", 137, "out_of_memory")
    assert "one of them had started" in view.report.notes[-1]
    assert view.attempts[-1]["ended_by"] == "failure"


def test_reason_that_comes_later_takes_the_place_of_the_first() -> None:
    """A run that was called failed, and of which the accounting then says why, has one note and the code of that."""
    first = look(report=make_report(), attempts=(0,), word=says("FAILED", taken=190)).report
    assert first is not None
    last = look(report=first, attempts=(0,), word=accounts("OUT_OF_MEMORY")).report
    assert last is not None
    assert (last.exit_code, len(last.notes)) == (137, 1)


@pytest.mark.parametrize(("state", "ended_by"), [("TIMEOUT", "time_limit"), ("NODE_FAIL", "lost_node")])
def test_last_attempt_ends_as_slurm_says(state: str, ended_by: str) -> None:
    """What our agents took for a cancel was a time limit, or a node that was lost."""
    report = make_report("CANCELLED", 143, ended_by="cancelled")
    assert look(report=report, attempts=(0,), word=accounts(state)).attempts[-1]["ended_by"] == ended_by
