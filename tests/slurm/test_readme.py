"""The README's day on a cluster and the examples: what the documents tell people to type, typed on a real cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import EXAMPLES, wait_until
from tests.documents import README, ROOT, Command, list_blocks, list_commands, make_comparable, write_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

MOVING = ROOT / "docs" / "moving.md"
# What a document says of a site, and what this cluster has.
SITE = {"partition: gpu": "partition: main", "account: my-project": "account: null"}
# Weights of the resumable example do not depend on how often it was stopped.
DIGEST = re.compile(r"^done: loss \S+ weights (\w+)$", re.MULTILINE)


def find(start: str) -> Command:
    """Return the README's command that begins so."""
    return next(one for one in list_commands(README) if one.line.startswith(f"python -m hpc_multinode {start}"))


def make_person(on_slurm: OnSlurm) -> tuple[Path, dict[str, str]]:
    """Make a person's folder with the README's files, and the variables by which their settings are found."""
    cwd = on_slurm.make_folder()
    write_files(README, cwd, home=cwd / "config" / "hpc_multinode")
    for file in cwd.rglob("defaults.yaml"):
        text = file.read_text()
        for said, here in SITE.items():
            text = text.replace(said, here)
        file.write_text(text)
    return cwd, {"XDG_CONFIG_HOME": str(cwd / "config"), "XDG_STATE_HOME": str(cwd / "state")}


@pytest.fixture(scope="module")
def first_day(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Type what the README's first day says, in order."""
    cwd, env = make_person(on_slurm)
    on_slurm.cluster.run(["chown", "-R", f"{on_slurm.cluster.settings.uid}", str(cwd)], user="root", check=True)
    typed = {}
    for start in ("render --check", "strategy=pytorch_spawn", "logs -f", "report", "list", "status train"):
        typed[start] = on_slurm.run(*find(start).words, cwd=cwd, env=env)
        assert typed[start].code == (2 if "--check" in start else 0), typed[start].err
    return typed


@pytest.mark.parametrize("start", ["render --check", "strategy=pytorch_spawn", "logs -f", "report"])
def test_first_day_prints_what_the_readme_shows(first_day: dict[str, EndedOnSlurm], start: str) -> None:
    """Each command's output is the README's, but for ids, times and names of machines."""
    ended = first_day[start]
    assert make_comparable(ended.err if ended.code else ended.out) == make_comparable(find(start).printed)


def test_life_of_a_run_has_the_columns_of_the_readme(first_day: dict[str, EndedOnSlurm]) -> None:
    """``list`` has the columns, ``status`` the parts that the README shows."""
    header = find("list").printed.split("\n")[0]
    assert first_day["list"].out.split("\n")[0].split() == header.split()
    shown = re.findall(r"^ *(\w+):  ", find("status train").printed, re.MULTILINE)
    told = re.findall(r"^ *(\w+):  ", first_day["status train"].out, re.MULTILINE)
    assert set(told) <= set(shown) | {"ended", "code"}
    assert {"size", "times", "run", "logs", "agents"} <= set(told)


# -- moving here -----------------------------------------------------------------------------------------------------

TRAIN = "import argparse\nwords = argparse.ArgumentParser()\nwords.add_argument('--lr')\nlr = words.parse_args().lr\n"
OF_TORCHRUN = f"import os\n{TRAIN}print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'lr', lr)\n"
# It waits for the others, as training does: gloo cannot bear a rank that leaves while another is still joining.
OF_SUBMITIT = """
def run(lr):
    import torch.distributed as dist

    dist.barrier()
    return dist.get_rank(), dist.get_world_size(), lr
"""
OF_LIGHTNING = """
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

def main(run_dir):
    options = dict(max_steps=2, limit_val_batches=0, logger=False, enable_progress_bar=False, accelerator="cpu")
    {trainer}
    print("rank", trainer.global_rank, "of", trainer.world_size)
"""


def read_right_sides() -> list[list[str]]:
    """Return the words of each command on the right sides of ``moving.md``, for workers without GPUs."""
    lines = [one for one in list_commands(MOVING) if one.line.startswith("python -m hpc_multinode")]
    swap = {"resources.gpus_per_node=4": "resources.workers_per_node=2"}
    return [[swap.get(word, word) for word in one.words if not word.startswith("resources.time")] for one in lines]


def make_sources() -> dict[str, str]:
    """Return the files that the right sides of ``moving.md`` name; the calls in them are the document's."""
    blocks = [text for language, text, _ in list_blocks(MOVING) if language == "python"]
    _, api, _, trainer = blocks
    fit = trainer.strip().replace(")", ", **options)\n    trainer.fit(BoringModel())")
    api = api.replace("resources.gpus_per_node=4", "resources.workers_per_node=2").replace(', "resources.time=120"', "")
    return {
        "train.py": OF_TORCHRUN,
        "app.py": (EXAMPLES / "hydra_app.py").read_text().replace("lr=config.lr", "lr=float(config.lr)"),
        "fit.py": OF_LIGHTNING.format(trainer=fit),
        "training.py": OF_SUBMITIT,
        "submit.py": api,
    }


@pytest.fixture(scope="module")
def jobs(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Submit the right sides and the example that is stopped, all at once."""
    torchrun, hydra, lightning = read_right_sides()
    (digits,) = (one.words for one in list_commands(README) if "slurm_cluster shell --" in one.line)
    resumable = [
        *("strategy=pytorch_spawn", f"work.target={EXAMPLES}/resumable.py:run", "nodes=2", "requeue.enabled=true"),
        *("resources.time=5", "work.kwargs.epochs=4"),
    ]
    words = {
        "torchrun": torchrun,
        "hydra": hydra,
        "lightning": lightning,
        "digits": digits,
        "stopped": [*resumable, "work.kwargs.pause_s=0.1"],
        "never stopped": resumable,
    }
    started = {}
    for key, line in words.items():
        cwd = on_slurm.make_folder()
        for name, source in make_sources().items():
            on_slurm.write(cwd, name, source)
        started[key] = on_slurm.start(*line, cwd=cwd)
    ended = {key: on_slurm.finish(one) for key, one in started.items() if key != "digits"}
    for key, one in ended.items():
        assert one.code == 0, f"{key}: {one.err}"
    # Six jobs that import torch share two cores.
    wait_until(lambda: started["stopped"].count_logs_with("step 5"), what="some steps", timeout_s=90)
    on_slurm.cluster.run(["scancel", "--signal=USR2", ended["stopped"].job_id], check=True)
    for one in ended.values():
        on_slurm.wait_for_end(one.job_id)
    return {**ended, "digits": on_slurm.finish(started["digits"], timeout_s=120)}


@pytest.mark.parametrize("key", ["torchrun", "hydra", "lightning"])
def test_what_takes_the_place_of_something_else_runs(jobs: dict[str, EndedOnSlurm], key: str) -> None:
    """The right sides of ``moving.md`` start four workers on two nodes, each of which knows its rank."""
    logs = jobs[key].read_logs()
    assert sorted(set(re.findall(r"^rank (\d) of 4\b", logs, re.MULTILINE))) == ["0", "1", "2", "3"], logs


def test_a_newcomer_learns_digits_on_two_nodes(jobs: dict[str, EndedOnSlurm]) -> None:
    """The line of the README for whoever has no cluster follows the job to its end and its accuracy."""
    assert jobs["digits"].code == 0, jobs["digits"].err
    (accuracy,) = re.findall(r"^\[0\] accuracy (0\.\d+) on 360 images, 2 workers$", jobs["digits"].out, re.MULTILINE)
    assert float(accuracy) > 0.95


def test_what_takes_the_place_of_submitit_runs(on_slurm: OnSlurm) -> None:
    """The program of ``moving.md`` submits a job, waits for it and has what the ranks returned."""
    cwd = on_slurm.make_folder()
    for name, source in make_sources().items():
        on_slurm.write(cwd, name, source)
    done = on_slurm.cluster.run(["python", "submit.py"], cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([(rank, 4, 0.1) for rank in range(4)])


def test_the_resumable_example_is_stopped_and_goes_on(jobs: dict[str, EndedOnSlurm]) -> None:
    """Told to stop it saves and comes back, and ends with the weights of a run that was never stopped."""
    digests = {}
    for key in ("stopped", "never stopped"):
        logs = jobs[key].read_logs()
        (digests[key],) = set(DIGEST.findall(logs)) or {logs}
    assert digests["stopped"] == digests["never stopped"]
    assert [one["ended_by"] for one in jobs["stopped"].report["attempts"]] == ["requeue", "success"]
    assert [one["ended_by"] for one in jobs["never stopped"].report["attempts"]] == ["success"]
