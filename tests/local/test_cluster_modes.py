"""``cluster=``: where the agents run, and what ``auto`` chooses."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PROGRAMS, WORKS, wait_until

if TYPE_CHECKING:
    from tests.conftest import Launcher


def test_debug_runs_in_this_process_with_breakpoints(launcher: Launcher) -> None:
    """``cluster=debug`` is rank 0 of a world of one, with the terminal's stdin for a debugger."""
    source = "def run(world_size, global_rank):\n    breakpoint()\n    print('place', global_rank, world_size)\n"
    (launcher.cwd / "train.py").write_text(source)
    process = launcher.start(
        "cluster=debug", "strategy=pytorch_spawn", "work.target=train.py:run", "nodes=2", stdin=subprocess.PIPE
    )
    ended = launcher.finish(process, stdin="p world_size + 41\ncontinue\n")
    assert ended.code == 0, ended.err
    assert "42" in ended.out
    assert "place 0 1" in ended.out
    assert ended.report["state"] == "COMPLETED"


def test_debug_has_the_exit_code_of_the_work(launcher: Launcher) -> None:
    """A failing work in debug shows its traceback and ends with its code."""
    ended = launcher.run("cluster=debug", f"work.target={WORKS}/ends.py:raise_everywhere")
    assert ended.code == 1
    assert "KeyError: 'everywhere'" in ended.err
    assert ended.report["root_cause"]["exception"] == "KeyError"


def test_auto_is_local_where_there_is_no_sbatch(launcher: Launcher) -> None:
    """Without Slurm the same command runs on this machine and says so."""
    ended = launcher.run(f"work.target={WORKS}/ranks.py:tell", "nodes=2", env={"PATH": "/nowhere"})
    assert ended.code == 0, ended.err
    assert "on this machine" in ended.out
    assert sorted(ended.ranks()) == [0, 1]


def test_render_prints_the_script_and_writes_nothing(launcher: Launcher) -> None:
    """``render`` needs no Slurm; twice the same but for the run's id."""
    words = ["render", "strategy=lite", "nodes=2", "resources=gpu-fast-multi", "run_id=fixed"]
    first, second = launcher.run(*words), launcher.run(*words)
    assert first.code == 0, first.err
    assert first.out == second.out
    assert first.run_dirs == []
    for line in ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4", "--cpus-per-task=32", "--mem=256G"):
        assert f"#SBATCH {line}\n" in first.out
    assert "--signal" not in first.out
    assert "--time" not in first.out


def test_help_fits_on_a_screen_and_a_half(launcher: Launcher) -> None:
    """``--help`` is short, and no line is wider than a terminal of 120 columns."""
    ended = launcher.run("--help")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_agents_run_in_a_container_on_this_machine(launcher: Launcher, *, is_cancelled: bool) -> None:
    """``cluster.container`` wraps the agents of a local run too, and a Ctrl-C goes through to the workers."""
    work = "ends.py:save_on_term" if is_cancelled else "ranks.py:tell_env"
    words = launcher.plain_words(work, "cluster.container=x.sif", f"cluster.python={sys.executable}", workers=1)
    words += [] if is_cancelled else ["work.kwargs.prefixes=[IN_CONTAINER]"]
    process = launcher.start(*words, env={"PATH": f"{PROGRAMS}:{launcher.env['PATH']}"})
    if is_cancelled:
        logs = lambda: list(launcher.cwd.glob("runs/*/attempt-0/rank*.log"))  # noqa: E731
        wait_until(lambda: sum("ready" in log.read_text() for log in logs()) == 2, what="two ready workers")
        process.send_signal(signal.SIGINT)
    ended = launcher.finish(process)
    assert ended.code == (143 if is_cancelled else 0), ended.out + ended.err
    if is_cancelled:
        assert ["saved" in ended.lines(rank) for rank in (0, 1)] == [True, True]
    else:
        assert {rank: told["IN_CONTAINER"] for rank, told in ended.ranks().items()} == {0: "x.sif", 1: "x.sif"}
