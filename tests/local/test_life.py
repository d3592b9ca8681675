"""The life of runs on this machine: found from another folder, waited for, shown, cancelled."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.cli.options import parse_ranks
from tests.conftest import Ended, find_processes, wait_until

if TYPE_CHECKING:
    from tests.conftest import Launcher

WORK = """
import time

def talk(global_rank, seconds=0.6):
    print("hello", flush=True)
    time.sleep(0.6 * (global_rank + 1))
    print(f"rank {global_rank} at the end", flush=True)
    time.sleep(seconds)

def tick():
    for _ in range(4):
        time.sleep(1 - time.time() % 1)
        print("tick", flush=True)
"""


@pytest.fixture
def home(launcher: Launcher) -> Launcher:
    """Give a launcher that stands in another folder than the run."""
    (launcher.cwd / "talk.py").write_text(WORK)
    return launcher


def ask(launcher: Launcher, *words: str) -> Ended:
    """Run a verb from another folder."""
    here, launcher.cwd = launcher.cwd, launcher.cwd.parent
    try:
        return launcher.run(*words)
    finally:
        launcher.cwd = here


def read_list(launcher: Launcher, *words: str) -> list[dict[str, Any]]:
    """Return what ``list --json`` says."""
    ended = ask(launcher, "list", "--json", *words)
    assert ended.code == 0, ended.err
    told: list[dict[str, Any]] = json.loads(ended.out)
    return told


def start(launcher: Launcher, *words: str, work: str = "ends.py:sleep") -> Any:
    """Start a run and wait until it is listed as running."""
    process = launcher.start(*launcher.plain_words(work, *words, workers=1))
    wait_until(lambda: [one for one in read_list(launcher) if one["attempt"] == 0], what="a run in the list")
    return process


def test_run_is_listed_while_it_runs_and_after(home: Launcher) -> None:
    """A run is RUNNING in the list until it has ended, and then what it ended as."""
    process = start(home, "name=sleeper")
    (one,) = read_list(home, "--state", "RUNNING", "--name", "sleeper", "--since", "1h")
    assert (one["state"], one["job_id"], one["num_nodes"], one["exit_code"]) == ("RUNNING", None, 2, None)
    process.send_signal(signal.SIGTERM)
    home.finish(process)
    (one,) = read_list(home)
    assert (one["state"], one["exit_code"], one["failure_class"]) == ("CANCELLED", 143, "cancelled")
    assert read_list(home, "--state", "RUNNING") == []


def test_same_line_of_many_ranks_is_shown_once_in_the_foreground(home: Launcher) -> None:
    """What all ranks print at once is one line where the run is started, as it is in ``logs -f``."""
    ended = home.run(*home.plain_words("ends.py:sleep", "work.target=talk.py:tick", workers=2))
    assert ended.code == 0, ended.err
    assert re.search(r"^\[\d[-,].*\] tick$", ended.out, re.MULTILINE), ended.out


def test_foreground_tells_for_whom_it_waits(home: Launcher, tmp_path_factory: pytest.TempPathFactory) -> None:
    """While an agent does not come the person reads for which node the others wait."""
    late = tmp_path_factory.mktemp("bin") / "late.sh"
    late.write_text(f'#!/bin/bash\n[ "$SUBMITIT_LOCAL_GLOBALID" = 1 ] && sleep 7\nexec {sys.executable} "$@"\n')
    late.chmod(0o755)
    ended = home.run(
        *home.plain_words("ends.py:sleep", "work.target=talk.py:talk", f"cluster.python={late}", workers=1)
    )
    assert ended.code == 0, ended.err
    assert re.search(r"^waiting for node 1 \(.*\): \d+ s of \d+ s$", ended.err, re.MULTILINE), ended.err


def test_wait_ends_with_the_runs_exit_code(home: Launcher) -> None:
    """``wait`` in another shell ends when the run does, with its code, and says how it ended."""
    process = home.start(*home.plain_words("ends.py:raise_on_1", "work.kwargs={}", workers=1))
    wait_until(lambda: read_list(home), what="a run in the list")
    waited = ask(home, "wait")
    assert home.finish(process).code == waited.code == 1
    assert "FAILED" in waited.out
    assert "no such luck" in waited.out


def test_ctrl_c_leaves_the_run_alone(home: Launcher) -> None:
    """Ctrl-C in ``wait`` is exit code 130, says how to cancel, and the run goes on."""
    process = start(home)
    watcher = home.start("wait")
    time.sleep(1.0)
    watcher.send_signal(signal.SIGINT)
    out, err = watcher.communicate(timeout=20)
    assert watcher.returncode == 130, out + err
    assert "goes on" in err
    assert "hpc_multinode cancel ends-" in err
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    home.finish(process)


def test_cancel_ends_a_run_and_waits_until_it_is_gone(home: Launcher) -> None:
    """``cancel`` from another shell ends the run as Ctrl-C would, and nothing of it is left when it returns."""
    process = start(home, work="ends.py:save_on_term")
    ended = ask(home, "cancel", "ends")
    assert ended.code == 0, ended.err
    assert "CANCELLED" in ended.out
    assert find_processes(str(home.cwd / "runs")) == []
    assert home.finish(process).code == 143
    again = ask(home, "cancel", "ends")
    assert (again.code, "over before" in again.out) == (0, True)
    process = home.start(*home.plain_words("ends.py:sleep", workers=1))
    wait_until(lambda: read_list(home)[0]["state"] == "RUNNING", what="a second run of that name")
    assert "over before" not in ask(home, "cancel", "ends").out  # nobody asked for the first
    home.finish(process)


def test_cancel_asks_before_more_than_one(home: Launcher) -> None:
    """Two runs of one name are not both ended where nobody can be asked, and are with --yes."""
    processes = [home.start(*home.plain_words("ends.py:sleep", workers=1)) for _ in range(2)]
    wait_until(lambda: len(read_list(home)) == 2, what="two runs in the list")
    refused = ask(home, "cancel", "ends")
    assert refused.code == 2
    assert "more than one run" in refused.err
    assert [one["state"] for one in read_list(home)] == ["RUNNING"] * 2
    assert ask(home, "cancel", "--yes", "ends").code == 0
    assert [home.finish(process).code for process in processes] == [143, 143]


def test_killed_launcher_leaves_a_run_that_is_told_of(home: Launcher) -> None:
    """A launcher that was killed ends its run, whose report is there afterwards, and ``list`` never says RUNNING."""
    process = start(home, "stop.grace_s=1")
    os.kill(process.pid, signal.SIGKILL)
    home.finish(process)
    assert [one["state"] for one in read_list(home, "--state", "RUNNING")] == []
    wait_until(lambda: read_list(home)[0]["is_over"], what="the end of the run")
    assert read_list(home)[0]["exit_code"] not in (0, None)


def test_run_whose_agents_were_killed_is_told_of(home: Launcher) -> None:
    """Where launcher and agents were killed together the login side writes the report."""
    process = start(home)
    for pid in [process.pid, *find_processes(str(home.cwd / "runs"))]:
        os.kill(pid, signal.SIGKILL)
    home.finish(process)
    wait_until(lambda: find_processes(str(home.cwd / "runs")) == [], what="no process left")
    waited = ask(home, "wait")
    assert waited.code == 1
    assert "its agent ended without a report" in waited.out
    assert len(list(home.cwd.glob("runs/*/report.json"))) == 1


@pytest.mark.parametrize(("work", "has_steps"), [("saver.py:polls", True), ("saver.py:deaf", False)])
def test_the_first_step_is_told_where_it_is_known(home: Launcher, *, work: str, has_steps: bool) -> None:
    """A work that asks in each step whether to stop shows when its steps began."""
    arguments = ["work.kwargs.steps=2"] if has_steps else ["work.kwargs.seconds=0"]
    phases = home.plain(work, *arguments).report["attempts"][0]["phases"]
    assert ("first_step" in phases) == has_steps
    assert phases.get("first_step", 99.0) >= phases["process_group"]


def test_logs_are_merged_by_time(home: Launcher) -> None:
    """After the end all ranks' lines stand in the order in which they came, those that came together once."""
    words = [word for word in home.plain_words("") if not word.startswith("work.target=")]
    home.run(*words, "work.target=talk.py:talk")
    shown = ask(home, "logs")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    hello = [parse_ranks(line[1 : line.index("]")], option="") for line in lines if line.endswith("] hello")]
    assert sorted(rank for ranks in hello for rank in ranks) == [0, 1, 2, 3]
    assert lines[-1] == "[3] rank 3 at the end"
    assert sorted(set(lines) - {f"[{rank}] rank {rank} at the end" for rank in range(4)}) == sorted(
        line for line in lines if line.endswith("] hello")
    )
    assert ask(home, "logs", "--rank", "1,3", "--grep", "end", "-n", "1").out == "[3] rank 3 at the end\n"
    assert ask(home, "logs", "--node", "1", "-n1", "--json").out.count("\n") == 1
    assert ask(home, "logs", "--grep", "no such").err.endswith(": no such line\n")


def test_logs_follow_to_the_end(home: Launcher) -> None:
    """``logs -f`` shows what comes until the run is over, and ends with the closing text and its exit code."""
    process = start(home, work="ends.py:raise_on_1")
    shown = ask(home, "logs", "-f")
    assert shown.code == home.finish(process).code == 1
    assert "ValueError: no such luck" in shown.out
    assert shown.out.count("FAILED ") == 1


def test_unknown_run_is_refused(home: Launcher) -> None:
    """A run that nobody knows is exit code 2, in three parts, for every verb that takes one."""
    home.plain("ranks.py:Static", workers=1)
    for verb in ("logs", "wait", "cancel"):
        ended = ask(home, verb, "no-such-run")
        assert ended.code == 2
        assert "no run is known by 'no-such-run'" in ended.err


def test_watch_is_a_live_page_that_ends_with_the_run(home: Launcher) -> None:
    """On a terminal ``status --watch`` shows the ranks anew and ends with the run, its closing text and its code."""
    process = start(home, work="ends.py:raise_on_1")
    ours, theirs = pty.openpty()
    watcher = subprocess.Popen(
        [sys.executable, "-m", "hpc_multinode", "status", "--watch"], cwd=home.cwd.parent,
        env={**home.env, "TERM": "xterm", "COLUMNS": "120"}, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    assert watcher.wait(timeout=20) == home.finish(process).code == 1
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "RANK" in text
    assert text.count("root cause: ") == 1


def test_page_is_written(home: Launcher) -> None:
    """``report --html`` writes one file and says where; a folder that is not there is exit code 2."""
    home.plain("ends.py:raise_on_1", workers=1)
    page = home.cwd.parent / "page.html"
    told = ask(home, "report", "--html", str(page))
    assert (told.code, told.out) == (0, f"{page}\n")
    assert "no such luck" in page.read_text()
    refused = ask(home, "report", "--html", "/nowhere/page.html")
    assert refused.code == 2
    assert "the page cannot be written" in refused.err


def test_status_and_report_tell_scripts_the_same(home: Launcher) -> None:
    """``--json`` of list, status and report have the fields of report.json by the same names."""
    home.plain("ends.py:raise_on_1", workers=1)
    listed = read_list(home)[0]
    status = json.loads(ask(home, "status", "--json").out)
    report = json.loads(ask(home, "report", "--json").out)
    names = ("run", "run_dir", "job_id", "state", "exit_code", "failure_class", "world_size", "num_nodes", "root_cause")
    for name in names:
        assert listed[name] == status[name] == report[name], name
    first, second = (rank["state"] for rank in status["ranks"])
    assert (first in ("stopped", "not started"), second) == (True, "failed")  # it fails at once
