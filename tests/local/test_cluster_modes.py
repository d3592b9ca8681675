"""``cluster=``: where the agents run, and what ``auto`` chooses."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.conftest import WORKS

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
    for line in ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=4", "--cpus-per-task=32", "--mem=262144M"):
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
