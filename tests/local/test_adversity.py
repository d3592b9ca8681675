"""What breaks around a run: the disk, the folder, an agent before all have met, a stream, a person without a name."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import WORKS, find_processes, wait_until

if TYPE_CHECKING:
    from tests.conftest import Launcher


def test_removed_run_folder_does_not_hang_the_run(launcher: Launcher) -> None:
    """A work that removes the run folder ends its run all the same, and nothing is left."""
    ended = launcher.plain("adversity.py:remove_run_folder")
    assert ended.code == 1
    assert find_processes(str(launcher.cwd / "runs")) == []


@pytest.mark.parametrize("value", ["env.PYTHONHASHSEED=abc", "env.PYTHONHOME=/nope"])
def test_interpreter_that_cannot_start_is_the_root_cause(launcher: Launcher, value: str) -> None:
    """A variable of the config that keeps Python from starting ends the run at once, with Python's own words."""
    ended = launcher.plain("ranks.py:tell", value)
    assert ended.code == 1
    assert "the process that starts and holds the workers ended by itself" in ended.out
    assert "Fatal Python error" in ended.out


@pytest.mark.parametrize("node_rank", [0, 1])
def test_agent_that_dies_before_all_have_met_ends_the_run(launcher: Launcher, node_rank: int) -> None:
    """Where an agent is killed as soon as it is there, the others do not wait for it for the join timeout."""
    process = launcher.start(*launcher.plain_words("ends.py:sleep"))
    found: list[int] = []

    def is_there() -> bool:
        found[:] = [
            pid
            for pid in find_processes(f"SUBMITIT_LOCAL_GLOBALID={node_rank}")
            if b"hpc_multinode.node\0" in _cmdline(pid) and str(launcher.cwd).encode() in _cmdline(pid)
        ]
        return bool(found)

    wait_until(is_there, what="the agent is there")
    os.kill(found[0], signal.SIGKILL)
    began = time.monotonic()
    ended = launcher.finish(process, timeout_s=60)
    assert ended.code == 1
    assert time.monotonic() - began < 30
    assert find_processes(str(launcher.cwd / "runs")) == []


def test_letters_that_a_terminal_lacks_do_not_end_a_run(launcher: Launcher) -> None:
    """Output beyond the terminal's encoding is escaped."""
    ended = launcher.plain("adversity.py:snowman", env={"PYTHONIOENCODING": "ascii"})
    assert ended.code == 0, ended.err
    assert ended.lines(0) == ["snow \\u2603"]


def test_child_of_a_work_does_not_speak_as_its_rank(launcher: Launcher) -> None:
    """A process that a work forks and that fails there is the work's own affair."""
    ended = launcher.plain("adversity.py:failing_child")
    assert ended.code == 0, ended.out
    assert ended.report["state"] == "COMPLETED"


def test_exception_that_exits_when_it_is_printed_is_a_failure(launcher: Launcher) -> None:
    """Whatever the text of an exception does, the work has failed."""
    ended = launcher.plain("adversity.py:exits_in_str")
    assert ended.code == 1
    assert ended.report["root_cause"]["exception"] == "Exits"


def test_work_that_closes_our_pipe_still_shows_its_traceback(launcher: Launcher) -> None:
    """Where a failing work has closed all descriptors, its traceback is told once, from its log."""
    ended = launcher.plain("adversity.py:close_all_and_fail")
    assert ended.code == 1
    assert ended.out.count("Traceback (most recent call last)") == 1
    assert "RuntimeError: after closing" in ended.out


def test_full_disk_is_told_and_leaves_no_half_folder(launcher: Launcher) -> None:
    """A run folder that cannot be written is one error before anything starts."""
    ended = launcher.local(f"work.target={WORKS}/ranks.py:tell", "run_root=/dev/full/x")
    assert ended.code == 2
    assert ended.err.startswith("error: the run folder cannot be made")


def _cmdline(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - procfs
            return file.read()
    except OSError:
        return b""
