"""Whole scripts, letter by letter, as they are in ``tests/data/scripts``.

A change of the text that is meant is taken over by running this file with ``HPC_MULTINODE_ACCEPT=1`` and looking at the
difference before it is committed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import Any

import pytest

from hpc_multinode.assets import PACKAGE, find_asset
from hpc_multinode.config import Config, Mode, RequeueMethod
from hpc_multinode.planning import make_plan
from hpc_multinode.submission.slurm import render_slurm
from hpc_multinode.submission.standalone import render_standalone
from hpc_multinode.templates import read_pieces
from tests.conftest import TESTS
from tests.unit.facts import make_facts

PIECES = read_pieces([find_asset("sbatch_templates")])
CASES: dict[str, dict[str, Any]] = {
    "smallest": {},
    "gpus": {
        "nodes": 4, "name": "big", "resources.gpus_per_node": 8, "resources.gpu_type": "a100",
        "resources.cpus_per_node": 64, "resources.mem_gb": "0", "resources.time": "2-12",
        "resources.partition": ["a", "b"], "resources.account": "0123", "resources.qos": "long",
        "resources.exclusive": True,
    },
    "gres": {
        "nodes": 2, "resources.gpus_per_node": 4, "cluster.gpu_option": "gres", "resources.gres": "lustre:1",
        "resources.mem_per_gpu": "40", "resources.constraint": "a100&80gb", "resources.nodelist": "n[01-04]",
        "resources.exclude": ["n02", "n03"], "resources.reservation": "r",
    },
    "others": {
        "resources.sbatch": {
            "mail_type": "END,FAIL", "switches": "1@10:00", "clusters": "a,b", "requeue": True, "hold": False,
            "comment": "50% of $HOME & (it's) \"x\" | `y`",
        },
        "resources.srun_args": ["--mpi=none"],
    },
    "around": {
        "cluster.setup": ["module load cuda", "export A='b c' # so"], "cluster.teardown": ["echo bye", "exit 5"],
        "cluster.python": "conda run -n x python",
    },
    "hostile": {"name": "lr=0.1 (a;b) $HOME ü", "run_root": "/data/it's 50%a \"=0\" (x)|&ü"},
    "container": {
        "nodes": 2, "resources.gpus_per_node": 1, "cluster.container": "/i/my image.sif", "cluster.template": "modules",
        "cluster.vars": {"modules": ["cuda/12"]},
    },
    "resubmit": {
        "run_root": "/data/it's 50%a", "requeue.method": RequeueMethod.resubmit, "cluster.teardown": ["echo bye"],
        "resources.sbatch": {"dependency": "afterok:12"},
    },
    "requeue-outside": {"requeue.enabled": True, "cluster.container": "/i/my image.sif"},
    "pyxis": {"cluster.container": "nvcr.io#nvidia/pytorch:24.10-py3", "cluster.template": "pyxis"},
    "standalone": {"nodes": 2, "name": "a b", "resources.time": "90"},
}  # fmt: skip


def _render(name: str) -> str:
    config = Config()
    for key, value in CASES[name].items():
        section, _, last = key.rpartition(".")
        setattr(getattr(config, section) if section else config, last, value)
    facts = make_facts(run_id="work-20261201-120000-abcd", mode=Mode.slurm, python="/opt/python", pieces=PIECES)
    plan = make_plan(config, facts=facts, target=None)
    if name != "standalone":
        return render_slurm(plan)
    return render_standalone(
        plan, PIECES, python="/opt/python", words=["nodes=2", "name=a b", "env.X=$y", "--", "it's"]
    )


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_as_it_was(name: str) -> None:
    """What is submitted changes only on purpose."""
    text, file = _render(name).replace(str(PACKAGE), "/package"), TESTS / "data/scripts" / f"{name}.sh"
    if os.environ.get("HPC_MULTINODE_ACCEPT"):
        file.write_text(text)
    assert text == file.read_text(), "if this is meant: HPC_MULTINODE_ACCEPT=1, then look at the difference"


def test_every_script_has_its_case() -> None:
    """No file is left behind by a case that is gone."""
    assert {file.stem for file in (TESTS / "data/scripts").iterdir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_bash(name: str) -> None:
    """Bash can read it."""
    done = subprocess.run(["bash", "-n"], input=_render(name), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CASES)
def test_directives_come_first_and_once(name: str) -> None:
    """Every ``#SBATCH`` stands before the first command, and asks for one thing that no other asks for."""
    lines = [line for line in _render(name).splitlines() if line.strip()]
    first_command = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    words = [shlex.split(line)[1:] for line in lines if line.startswith("#SBATCH")]
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:])
    options = [word.partition("=")[0] for (word,) in words]
    assert len(options) == len(set(options))


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_there_that_nobody_asked_for(name: str) -> None:
    """No key, time, memory or GPU of submitit's own."""
    asked = " ".join(CASES[name])
    text = _render(name)
    for word, key in {
        "--signal": "time",
        "--wckey": "",
        "SUBMITIT": "",
        "--time": "time",
        "--mem": "mem",
        "gpu": "g",
    }.items():
        assert word not in text or (key and key in asked)
