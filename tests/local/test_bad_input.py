"""Bad input: one clear error of three parts, exit code 2, no traceback, no run folder, nothing started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conftest import WORKS

if TYPE_CHECKING:
    from tests.conftest import Launcher

RANKS = f"work.target={WORKS}/ranks.py"


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["nodez=2"], "unknown key 'nodez'", "did you mean nodes?"),
        (["resources.gpus=2"], "unknown key 'resources.gpus'", "did you mean resources.gpus_per_node?"),
        (["workers_per_node=2"], "unknown key 'workers_per_node'", "did you mean resources.workers_per_node?"),
        (["strategy=lihgtning"], "unknown strategy 'lihgtning'", "did you mean strategy=lightning?"),
        (["resources=huge"], "unknown resources 'huge'", "choose one of them"),
        (["nodes=two"], "a value has the wrong type", "give a whole number, as in nodes=2"),
        (["nodes=1,2"], "an override has several values", "give one"),
        (["nodes=0"], "nodes is too small", "nodes is at least 1"),
        (["resources.workers_per_node=2"], "strategy=base runs one worker", "strategy=pytorch_spawn"),
        (["resources=gpu"], "this machine has fewer GPUs than the run asks for", "resources=cpu"),
        (["--nodes=2"], "unknown option --nodes", "everything else is key=value"),
        (["rendr"], "unknown verb 'rendr'", "did you mean render?"),
        (["train.py"], "unknown verb 'train.py'", "work.target=train.py strategy=script"),
        (["--config-dir", "nowhere"], "the configuration folder does not exist", "name a folder that is there"),
        (["work.target=nowhere.py:run"], "the file nowhere.py does not exist", "give a path that is right from"),
        ([f"{RANKS}:tel"], "the work's source has no 'tel'", "did you mean tell?"),
        ([RANKS], "a file is named without the function or class in it", "strategy=script"),
        ([f"{RANKS}:Instance"], "Instance() asks for 'word', which nobody gives", "set work.kwargs.word=..."),
        ([f"{RANKS}:Static", "work.kwargs.lr=1"], "Static.run() does not take 'lr' of work.kwargs", "remove 'lr'"),
        ([f"{RANKS}:Static", "work.kwargs.global_rank=1"], "work.kwargs sets 'global_rank'", "remove 'global_rank'"),
        ([f"{RANKS}:Static", "--", "x"], "strategy=base takes no words after --", "strategy=script"),
        (["strategy=script", RANKS, "work.kwargs.x=1"], "a script takes no keyword arguments", "after --"),
        (["strategy.executor=nowhere:X"], "the executor cannot be used", "run from the folder that holds it"),
        (["env.X=null"], "env.X is not a text", "quote it"),
        (["requeue.exit_code=256"], "requeue.exit_code is too large", "1 to 255"),
        (["launch.main_port=99999"], "launch.main_port is too large", "1 to 65535"),
        (["run_id=a/b"], "run_id cannot be the name of a folder", "letters, digits"),
        (["resources.gpus_per_node=a100:4"], "a value has the wrong type", "resources.gpu_type=a100"),
        (["resources.time=1:2:3:4"], "resources.time is no time limit", "1-12:30:45"),
        (["resources.mem_gb=8", "resources.mem_per_cpu=1"], "two kinds of memory", "resources.mem_gb=null"),
        (["resources.account=a", "resources.sbatch.account=b"], "--account is given twice", "remove resources.sbatch"),
        (["cluster.setup=[\"echo 'x\"]"], "bash cannot read cluster.setup", "mend what bash names"),
        (["cluster.teardown=[echo (]"], "bash cannot read cluster.teardown", "mend what bash names"),
        (["cluster.python=python '"], "bash cannot read cluster.python", "mend what bash names"),
        (["cluster.template=nope"], "there is no template 'nope'", "sbatch_templates/setup/nope.sh.j2"),
        (["cluster.template=venv"], "the template setup/venv.sh.j2 uses a variable that is not", "cluster.vars.NAME"),
        (["cluster.container=x", "cluster.template=pyxis"], "the template wrapper/pyxis.sh.j2 gives", "apptainer"),
        (["cluster=slurm"], "cluster=slurm, and there is no Slurm here", "cluster=local"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_happens(
    launcher: Launcher, words: list[str], what: str, fix: str
) -> None:
    """What is wrong, what was found and how to fix it, and nothing else."""
    path = ":".join(p for p in launcher.env["PATH"].split(":") if not p.startswith(("/usr/bin", "/bin", "/usr/local")))
    first = [] if words[0].startswith(("cluster=", "rendr", "train")) else ["cluster=local"]
    ended = launcher.run(*first, *words, env={"PATH": path} if words == ["cluster=slurm"] else None)
    assert ended.code == 2
    lines = ended.err.splitlines()
    assert lines[0].startswith(f"error: {what}")
    assert lines[1].startswith("  found: ")
    assert any(line.startswith("  fix:   ") for line in lines)
    assert fix in ended.err
    assert ended.out == ""
    assert ended.run_dirs == []


@pytest.mark.parametrize("source", ["import nosuch_package_anywhere\n", "from nosuch_package.x import y\n"])
def test_import_that_is_not_installed_is_refused(launcher: Launcher, source: str) -> None:
    """A top-level import that this interpreter cannot find is an error at once; the source is not executed."""
    (launcher.cwd / "train.py").write_text(source + "open('was_executed', 'w')\ndef run(): pass\n")
    ended = launcher.local("work.target=train.py:run")
    assert ended.code == 2
    assert "which is not installed" in ended.err
    assert "train.py, line 1" in ended.err
    assert not (launcher.cwd / "was_executed").exists()


def test_run_id_that_is_taken_is_refused(launcher: Launcher) -> None:
    """A run folder is never used twice."""
    assert launcher.local("run_id=mine").code == 0
    again = launcher.local("run_id=mine")
    assert again.code == 2
    assert "a run of this id is there already" in again.err
