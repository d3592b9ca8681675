"""Workers, agents and helpers that end badly: one root cause, the right code, nothing left, in bounded time."""

from __future__ import annotations

import os
import signal
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.conftest import find_processes, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Launcher


def test_failure_on_one_rank_ends_all_and_is_told_once(launcher: Launcher) -> None:
    """A rank that raises while the others sleep ends the run at once, with its own traceback once and exit code 1."""
    began = time.monotonic()
    ended = launcher.plain("ends.py:raise_on_1")
    assert ended.code == 1
    assert time.monotonic() - began < 15
    assert ended.out.count("Traceback (most recent call last)") == 1
    assert ended.out.count("ValueError: no such luck") == 2  # the root cause, and the traceback's last line
    assert "FAILED" in ended.out
    assert "root cause: global_rank 1 (node 0" in ended.out
    assert ended.err == ""


def test_report_names_root_cause_and_consequences(launcher: Launcher) -> None:
    """report.json has the promised fields, one root cause, and every other rank under consequences."""
    ended = launcher.plain("ends.py:raise_on_1")
    report = ended.report
    cause = report["root_cause"]
    assert (report["state"], report["exit_code"], report["failure_class"]) == ("FAILED", 1, "exception")
    assert (report["world_size"], report["num_nodes"], report["job_id"]) == (4, 2, None)
    assert (report["run"], report["run_dir"]) == (ended.run_dir.name, str(ended.run_dir))
    assert (cause["global_rank"], cause["node_rank"], cause["local_rank"]) == (1, 0, 1)
    assert (cause["exception"], cause["message"], cause["signal"]) == ("ValueError", "no such luck", None)
    assert cause["log"] == str(ended.run_dir / "attempt-0" / "rank1.log")
    assert cause["pid"] > 0
    (attempt,) = report["attempts"]
    assert (attempt["attempt"], attempt["ended_by"]) == (0, "failure")
    assert attempt["started"] < attempt["ended"]
    assert all(one["is_stopped"] for one in report["consequences"])


@pytest.mark.parametrize(
    ("work", "words", "code", "said"),
    [
        ("exit_with", ["work.kwargs.code=3"], 3, "ended with exit code 3"),
        ("exit_with", ["work.kwargs.code=2"], 1, "ended with exit code 2"),
        ("exit_with", ["work.kwargs.code=75"], 1, "ended with exit code 75"),
        ("exit_with", ["work.kwargs.code='in words'"], 1, "ended with exit code 1"),
        ("os_exit_with", ["work.kwargs.code=7"], 7, "ended with exit code 7"),
        ("signal_self", ["work.kwargs.name=SIGKILL"], 137, "was killed by SIGKILL"),
        ("signal_self", ["work.kwargs.name=SIGSEGV"], 139, "was killed by SIGSEGV"),
        ("signal_self", ["work.kwargs.name=SIGTERM"], 143, "was killed by SIGTERM"),
        ("interrupt", [], 1, "raised KeyboardInterrupt"),
        ("unbuildable", [], 1, "raised Unbuildable"),
        ("leave_thread", [], 1, "raised ValueError: thread left"),
    ],
)
def test_every_bad_end_has_its_code_and_its_words(
    launcher: Launcher, work: str, words: list[str], code: int, said: str
) -> None:
    """A worker's bad end becomes the run's exit code and one line that says what it was."""
    ended = launcher.plain(f"ends.py:{work}", *words)
    assert ended.code == code
    assert f"local_rank 1, pid {ended.report['root_cause']['pid']}) {said}" in ended.out
    assert ended.report["exit_code"] == code


@pytest.mark.parametrize("work", ["exit_early", "os_exit_early"])
def test_an_early_good_end_is_fine(launcher: Launcher, work: str) -> None:
    """A worker that leaves early with 0 is a success; the run ends when all have ended."""
    ended = launcher.plain(f"ends.py:{work}")
    assert ended.code == 0
    assert ended.report["state"] == "COMPLETED"
    if work == "exit_early":
        assert [ended.lines(rank) for rank in range(4)] == [["late but well"], [], ["late but well"], ["late but well"]]


def test_worker_that_ignores_sigterm_is_killed(launcher: Launcher) -> None:
    """After stop.kill_s SIGKILL follows SIGTERM, whatever a worker traps."""
    began = time.monotonic()
    ended = launcher.plain("ends.py:trap_term", "stop.kill_s=1")
    assert ended.code == 1
    assert time.monotonic() - began < 15
    assert "raised RuntimeError: trapped" in ended.out
    assert "not now" in ended.lines(0)


def test_message_of_20_megabytes_is_cut(launcher: Launcher) -> None:
    """A monstrous message neither hangs the run nor fills the terminal."""
    ended = launcher.plain("ends.py:huge_message")
    assert ended.code == 1
    assert len(ended.out) < 10_000
    assert len(ended.report["root_cause"]["message"]) <= 4_000


def test_broken_import_is_told_once_for_all_ranks(launcher: Launcher) -> None:
    """A module that cannot be imported on the nodes fails everywhere; its traceback is shown once."""
    ended = launcher.plain("broken_import.py:run")
    assert ended.code == 1
    assert ended.out.count("Traceback (most recent call last)") == 1
    assert ended.out.count("ModuleNotFoundError") == 2
    assert "hpc_multinode/" not in ended.out.partition("Traceback")[2].partition("log:")[0]


def test_children_of_workers_are_gone_after_a_failure(launcher: Launcher) -> None:
    """Grandchildren end with the run, also those that went into a session of their own; others' processes live."""
    mark = uuid.uuid4().int % 10**9
    ended = launcher.plain("ends.py:leave_children", f"work.kwargs.mark={mark}")
    assert ended.code == 1
    assert find_processes(f"120.{mark}") == []


def test_last_words_before_a_sigkill_are_in_the_log(launcher: Launcher) -> None:
    """Output is line by line, a child's too, so nothing is lost when a worker is killed."""
    ended = launcher.plain("ends.py:print_then_kill")
    assert ended.code == 137
    assert ended.lines(1) == ["last words", "of a child"]


def test_output_of_any_kind_arrives_whole(launcher: Launcher) -> None:
    """Bytes that are not UTF-8, a line of 3 MB and one without an end are shown, each behind its rank."""
    ended = launcher.plain("ends.py:odd_output", nodes=1)
    assert ended.code == 0
    for rank in (0, 1):
        odd, *long, half = ended.lines(rank)
        assert odd.endswith("not utf-8")
        assert sum(map(len, long)) == 3_000_000
        assert half == "half a line"


def test_killed_agent_ends_the_others(launcher: Launcher) -> None:
    """An agent that dies takes its workers along, and the other nodes stop and name it."""
    mark = f"mark{uuid.uuid4().hex}"
    process = launcher.start(*launcher.plain_words("ends.py:sleep", f"work.kwargs.mark={mark}"))
    (run_dir,) = _wait_for_logs(launcher.cwd, ranks=4)
    os.kill(_find_agent(run_dir, node_rank=1), signal.SIGKILL)
    ended = launcher.finish(process)
    assert ended.code == 1
    assert ended.report["state"] == "NODE_FAIL"
    assert ended.report["failure_class"] == "lost_node"
    assert "root cause: node 1" in ended.out
    assert find_processes(str(run_dir)) == []


def test_killed_main_agent_ends_the_run_with_a_report(launcher: Launcher) -> None:
    """Where node 0's agent dies there is a report all the same, and nothing is left."""
    process = launcher.start(*launcher.plain_words("ends.py:sleep"))
    (run_dir,) = _wait_for_logs(launcher.cwd, ranks=4)
    os.kill(_find_agent(run_dir, node_rank=0), signal.SIGKILL)
    ended = launcher.finish(process)
    assert ended.code == 1
    assert "its agent ended without a report" in ended.out
    assert ended.report["failure_class"] == "lost_node"
    assert find_processes(str(run_dir)) == []


def test_silent_agent_is_lost_and_named(launcher: Launcher) -> None:
    """An agent that stands still is lost after the heartbeat's timeout; when it goes on, it ends by itself."""
    words = launcher.plain_words("ends.py:sleep", "launch.heartbeat_timeout_s=1")
    process = launcher.start(*words)
    (run_dir,) = _wait_for_logs(launcher.cwd, ranks=4)
    agent = _find_agent(run_dir, node_rank=1)
    os.kill(agent, signal.SIGSTOP)
    try:
        wait_until((run_dir / "report.json").exists, what="the report")
    finally:
        os.kill(agent, signal.SIGCONT)
    ended = launcher.finish(process)
    assert (ended.code, ended.report["state"]) == (1, "NODE_FAIL")
    assert "no heartbeat for 1 s" in ended.out
    assert find_processes(str(run_dir)) == []


def test_restart_goes_on_in_the_same_folder(launcher: Launcher) -> None:
    """After a failure the next attempt runs with logs of its own, and the attempts are in the report."""
    ended = launcher.plain("ends.py:fail_at_first", "restart.max=2")
    assert ended.code == 0, ended.out
    assert [one["ended_by"] for one in ended.report["attempts"]] == ["restart", "restart", "success"]
    assert "note: all workers were started again 2 times" in ended.out
    assert sorted(path.name for path in ended.run_dir.glob("attempt-*")) == ["attempt-0", "attempt-1", "attempt-2"]


def test_failure_that_comes_back_at_once_is_not_tried_for_ever(launcher: Launcher) -> None:
    """The same failure within seconds of the start, twice, ends the run and says why."""
    ended = launcher.plain("ends.py:raise_on_1", "restart.max=9")
    assert ended.code == 1
    assert len(ended.report["attempts"]) == 2
    assert "not started again: the same failure came twice" in ended.out


def test_children_of_a_failed_attempt_are_gone_before_the_next(launcher: Launcher) -> None:
    """What a worker leaves behind does not meet the next attempt."""
    mark = uuid.uuid4().int % 10**9
    ended = launcher.plain("ends.py:leave_children_at_first", f"work.kwargs.mark={mark}", "restart.max=1", "nodes=1")
    assert ended.code == 0, ended.out
    assert set(ended.lines(0)) == {"left: 0"}


def test_preload_that_fails_ends_the_run(launcher: Launcher) -> None:
    """A module to preload that breaks on the nodes is the root cause, with its traceback."""
    (launcher.cwd / "breaks.py").write_text("raise OSError('no libcuda here')\n")
    ended = launcher.plain("ranks.py:tell", "launch.preload=[breaks]", env={"PYTHONPATH": str(launcher.cwd)})
    assert ended.code == 1
    assert "the preload of breaks failed: OSError: no libcuda here" in ended.out


def _wait_for_logs(cwd: Path, *, ranks: int) -> list[Path]:
    def are_there() -> bool:
        logs = list(cwd.glob("runs/*/attempt-0/rank*.log"))
        return len(logs) == ranks and all(log.stat().st_size for log in logs)

    wait_until(are_there, what=f"{ranks} ranks have printed")
    return list(cwd.glob("runs/*"))


def _find_agent(run_dir: Path, *, node_rank: int) -> int:
    found = [
        pid
        for pid in find_processes(f"SUBMITIT_LOCAL_GLOBALID={node_rank}")
        if str(run_dir).encode() in _cmdline(pid) and b"hpc_multinode.node\0" in _cmdline(pid)
    ]
    (agent,) = found
    return agent


def _cmdline(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - procfs
        return file.read()
