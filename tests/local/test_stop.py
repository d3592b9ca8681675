"""A person who stops a run: with Ctrl-C at each stage, with SIGTERM, or by taking the launcher away."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import find_processes, wait_until

if TYPE_CHECKING:
    from tests.conftest import Launcher


@pytest.mark.parametrize("wait_s", [0.05, 0.2, 0.35, 0.5, 0.7])
def test_ctrl_c_at_any_stage_leaves_nothing_behind(launcher: Launcher, wait_s: float) -> None:
    """Whenever Ctrl-C comes, in the whole terminal's process group, the launcher ends and no process is left."""
    process = launcher.start(*launcher.plain_words("ends.py:sleep"))
    time.sleep(wait_s)
    os.killpg(process.pid, signal.SIGINT)
    ended = launcher.finish(process, timeout_s=30)
    # Python's own start, in which the first of our files are read, has many words for it.
    is_before_us = ended.code != 0 and not re.search(r"hpc_multinode/(?!__(init|main)__\.py)", ended.err)
    assert ended.code in (130, 143) or is_before_us
    assert "Traceback" not in ended.err + ended.out or is_before_us
    assert find_processes(str(launcher.cwd / "runs")) == []


# Each agent signals itself while it loads the last of its modules but one.
_SIGNALS_ITSELF = """
import os, signal, sys

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "hpc_multinode.node.server" and "hpc_multinode.node" in sys.orig_argv:
            sys.meta_path.remove(Finder)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder)
"""


def test_signal_to_an_agent_that_is_starting_cancels_the_run(launcher: Launcher) -> None:
    """An agent does not die of a signal for which it is not ready yet: it takes it as soon as it is."""
    site = launcher.cwd / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(_SIGNALS_ITSELF)
    ended = launcher.plain("ends.py:sleep", env={"PYTHONPATH": str(site)})
    assert ended.code == 143, ended.out
    assert (ended.report["state"], ended.report["failure_class"]) == ("CANCELLED", "cancelled")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_a_running_run_cancels_it(launcher: Launcher, number: signal.Signals) -> None:
    """Workers get SIGTERM and may save; the report says cancelled, the exit code is that of SIGTERM."""
    process = launcher.start(*launcher.plain_words("ends.py:save_on_term"))
    _wait_for_lines(launcher, "ready", 4)
    process.send_signal(number)
    ended = launcher.finish(process)
    assert ended.code == 143
    assert [ended.lines(rank) for rank in range(4)] == [["ready", "saved"]] * 4
    assert (ended.report["state"], ended.report["failure_class"]) == ("CANCELLED", "cancelled")
    assert ended.report["root_cause"] is None


def test_second_ctrl_c_kills(launcher: Launcher) -> None:
    """Whoever presses Ctrl-C twice does not wait for the grace time."""
    process = launcher.start(*launcher.plain_words("stubborn.py:run", "stop.grace_s=100"))
    _wait_for_lines(launcher, "stubborn", 4)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    ended = launcher.finish(process, timeout_s=20)
    assert ended.code == 143
    assert find_processes(str(ended.run_dir)) == []


def test_grace_time_ends_with_a_kill(launcher: Launcher) -> None:
    """A worker that does not end within stop.grace_s of a cancel is killed."""
    process = launcher.start(*launcher.plain_words("stubborn.py:run", "stop.grace_s=1"))
    _wait_for_lines(launcher, "stubborn", 4)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    ended = launcher.finish(process, timeout_s=30)
    assert ended.code == 143
    assert time.monotonic() - began < 10
    assert find_processes(str(ended.run_dir)) == []


def test_killed_launcher_takes_its_run_along(launcher: Launcher) -> None:
    """A local run belongs to its terminal: where the launcher is killed with -9, agents and workers end."""
    process = launcher.start(*launcher.plain_words("ends.py:sleep"))
    _wait_for_lines(launcher, "sleeping ", 4)
    process.kill()
    process.communicate()
    wait_until(lambda: find_processes(str(launcher.cwd / "runs")) == [], what="all processes of the run are gone")


def test_stopping_one_run_leaves_the_other_alone(launcher: Launcher) -> None:
    """Two runs at once have ports and folders of their own, and each is stopped by itself."""
    first = launcher.start(*launcher.plain_words("ends.py:sleep"))
    second = launcher.start(*launcher.plain_words("ends.py:exit_early"))
    third = launcher.start(*launcher.plain_words("ends.py:exit_early"))
    _wait_for_lines(launcher, "sleeping ", 4)
    first.send_signal(signal.SIGTERM)
    assert launcher.finish(first).code == 143
    assert [launcher.finish(second).code, launcher.finish(third).code] == [0, 0]


def _wait_for_lines(launcher: Launcher, line: str, count: int) -> None:
    def are_there() -> bool:
        logs = launcher.cwd.glob("runs/*/attempt-0/rank*.log")
        return sum(f"{line}\n" in log.read_text(errors="replace") for log in logs) >= count

    wait_until(are_there, what=f"{count} ranks have printed {line!r}")
