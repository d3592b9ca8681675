"""``snapshot=true`` on this machine: the workers run the copy, whatever happens to the files."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Launcher

WORK = """
import os, sys, time

def run(global_rank, run_dir):
    print("ready", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.02)
    import helper, lib
    print(helper.WORD, lib.WORD, os.path.relpath(__file__, run_dir), os.path.relpath(os.getcwd(), run_dir))
"""
SNAPSHOT = ["cluster=local", f"--config-dir={PLAIN_CONFIG}", "strategy=plain", "snapshot=true"]


@pytest.fixture
def project(launcher: Launcher) -> Path:
    """Make a repository with a work in a subfolder and a package in ``src``, and stand in the subfolder."""
    root = launcher.cwd
    files = {"project/train.py": WORK, "project/helper.py": "WORD = 'old'\n", "src/lib.py": "WORD = 'old'\n"}
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    launcher.cwd = root / "project"
    return root


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_files_that_are_edited_while_it_runs_do_not_count(launcher: Launcher, project: Path, start_method: str) -> None:
    """Modules imported late, also one of a folder on PYTHONPATH, are those of the moment of starting."""
    env = {"PYTHONPATH": str(project / "src")}
    words = [*SNAPSHOT, "work.target=train.py:run", "run_id=r", f"launch.start_method={start_method}"]
    started = launcher.start(*words, env=env)
    run_dir = project / "project/runs/r"
    wait_until(lambda: "ready" in _read(run_dir / "attempt-0/rank0.log"), what="the work has begun")
    for name in ("project/helper.py", "src/lib.py"):
        (project / name).write_text("WORD = 'new'\n")
    (run_dir / "code/project/go").touch()
    ended = launcher.finish(started)
    assert ended.lines(0) == ["ready", "old old code/project/train.py code/project"], ended.out + ended.err


def test_the_header_says_what_was_copied(launcher: Launcher, project: Path) -> None:
    """The work is named where the person knows it, and the copy by size and origin."""
    (project / "project/go").touch()
    ended = launcher.run(*SNAPSHOT, "work.target=train.py:run", env={"PYTHONPATH": str(project / "src")})
    assert ended.code == 0, ended.out
    lines = ended.out.splitlines()
    assert lines[0].startswith("plain: train.py:run on 1 x 1")
    assert lines[3] == f"code: 4 files, 0.0 MB of {project}, no commit yet with 4 new"


def test_a_code_that_is_too_large_is_refused_before_anything_is_written(launcher: Launcher, project: Path) -> None:
    """Exit code 2 in three parts, and no run folder."""
    (project / "weights").write_bytes(bytes(3_000_000))
    ended = launcher.run(*SNAPSHOT, "work.target=train.py:run", "snapshot_max_mb=2")
    assert (ended.code, ended.out, ended.run_dirs) == (2, "", [])
    assert ended.err.startswith("error: the code is too large for a snapshot: more than 2 MB\n  found: ")
    assert "weights (3.0 MB)" in ended.err


def test_a_function_of_a_calling_program_imports_from_the_copy(launcher: Launcher, project: Path) -> None:
    """The Python API takes ``snapshot=true`` as well."""
    program = (
        "from hpc_multinode import MultiNode\n"
        "def work():\n    import lib\n    return lib.__file__\n"
        "if __name__ == '__main__':\n"
        "    run = MultiNode(work, overrides=['cluster=local', 'snapshot=true']).submit()\n"
        "    assert run.results() == [str(run.run_dir / 'code/src/lib.py')], run.results()\n"
    )
    (project / "src/program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "../src/program.py"], cwd=launcher.cwd, env=launcher.env, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
