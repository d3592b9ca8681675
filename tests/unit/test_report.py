"""How a run ended: one root cause, an exit code, a text for people."""

from __future__ import annotations

import dataclasses
import json

import pytest

from hpc_multinode.report import (
    Outcome,
    Report,
    choose_root_cause,
    classify,
    describe,
    format_duration,
    make_cancel_code,
    make_exit_code,
    render_report,
)

FAILED = Outcome(
    node_rank=1,
    host="n02",
    global_rank=3,
    local_rank=1,
    pid=42,
    exit_code=1,
    exception="ValueError",
    message="boom\nmore",
    log="/runs/r/attempt-0/rank3.log",
    last_lines=("Traceback", "ValueError: boom"),
)
STOPPED = Outcome(node_rank=0, host="n01", global_rank=0, local_rank=0, pid=7, signal="SIGTERM", is_stopped=True)
REPORT = Report(
    run="r",
    run_dir="/runs/r",
    job_id="4711",
    state="FAILED",
    exit_code=1,
    failure_class="exception",
    world_size=4,
    num_nodes=2,
    root_cause=FAILED,
    consequences=(STOPPED,),
    attempts=({"attempt": 0, "phases": {"process_group": 1.25}},),
)


def _raised(exception: str, message: str | None, rank: int = 0) -> Outcome:
    return dataclasses.replace(FAILED, global_rank=rank, exception=exception, message=message)


# -- the root cause --------------------------------------------------------------------------------------------------


def test_without_failures_there_is_no_cause() -> None:
    """A run that ended well has no root cause."""
    assert choose_root_cause([]) is None


def test_the_first_failure_is_the_cause() -> None:
    """Order of arrival decides."""
    first, second = _raised("ValueError", "a"), _raised("ValueError", "b", rank=1)
    assert choose_root_cause([(0.0, first), (0.1, second)]) is first


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        ("RuntimeError", "[/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:20"),
        ("DistBackendError", "NCCL error: remote process exited or there was a network error"),
        ("DistNetworkError", "The client socket has timed out"),
        ("DistStoreError", None),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        ("BrokenPipeError", "[Errno 32] Broken pipe"),
        ("RuntimeError", "Socket Timeout"),
    ],
)
def test_a_lost_connection_ranks_behind_another_failure(exception: str, message: str | None) -> None:
    """A rank that reports a vanished peer is not the cause if the peer's own failure follows within a second."""
    lost, own = _raised(exception, message), _raised("ValueError", "x", rank=1)
    assert choose_root_cause([(5.0, lost), (5.9, own)]) is own


def test_a_failure_after_the_first_second_is_a_consequence() -> None:
    """What comes later follows from the stop."""
    lost, own = _raised("RuntimeError", "Connection closed by peer"), _raised("ValueError", "x", rank=1)
    assert choose_root_cause([(5.0, lost), (6.1, own)]) is lost


def test_of_lost_connections_alone_the_first_is_the_cause() -> None:
    """If there is nothing else, the earliest of them."""
    first, second = _raised("DistStoreError", "a"), _raised("DistStoreError", "b", rank=1)
    assert choose_root_cause([(0.0, first), (0.5, second)]) is first


# -- exit codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exit_code", "code"), [(1, 1), (3, 3), (255, 255), (2, 1), (75, 1), (0, 1), (None, 1)])
def test_a_works_own_code_is_the_runs(exit_code: int | None, code: int) -> None:
    """The work's code is handed on, but for 0 and those that mean usage and requeue."""
    assert make_exit_code(Outcome(node_rank=0, host="h", exit_code=exit_code)) == code


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", 137), ("SIGTERM", 143), ("SIGSEGV", 139), ("no signal", 1)])
def test_a_signal_is_128_and_its_number(name: str, code: int) -> None:
    """As a shell counts."""
    assert make_exit_code(Outcome(node_rank=0, host="h", signal=name)) == code


@pytest.mark.parametrize("exit_code", [256, 512, -256])
def test_a_failure_never_exits_with_0(exit_code: int) -> None:
    """Whatever the code, what the shell sees of it (eight bits) is a failure."""
    assert make_exit_code(Outcome(node_rank=0, host="h", exit_code=exit_code)) & 0xFF != 0


def test_a_cancelled_run_has_the_signals_code() -> None:
    """128+n of the signal that ended the agents."""
    assert make_cancel_code("SIGINT") == 130


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (FAILED, "exception"),
        (Outcome(node_rank=0, host="h", signal="SIGKILL"), "signal"),
        (Outcome(node_rank=0, host="h", failure_class="lost_node"), "lost_node"),
    ],
)
def test_a_failure_has_a_class(outcome: Outcome, word: str) -> None:
    """An agent's own word, else signal or exception."""
    assert classify(outcome) == word


@pytest.mark.parametrize(
    ("outcome", "is_failure"),
    [
        (FAILED, True),
        (STOPPED, False),
        (Outcome(node_rank=0, host="h", exit_code=0), False),
        (Outcome(node_rank=0, host="h", exit_code=3), True),
        (Outcome(node_rank=0, host="h", exit_code=0, exception="E"), True),
        (Outcome(node_rank=0, host="h", exit_code=3, is_stopped=True), False),
    ],
)
def test_what_was_stopped_has_not_failed(outcome: Outcome, is_failure: bool) -> None:  # noqa: FBT001
    """Only an end by itself, and not a good one, is a failure."""
    assert outcome.is_failure is is_failure


# -- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (FAILED, "global_rank 3 (node 1 n02, local_rank 1, pid 42) raised ValueError: boom"),
        (_raised("ValueError", None), "global_rank 0 (node 1 n02, local_rank 1, pid 42) raised ValueError"),
        (
            dataclasses.replace(STOPPED, signal="SIGKILL"),
            "global_rank 0 (node 0 n01, local_rank 0, pid 7) was killed by SIGKILL",
        ),
        (
            dataclasses.replace(FAILED, exception=None, message=None, exit_code=9),
            "global_rank 3 (node 1 n02, local_rank 1, pid 42) ended with exit code 9",
        ),
        (
            dataclasses.replace(FAILED, exception="SystemExit", exit_code=9),
            "global_rank 3 (node 1 n02, local_rank 1, pid 42) ended with exit code 9",
        ),
        (Outcome(node_rank=1, host="n02", message="its agent is lost"), "node 1 (n02): its agent is lost"),
    ],
)
def test_an_outcome_is_told_in_one_line(outcome: Outcome, text: str) -> None:
    """Who it was, where, and what happened."""
    assert describe(outcome) == text


def test_a_long_message_is_cut() -> None:
    """One line stays readable."""
    text = describe(_raised("ValueError", "x" * 10_000))
    assert text.endswith("x" * 300)
    assert not text.endswith("x" * 301)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (1.26, "1.3 s"),
        (60, "1 min 0 s"),
        (192, "3 min 12 s"),
        (3600, "1 h 0 min"),
        (90_061, "25 h 1 min"),
        (59.96, "1 min 0 s"),
    ],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    """Seconds, minutes, hours."""
    assert format_duration(seconds) == text


def test_a_failed_run_is_told() -> None:
    """State, how long, how many, the cause with its last lines and log, and what to do."""
    assert render_report(REPORT, duration_s=192) == (
        "FAILED  job 4711 after 3 min 12 s: 1 of 4 workers failed, 1 was stopped by us\n"
        "  root cause: global_rank 3 (node 1 n02, local_rank 1, pid 42) raised ValueError: boom\n"
        "  last lines:\n"
        "    Traceback\n"
        "    ValueError: boom\n"
        "  log:  /runs/r/attempt-0/rank3.log\n"
        "  next: mend the work, then start it again"
    )


def test_a_good_run_is_told_in_one_line() -> None:
    """State, how long, size and when it was ready; without a job id the run's own."""
    report = dataclasses.replace(REPORT, state="COMPLETED", root_cause=None, job_id=None, world_size=1, num_nodes=1)
    assert render_report(report, duration_s=2) == "COMPLETED  r after 2.0 s: 1 worker on 1 node, ready after 1.2 s"


def test_what_was_shown_is_not_told_again() -> None:
    """The end of a log that the reader has just seen is left out; a traceback is not shown as it comes, so it stays."""
    killed = dataclasses.replace(FAILED, exception=None, signal="SIGKILL", exit_code=None, last_lines=("step 3",))
    assert "step 3" not in render_report(dataclasses.replace(REPORT, root_cause=killed), has_shown_logs=True)
    assert "step 3" in render_report(dataclasses.replace(REPORT, root_cause=killed))
    assert "ValueError: boom" in render_report(REPORT, has_shown_logs=True)


def test_paths_are_written_for_the_reader() -> None:
    """The log's path goes through the reader's own function."""
    assert "  log:  rank3.log\n" in render_report(REPORT, shorten=lambda path: path.rpartition("/")[2])


@pytest.mark.parametrize(
    ("cause", "failure_class", "advice"),
    [
        (dataclasses.replace(FAILED, exception=None, signal="SIGKILL"), "signal", "SIGKILL often means that memory"),
        (Outcome(node_rank=0, host="h", message="m"), "lost_node", "look at the node, and at submitit/"),
        (Outcome(node_rank=0, host="h", message="m"), "usage", "mend what is named above"),
        (Outcome(node_rank=0, host="h", message="m"), "rendezvous", "mend what is named above"),
        (dataclasses.replace(FAILED, exception=None, exit_code=3), "exception", "the work ended itself with this code"),
    ],
)
def test_each_kind_of_failure_has_its_advice(cause: Outcome, failure_class: str, advice: str) -> None:
    """The last line says what to do."""
    report = dataclasses.replace(REPORT, root_cause=cause, failure_class=failure_class)
    assert render_report(report).splitlines()[-1].startswith(f"  next: {advice}")


# -- JSON ------------------------------------------------------------------------------------------------------------


def test_a_report_survives_json() -> None:
    """What scripts read equals what was written."""
    assert Report.from_json(REPORT.to_json()) == REPORT


def test_a_report_without_a_cause_survives_json() -> None:
    """``root_cause`` is null then."""
    report = dataclasses.replace(REPORT, root_cause=None, consequences=())
    assert json.loads(report.to_json())["root_cause"] is None
    assert Report.from_json(report.to_json()) == report


def test_the_fields_of_report_json() -> None:
    """The names that scripts rely on."""
    data = json.loads(REPORT.to_json())
    assert set(data) >= {
        "run", "run_dir", "job_id", "state", "exit_code", "failure_class", "world_size", "num_nodes", "root_cause",
        "consequences", "attempts",
    }  # fmt: skip
    assert set(data["root_cause"]) >= {
        "global_rank", "node_rank", "local_rank", "host", "pid", "exit_code", "signal", "exception", "message", "log",
    }  # fmt: skip


def test_an_outcome_of_another_version_is_read() -> None:
    """Keys that this version does not know are passed over."""
    assert Outcome.from_json({**FAILED.to_json(), "new": 1}) == FAILED


def test_a_report_of_another_version_is_read() -> None:
    """The same for the whole report."""
    assert Report.from_json(json.dumps({**json.loads(REPORT.to_json()), "new": 1})) == REPORT
