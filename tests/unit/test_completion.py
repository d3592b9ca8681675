"""Shell completion: verbs, their options, runs, and Hydra's words."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.cli import run
from hpc_multinode.cli.completion import complete
from hpc_multinode.registry import register
from tests.unit.life.runs import make_plan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HPC_MULTINODE_CONFIG_DIR", raising=False)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hpc-multinode stat", ["status"]),
        ("hpc-multinode strategy=li", ["strategy=lightning", "strategy=lite"]),
        ("hpc-multinode render resources.gp", ["resources.gpu_type=", "resources.gpus_per_node="]),
        ("hpc-multinode strategy=lite cluster.mode=lo", ["cluster.mode=local"]),
        ("hpc-multinode private=", ["private=true", "private=false"]),
        ("hpc-multinode logs --at", ["--attempt"]),
        ("hpc-multinode render --st", ["--standalone"]),
        ("hpc-multinode list ", []),
        ("hpc-multinode strategy=nonsense nod", []),
    ],
)
def test_words_are_completed(line: str, words: list[str]) -> None:
    """Verbs, groups, keys, values that can be counted, and options."""
    assert complete(line) == words


def test_runs_are_completed(tmp_path: Path) -> None:
    """After a verb that takes a run, job ids and run ids are offered, newest first."""
    for name, job_id in (("train-1", "4711"), ("train-2", None)):
        register(make_plan(tmp_path / "runs" / name), job_id=job_id)
    assert complete("hpc-multinode status ") == ["train-2", "4711", "train-1"]
    assert complete("hpc-multinode cancel train-2 47") == ["4711"]


def test_own_files_are_completed(tmp_path: Path) -> None:
    """A resource file of the person's own is offered beside ours."""
    folder = tmp_path / "config/hpc_multinode/resources"
    folder.mkdir(parents=True)
    (folder / "huge.yaml").write_text("gpus_per_node: 8\n")
    assert complete("hpc-multinode resources=hu") == ["resources=huge"]


def test_bash_asks_and_gets_an_answer(tmp_path: Path) -> None:
    """What ``-sc install=bash`` prints makes bash complete the program's words."""
    program = tmp_path / "bin" / "hpc-multinode"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.argv[0] = \'hpc-multinode\'; '
                       'from hpc_multinode.__main__ import main; main()" "$@"\n')  # fmt: skip
    program.chmod(0o755)
    script = (
        'eval "$(hpc-multinode -sc install=bash)"; COMP_LINE="hpc-multinode canc"; COMP_POINT=18; COMP_CWORD=1; '
        'hydra_bash_completion; echo "${COMPREPLY[@]}"'
    )
    path = f"{program.parent}:/usr/bin:/bin"
    done = subprocess.run(["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == "cancel\n"


@pytest.mark.parametrize(
    "words", [["-sc"], ["-sc", "install=tcsh"], ["-sc", "query"], ["--shell-completion", "x=bash"]]
)
def test_wrong_request_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What Hydra has no completion for is exit code 2 with what to write."""
    assert run(words) == 2
    assert "hpc-multinode -sc install=bash" in capsys.readouterr().err
