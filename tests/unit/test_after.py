"""What ``after`` means: the dependency that sbatch gets, and which runs are meant."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.after import Earlier, find_earlier, make_dependency, wait_after
from hpc_multinode.config import Config, Mode
from hpc_multinode.errors import ConfigError
from hpc_multinode.planning import make_plan
from hpc_multinode.registry import register
from hpc_multinode.report import Report
from hpc_multinode.runs import RunFolder
from hpc_multinode.sweep_record import RecordedPoint, SubmittedArray, SweepRecord
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan

KNOWN = {
    "waits": Earlier(job_ids=("41",)),
    "sweep": Earlier(job_ids=("42", "43")),
    "done": Earlier(job_ids=("44",), has_succeeded=True),
    "bad": Earlier(job_ids=("45",), has_succeeded=False),
}


def _find(run: str) -> Earlier:
    return KNOWN.get(run) or Earlier(job_ids=(run,))


# -- the dependency --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "dependency"),
    [
        ("4711", "afterok:4711"),
        ("4711_3", "afterok:4711_3"),
        ("waits", "afterok:41"),
        ("afterok:waits", "afterok:41"),
        ("afterany:waits", "afterany:41"),
        ("afternotok:waits", "afternotok:41"),
        ("aftercorr:4711", "aftercorr:4711"),
        ("sweep", "afterok:42:43"),
        ("afterany:waits, 4711", "afterany:41:4711"),
        ("afterok:1:2_3", "afterok:1:2_3"),
        ("waits,waits", "afterok:41"),
        ("chain", "singleton"),
        ("done", None),
        ("done,waits", "afterok:41"),
        ("afterany:bad", None),
        ("afterany:bad,waits", "afterany:41"),
        ("afternotok:bad", None),
        ("/runs/a:b", "afterok:/runs/a:b"),
    ],
)
def test_after_becomes_a_dependency(after: str, dependency: str | None) -> None:
    """By kind and jobs; what has ended as it should is waited for no more."""
    assert make_dependency(after, find=_find) == dependency


@pytest.mark.parametrize(
    ("after", "ended"), [("bad", "failed"), ("waits,bad", "failed"), ("aftercorr:bad", "failed"),
                         ("afternotok:done", "succeeded")]
)  # fmt: skip
def test_waiting_for_ever_is_refused(after: str, ended: str) -> None:
    """A run that has ended the other way will not end once more."""
    with pytest.raises(ConfigError) as caught:
        make_dependency(after, find=_find)
    assert caught.value.what == f"this would wait for ever: the earlier run has {ended}"
    assert caught.value.found == f"after={after}"
    assert caught.value.fix == "leave after out, or after=afterany:RUN, which does not ask how it ended"


@pytest.mark.parametrize("after", ["", "afterok:", "waits,", "afterwhat:waits", "singleton:x", "afterok: ,1"])
def test_after_without_a_run_is_refused(after: str) -> None:
    """The error lists the kinds."""
    with pytest.raises(ConfigError, match="after does not say what to wait for") as caught:
        make_dependency(after, find=_find)
    assert caught.value.found == f"after={after}"
    assert "afterok, afterany, afternotok, aftercorr; or after=chain" in caught.value.fix


# -- the plan --------------------------------------------------------------------------------------------------------


def _plan(root: Path, run_id: str = "r", *, mode: Mode = Mode.slurm, **sbatch: str) -> LaunchPlan:
    config = Config(run_id=run_id)
    config.resources.sbatch = dict(sbatch)
    return make_plan(config, facts=make_facts(cwd=str(root), mode=mode), target=None)


def test_the_plan_gets_the_option(tmp_path: Path) -> None:
    """As one more option of sbatch."""
    plan = _plan(tmp_path)
    assert wait_after(plan, "chain").sbatch == {**plan.sbatch, "dependency": "singleton"}


def test_a_second_dependency_is_refused(tmp_path: Path) -> None:
    """Both keys are named."""
    with pytest.raises(ConfigError, match="--dependency is given twice") as caught:
        wait_after(_plan(tmp_path, dependency="afterok:1"), "chain")
    assert caught.value.found == "after=chain, resources.sbatch.dependency=afterok:1"


def test_only_jobs_wait(tmp_path: Path) -> None:
    """On this machine nothing stands in a queue."""
    with pytest.raises(ConfigError, match="after is for jobs that wait in Slurm's queue") as caught:
        wait_after(_plan(tmp_path, mode=Mode.local), "4711")
    assert caught.value.found == "after=4711, cluster.mode=local"
    assert caught.value.fix == "cluster=slurm, or start the one when the other has ended"


# -- which run is meant ----------------------------------------------------------------------------------------------


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a function that puts a squeue on PATH, which lists jobs by id; the registry is the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(*jobs: str) -> None:
        program = tmp_path / "bin/squeue"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            "#!/usr/bin/env python3\nimport sys\n"
            f"jobs = {jobs!r}\n"
            "if '--jobs' in sys.argv:\n"
            "    wanted = sys.argv[sys.argv.index('--jobs') + 1]\n"
            "    print('RUNNING' if wanted in jobs or any(job.split('_')[0] == wanted for job in jobs) else '')\n"
            "else:\n"
            "    print('\\n'.join(jobs))\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    make()
    return make


def _leave(root: Path, run_id: str, code: int | None = None, job_id: str | None = None) -> Path:
    plan = _plan(root, run_id)
    folder = RunFolder.create(plan, config_text="")
    register(plan, job_id=job_id)
    if code is not None:
        _report(folder.path, code, job_id)
    return folder.path


def _report(run_dir: Path, code: int, job_id: str | None) -> None:
    report = Report(
        run=run_dir.name, run_dir=str(run_dir), job_id=job_id, state="FAILED" if code else "COMPLETED", exit_code=code,
        failure_class=None, world_size=1, num_nodes=1, root_cause=None,
    )  # fmt: skip
    (run_dir / "report.json").write_text(report.to_json())


def _leave_sweep(root: Path, codes: list[int | None]) -> Path:
    folder = RunFolder.create_empty(root / "runs/sweep-1", is_private=True)
    numbers = tuple(range(len(codes)))
    points = tuple(RecordedPoint(number=number, words=(), identity=str(number)) for number in numbers)
    jobs = (SubmittedArray(job_id="50;alps", first=0, numbers=numbers),)
    SweepRecord(points=points, jobs=jobs).write(folder)
    for number, code in enumerate(codes):
        plan = dataclasses.replace(_plan(root, f"sweep-1-{number}"), run_dir=f"{folder.path}/{number}")
        RunFolder.create(plan, config_text="")
        register(plan, job_id=f"50_{number}")
        if code is not None:
            _report(folder.path / str(number), code, f"50_{number}")
    return folder.path


def _earlier(root: Path, run: str) -> Earlier:
    return find_earlier(run, run_root=root / "runs", user="ada")


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("name", ["first-run", "first", "{root}/runs/first-run"])
def test_a_run_is_found_by_folder_id_or_beginning(tmp_path: Path, name: str) -> None:
    """And its report tells how it ended."""
    _leave(tmp_path, "first-run", 0)
    _leave(tmp_path, "second", 3)
    assert _earlier(tmp_path, name.format(root=tmp_path)).has_succeeded is True
    assert _earlier(tmp_path, "second").has_succeeded is False


def test_the_job_of_a_run_that_waits_is_found(tmp_path: Path, queue: Callable[..., None]) -> None:
    """The registry knows it."""
    _leave(tmp_path, "first", job_id="8")
    queue("7", "8")
    assert _earlier(tmp_path, "first") == Earlier(job_ids=("8",))


def test_a_job_that_waits_again_has_not_ended(tmp_path: Path, queue: Callable[..., None]) -> None:
    """The bad report of an attempt before a requeue is not the last word, of a run or of a point."""
    _leave(tmp_path, "first", 75, "8")
    _leave_sweep(tmp_path, [0, 75])
    queue("8", "50_1")
    assert _earlier(tmp_path, "first") == Earlier(job_ids=("8",))
    assert _earlier(tmp_path, "sweep-1") == Earlier(job_ids=("50",))
    assert _earlier(tmp_path, "sweep-1-1") == Earlier(job_ids=("50_1",))


def test_an_id_wins_over_the_beginning_of_another(tmp_path: Path, queue: Callable[..., None]) -> None:
    """``a`` is the run a, also where there is a run ab."""
    for run_id, job_id in (("a", "1"), ("ab", "2")):
        _leave(tmp_path, run_id, job_id=job_id)
    queue("1", "2")
    assert _earlier(tmp_path, "a").job_ids == ("1",)


@pytest.mark.usefixtures("queue")
def test_a_beginning_of_several_runs_is_refused(tmp_path: Path) -> None:
    """They are listed."""
    _leave(tmp_path, "train-1", 0)
    _leave(tmp_path, "train-2", 0)
    with pytest.raises(ConfigError, match="several runs are meant by 'train'") as caught:
        _earlier(tmp_path, "train")
    assert "train-1" in caught.value.found


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("run", ["nothing", "*", "../runs", "a/b"])
def test_a_run_that_nobody_knows_is_refused(tmp_path: Path, run: str) -> None:
    """By the words of all verbs that take a run."""
    _leave(tmp_path, "train-1", 0)
    with pytest.raises(ConfigError, match="no run is known by"):
        _earlier(tmp_path, run)


@pytest.mark.usefixtures("queue")
def test_a_run_of_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    """Neither report nor job: it would be waited for in vain, or not at all."""
    _leave(tmp_path, "lost", job_id="3")
    with pytest.raises(ConfigError, match="there is nothing to wait for") as caught:
        _earlier(tmp_path, "lost")
    assert caught.value.found == "after=lost"


def test_a_job_in_the_queue_is_known_by_its_id(tmp_path: Path, queue: Callable[..., None]) -> None:
    """Be it ours or not."""
    queue("4711", "4712_3")
    assert _earlier(tmp_path, "4711") == Earlier(job_ids=("4711",))
    assert _earlier(tmp_path, "4712_3") == Earlier(job_ids=("4712_3",))


@pytest.mark.usefixtures("queue")
def test_a_job_that_slurm_has_forgotten_is_known_by_its_report(tmp_path: Path) -> None:
    """Slurm would take it for well ended whatever it was."""
    _leave(tmp_path, "a", 0, "4711")
    _leave(tmp_path, "b", 1, "4712")
    assert [_earlier(tmp_path, job).has_succeeded for job in ("4711", "4712")] == [True, False]


@pytest.mark.usefixtures("queue")
def test_a_job_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """A number mistyped does not start the run at once."""
    with pytest.raises(ConfigError, match="no job of this id waits or runs") as caught:
        _earlier(tmp_path, "999")
    assert caught.value.found.startswith("after=999: squeue does not list it")
    assert caught.value.fix == "squeue --me shows those that do; leave after out if it has ended well"


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    ("codes", "end"), [([0, 0], True), ([0, None], None), ([0, 3], False), ([None, 3], False)]
)  # fmt: skip
def test_a_sweep_is_all_its_points(tmp_path: Path, codes: list[int | None], end: bool | None) -> None:  # noqa: FBT001
    """Well ended when all are, badly when one is; its jobs are all its arrays."""
    _leave_sweep(tmp_path, codes)
    assert _earlier(tmp_path, "sweep-1") == Earlier(job_ids=("50",), has_succeeded=end)
    if None not in codes:
        assert _earlier(tmp_path, "50").has_succeeded == end


def test_a_point_of_a_sweep_is_one_task(tmp_path: Path, queue: Callable[..., None]) -> None:
    """Named by its id, or its folder below the sweep's."""
    queue("50_1")
    _leave_sweep(tmp_path, [0, None])
    assert _earlier(tmp_path, "sweep-1-1") == Earlier(job_ids=("50_1",))
    assert _earlier(tmp_path, "sweep-1-0").has_succeeded is True
    assert _earlier(tmp_path, "50_0").has_succeeded is True
    assert _earlier(tmp_path, str(tmp_path / "runs/sweep-1/1")) == Earlier(job_ids=("50_1",))
