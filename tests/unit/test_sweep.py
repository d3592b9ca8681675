"""A sweep: its runs, what is common to them, and which of them are to be started."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.errors import ConfigError, SubmissionError
from hpc_multinode.points import compose_points
from hpc_multinode.report import Report
from hpc_multinode.runs import RunFolder
from hpc_multinode.sweep import Sweep, make_record, prepare_sweep
from hpc_multinode.sweep_record import SubmittedArray, SweepRecord
from hpc_multinode.sweep_selection import select_points

if TYPE_CHECKING:
    from collections.abc import Callable

WORK = "def run(lr=0.1, x=None): pass\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with two works, and with no Slurm."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("train.py", "other.py"):
        (here / name).write_text(WORK)
    for name in [name for name in os.environ if name.startswith(("GIT_", "SLURM_", "HPC_MULTINODE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(here)
    return here


def _sweep(*words: str, work: str = "train.py:run") -> Sweep:
    target = [] if any(word.startswith("work.target") for word in words) else [f"work.target={work}"]
    first = [] if any(word.startswith("cluster") for word in words) else ["cluster=local"]
    return prepare_sweep(compose_points([*first, *target, *words], config_dirs=[]), cwd=Path.cwd())


def _refuse(*words: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        _sweep(*words)
    return caught.value


# -- its runs --------------------------------------------------------------------------------------------------------


def test_each_point_has_a_run_folder_in_that_of_the_sweep(here: Path) -> None:
    """Ids and folders bear the point's number."""
    sweep = _sweep("work.kwargs.lr=0.1,0.2", "run_id=s", "run_root=out")
    assert (sweep.sweep_id, sweep.folder) == ("s", here / "out/s")
    assert [(point.plan.run_id, point.plan.run_dir) for point in sweep.points] == [
        ("s-0", f"{here}/out/s/0"), ("s-1", f"{here}/out/s/1"),
    ]  # fmt: skip
    assert [point.plan.work.kwargs for point in sweep.points] == [{"lr": 0.1}, {"lr": 0.2}]
    assert ["lr: 0.2" in point.config_text for point in sweep.points] == [False, True]


def test_without_an_id_the_sweep_has_one_as_any_run(here: Path) -> None:
    """Name, date, time and four digits."""
    assert _sweep("work.kwargs.lr=1,2").folder.parent == here / "runs"
    assert _sweep("work.kwargs.lr=1,2").sweep_id.startswith("train-2")


def test_a_name_that_nobody_gave_is_the_same_for_all_jobs(here: Path) -> None:
    """Points of several works are one array; given names are kept."""
    assert here
    works = "work.target=train.py:run,other.py:run"
    assert [point.plan.sbatch["job-name"] for point in _sweep(works).points] == ["train", "train"]
    assert [point.plan.sbatch["job-name"] for point in _sweep(works, "name=a,b").points] == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("run_id=a,b", "run_id=a,b"),
        ("run_root=a,b", "run_root=a,b"),
        ("snapshot=true,false", "snapshot=False,True"),
        ("array.parallel=1,2", "array.parallel=1,2"),
        ("private=true,false", "private=False,True"),
        ("cluster=local,slurm", "cluster.mode=Mode.local,Mode.slurm"),
    ],
)
def test_what_a_sweep_has_once_cannot_be_swept(here: Path, word: str, found: str) -> None:
    """The error names the key and what was given."""
    assert here
    error = _refuse(word)
    key = found.partition("=")[0]
    assert error.what == f"{key} cannot have several values: there is one for the whole sweep"
    assert (error.found, error.fix) == (found, f"give one, or start a sweep for each value of {key}")


@pytest.mark.parametrize("cluster", ["debug", "allocation"])
def test_a_sweep_needs_a_place_for_many_runs(here: Path, cluster: str) -> None:
    """One process is not the place for several runs."""
    assert here
    error = _refuse(f"cluster={cluster}", "work.kwargs.lr=1,2")
    assert error.what == f"cluster={cluster} runs one point, not a sweep"
    assert (error.found, error.fix) == ("-m with 2 points", "cluster=local, cluster=slurm, or leave -m out")


def test_parallel_is_at_least_one(here: Path) -> None:
    """Zero tasks at a time would never end."""
    assert here
    assert _refuse("array.parallel=0").what == "array.parallel is too small"


def test_one_snapshot_is_for_all_points(here: Path) -> None:
    """It lies in the sweep's folder, and every plan leads there."""
    sweep = _sweep("snapshot=true", "work.kwargs.lr=1,2", "run_id=s")
    assert sweep.code is not None
    assert sweep.code.folder == f"{here}/runs/s/code"
    assert {point.plan.work.file for point in sweep.points} == {f"{here}/runs/s/code/train.py"}


def test_works_of_several_codes_have_no_snapshot_in_common(here: Path) -> None:
    """The error names the work that would be left out."""
    (here.parent / "far.py").write_text(WORK)
    error = _refuse("snapshot=true", "work.target=train.py:run,../far.py:run")
    assert error.what == "the works of a sweep do not belong to the same code, of which there is one snapshot"
    assert error.found == f"{here.parent}/far.py is no part of {here}"


# -- which of them are started ----------------------------------------------------------------------------------------


@pytest.fixture
def earlier(here: Path) -> Callable[..., None]:
    """Give a function that leaves an earlier sweep: the exit code of each point, or None where it has no report."""

    def leave(sweep: Sweep, codes: list[int | None], jobs: tuple[SubmittedArray, ...] = ()) -> None:
        assert here
        folder = RunFolder.create_empty(sweep.folder, is_private=True)
        for point, code in zip(sweep.points, codes, strict=True):
            run = RunFolder.create(point.plan, config_text="")
            if code is not None:
                report = Report(
                    run=point.plan.run_id, run_dir=point.plan.run_dir, job_id=None,
                    state="FAILED" if code else "COMPLETED", exit_code=code, failure_class=None, world_size=1,
                    num_nodes=1, root_cause=None,
                )  # fmt: skip
                run.write("report.json", report.to_json().encode())
        make_record(sweep.points, jobs).write(folder)

    return leave


@pytest.fixture
def squeue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Give a function that puts a squeue on PATH which lists jobs; return where it notes its words."""

    def make(*jobs: str, code: int = 0) -> Path:
        program, noted = tmp_path / "bin/squeue", tmp_path / "words"
        program.parent.mkdir(exist_ok=True)
        lines = "\n".join(jobs)
        program.write_text(f"#!/bin/sh\necho \"$@\" > '{noted}'\nprintf '%s\\n' '{lines}'\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return noted

    return make


def _todo(sweep: Sweep) -> list[tuple[str, ...]]:
    return [point.words for point in select_points(sweep).todo]


def test_what_has_succeeded_is_left_out(earlier: Any) -> None:
    """Failed points are started again, those of which nothing is known too."""
    earlier(_sweep("work.kwargs.lr=1,2,3"), [0, 1, None])
    selection = select_points(_sweep("work.kwargs.lr=1,2,3"))
    assert [point.number for point in selection.todo] == [1, 2]
    assert [point.number for point in selection.succeeded] == [0]
    assert selection.queued == ()


def test_a_point_counts_in_whatever_sweep_it_succeeded(earlier: Any) -> None:
    """A second rerun leaves out what the first has done; more values are new points."""
    earlier(_sweep("work.kwargs.lr=1,2", "run_id=a"), [0, 1])
    earlier(_sweep("work.kwargs.lr=2", "run_id=b"), [0])
    assert _todo(_sweep("work.kwargs.lr=1,2,3")) == [("work.kwargs.lr=3",)]


@pytest.mark.parametrize(
    "words",
    [
        ["work.kwargs.lr=1,2", "resources.mem_gb=8", "nodes=3", "name=other", "snapshot=true"],
        ["work.kwargs.lr=range(1,3)"],
        ["work.kwargs={lr: 1},{lr: 2}"],
    ],
)
def test_resources_do_not_make_another_point(earlier: Any, words: list[str]) -> None:
    """More memory, another way of writing: the same work with the same arguments."""
    earlier(_sweep("work.kwargs.lr=1,2"), [0, 1])
    (todo,) = _todo(_sweep(*words))
    assert "2" in todo[0]


@pytest.mark.parametrize(
    "words",
    [
        ["work.kwargs.lr=1,2", "work.kwargs.x=1"],
        ["work.kwargs.lr=1,2", "work.target=other.py:run"],
        ["work.kwargs.lr=1,2", "env.SEED=1"],
        ["work.kwargs.lr=1,2", "strategy=lite"],
        ["work.kwargs.lr=1,2", "nodes=choice(1)"],
    ],
)
def test_what_is_computed_makes_another_point(earlier: Any, words: list[str]) -> None:
    """Other arguments, work, variables or strategy, or a swept size: not done yet."""
    earlier(_sweep("work.kwargs.lr=1,2"), [0, 0])
    assert len(_todo(_sweep(*words))) == 2


def test_swept_sizes_tell_points_apart(earlier: Any) -> None:
    """Who sweeps the number of nodes wants all of them."""
    earlier(_sweep("nodes=1,2"), [0, 1])
    assert _todo(_sweep("nodes=1,2")) == [("nodes=2",)]


def test_what_waits_or_runs_is_left_out(earlier: Any, squeue: Callable[..., Path]) -> None:
    """A point without a report whose task is in the queue is not started twice."""
    array = SubmittedArray(job_id="47", first=0, numbers=(0, 2))
    split = SubmittedArray(job_id="48", first=1, numbers=(1,))
    sweep = _sweep("work.kwargs.lr=1,2,3")
    earlier(sweep, [None, None, None], (array, split))
    noted = squeue("47_2", "48_0", "12")
    selection = select_points(_sweep("work.kwargs.lr=1,2,3"))
    assert [point.number for point in selection.queued] == [1, 2]
    assert [point.number for point in selection.todo] == [0]
    assert noted.read_text() == f"--noheader --array --user {sweep.user} --format %i\n"


def test_a_point_that_was_requeued_is_left_out(earlier: Any, squeue: Callable[..., Path]) -> None:
    """The bad report of its first attempt is not the last word while its task waits again."""
    earlier(_sweep("work.kwargs.lr=1"), [75], (SubmittedArray(job_id="47", first=0, numbers=(0,)),))
    squeue("47_0")
    assert len(select_points(_sweep("work.kwargs.lr=1")).queued) == 1


def test_a_queue_that_cannot_be_asked_is_an_error(earlier: Any, squeue: Callable[..., Path]) -> None:
    """Nothing is started that may be running."""
    earlier(_sweep("work.kwargs.lr=1"), [None], (SubmittedArray(job_id="47", first=0, numbers=(0,)),))
    squeue(code=1)
    with pytest.raises(SubmissionError, match="it cannot be told which points still wait or run") as caught:
        select_points(_sweep("work.kwargs.lr=1"))
    assert caught.value.found == "squeue does not answer"
    assert caught.value.fix == "try again later; without rerun=failed all points are started"


def test_a_cluster_behind_a_job_id_is_no_part_of_the_task() -> None:
    """Where sbatch names a cluster."""
    assert SubmittedArray(job_id="5;alpha", first=3, numbers=(3, 4)).task_of(4) == "5_1"


def test_the_record_tells_points_and_jobs(earlier: Any, here: Path) -> None:
    """Who looks for a run finds its number by its words."""
    array = SubmittedArray(job_id="47", first=0, numbers=(0, 1))
    earlier(_sweep("work.kwargs.lr=1,2", "run_id=s"), [0, 0], (array,))
    record = json.loads((here / "runs/s/sweep.json").read_text())
    assert [(point["number"], point["words"]) for point in record["points"]] == [
        (0, ["work.kwargs.lr=1"]), (1, ["work.kwargs.lr=2"]),
    ]  # fmt: skip
    assert record["jobs"] == [{"job_id": "47", "first": 0, "numbers": [0, 1]}]
    assert SweepRecord.read(here / "runs/s").jobs == (array,)


def test_earlier_sweeps_are_no_code(here: Path, earlier: Any) -> None:
    """A snapshot of a later run leaves a sweep's folder out."""
    subprocess.run(["git", "init", "-q"], cwd=here, check=True)
    earlier(_sweep("work.kwargs.lr=1,2", "run_id=s"), [0, 0])
    from hpc_multinode.snapshot import find_code  # noqa: PLC0415

    code = find_code(here / "train.py", cwd=here, max_mb=1)
    assert set(code.sizes) == {"train.py", "other.py"}
