"""``-m`` on Slurm: job arrays whose tasks are runs of several nodes, each with its own folder."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import PLAIN_CONFIG, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm
    from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

WORK = """
import json, os, sys

def run(global_rank, world_size, run_dir, lr, code=0):
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_JOB_NUM_NODES")
    told = {"lr": lr, "world": world_size, "run_dir": run_dir, **{name: os.environ[name] for name in names}}
    print(json.dumps(told), flush=True)
    if code and global_rank == 0:
        sys.exit(code)
"""
WORDS = ["-m", f"--config-dir={PLAIN_CONFIG}", "strategy=plain", "work.target=train.py:run"]
POINTS = ["work.kwargs.lr=1,2", "work.kwargs.code=0,3", "nodes=1,2"]

FAILING = (2, 3, 6, 7)


@pytest.fixture(scope="module")
def swept(on_slurm: OnSlurm) -> EndedOnSlurm:
    """Run eight points of two sizes, half of which fail."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "train.py", WORK)
    ended = on_slurm.run(*WORDS, *POINTS, cwd=cwd)
    assert ended.code == 0, ended.err
    wait_for_all(on_slurm, ended)
    return ended


def jobs_of(ended: EndedOnSlurm) -> list[str]:
    """Return the ids of the arrays that a sweep has become."""
    return re.findall(r"^submitted: job (\d+),", ended.out, re.MULTILINE)


def wait_for_all(on_slurm: OnSlurm, ended: EndedOnSlurm, *, timeout_s: float = 120) -> None:
    """Wait until no task of a sweep is in the queue."""
    until = time.monotonic() + timeout_s
    while on_slurm.cluster.run(["squeue", "-h", "-r", "-j", ",".join(jobs_of(ended)), "-o", "%i"]).stdout.strip():
        assert time.monotonic() < until, ended.out
        time.sleep(0.3)


def reports_of(run_dir: Path) -> dict[int, dict[str, Any]]:
    """Return the report of each point of a sweep."""
    return {int(path.parent.name): json.loads(path.read_text()) for path in run_dir.glob("*/report.json")}


def test_each_kind_of_resources_is_one_array(swept: EndedOnSlurm) -> None:
    """Eight points of two sizes are two jobs."""
    assert len(jobs_of(swept)) == 2
    assert swept.out.count("points 0-6:2:") == swept.out.count("points 1-7:2:") == 1


def test_each_point_ends_as_its_work_does(swept: EndedOnSlurm) -> None:
    """Every point has a report of its own, which names its task of the array."""
    one, two = jobs_of(swept)
    reports = reports_of(swept.run_dir)
    assert {number: (report["exit_code"], report["job_id"]) for number, report in reports.items()} == {
        number: (3 if number in FAILING else 0, f"{two if number % 2 else one}_{number}") for number in range(8)
    }


def test_each_rank_runs_its_own_point(swept: EndedOnSlurm) -> None:
    """Arguments, size and folder of every rank are those of the task that it is in."""
    for number in range(8):
        size = 1 + number % 2
        # Where rank 0 fails at once, another rank may be stopped before it says anything.
        ranks = range(1 if number in FAILING else size)
        for log in (swept.run_dir / f"{number}/attempt-0/rank{rank}.log" for rank in ranks):
            assert json.loads(log.read_text().splitlines()[0]) == {
                "lr": 1 + number // 4, "world": size, "run_dir": str(swept.run_dir / str(number)),
                "SLURM_ARRAY_TASK_ID": str(number), "SLURM_JOB_NUM_NODES": str(size),
            }  # fmt: skip


def test_logs_of_agents_lie_with_their_point(swept: EndedOnSlurm) -> None:
    """Named by the array's id, the task and the node."""
    two = jobs_of(swept)[1]
    assert sorted(path.name for path in (swept.run_dir / "7/submitit").iterdir()) == [
        f"{two}_7_0_log.out", f"{two}_7_1_log.out",
    ]  # fmt: skip
    assert len(list((swept.run_dir / "submitit").glob("*_log.out"))) == 8


def test_slurm_has_the_codes_of_the_points(swept: EndedOnSlurm, on_slurm: OnSlurm) -> None:
    """The exit code of a task is that of its run."""
    one = jobs_of(swept)[0]
    assert on_slurm.cluster.job(f"{one}_2")["ExitCode"] == "3:0"
    assert on_slurm.cluster.job(f"{one}_0")["ExitCode"] == "0:0"


def test_rerun_submits_what_has_not_succeeded(swept: EndedOnSlurm, on_slurm: OnSlurm) -> None:
    """Failed points alone are submitted, and no second time while they wait."""
    words = [*WORDS, *POINTS, "rerun=failed", "resources.sbatch.hold=true"]
    again = on_slurm.run(*words, cwd=swept.cwd)
    try:
        assert "left out: points 0-1,4-5 have succeeded\n" in again.out, again.err
        assert ", points 2,6: " in again.out
        assert ", points 3,7: " in again.out
        third = on_slurm.run(*words, cwd=swept.cwd)
        assert third.code == 0, third.err
        assert "left out: points 0-1,4-5 have succeeded, 2-3,6-7 wait or run\nnothing to start\n" in third.out
    finally:
        on_slurm.cluster.run(["scancel", *jobs_of(again)])


def test_parallel_limits_how_many_run_at_a_time(on_slurm: OnSlurm) -> None:
    """The array has the limit."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "train.py", WORK)
    words = ["work.kwargs.lr=1,2,3", "array.parallel=2", "resources.sbatch.hold=true"]
    ended = on_slurm.run(*WORDS, *words, cwd=cwd)
    (job_id,) = jobs_of(ended)
    job = on_slurm.cluster.job(job_id)
    on_slurm.cluster.run(["scancel", job_id])
    assert (job["ArrayTaskId"], job["ArrayTaskThrottle"]) == ("0-2%2", "2")


def test_a_task_that_is_requeued_goes_on_in_its_own_folder(on_slurm: OnSlurm) -> None:
    """Its second attempt is in the run folder of its point, and no other task runs again."""
    cwd = on_slurm.make_folder()
    waits = "\n    import time\n    while not os.path.exists('go'):\n        time.sleep(0.1)\n"
    on_slurm.write(cwd, "train.py", WORK + waits)
    ended = on_slurm.run(*WORDS, "work.kwargs.lr=1,2", "nodes=2", cwd=cwd)
    (job_id,) = jobs_of(ended)
    first = [ended.run_dir / f"{number}/attempt-0/rank1.log" for number in (0, 1)]
    wait_until(lambda: all(log.exists() and log.read_text() for log in first), what="both points run", timeout_s=60)
    on_slurm.cluster.run(["scontrol", "requeue", f"{job_id}_0"], check=True)
    second = ended.run_dir / "0/attempt-1/rank1.log"
    wait_until(lambda: second.exists() and second.read_text(), what="the second attempt runs", timeout_s=60)
    on_slurm.write(cwd, "go", "")
    wait_for_all(on_slurm, ended)
    assert {number: report["exit_code"] for number, report in reports_of(ended.run_dir).items()} == {0: 0, 1: 0}
    assert not (ended.run_dir / "1/attempt-1").exists()


@pytest.fixture
def small_arrays(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """Let the site take arrays of two tasks."""
    with cluster.configured("MaxArraySize=2"):
        yield cluster


def test_a_sweep_beyond_the_sites_array_size_is_split(on_slurm: OnSlurm, small_arrays: SlurmCluster) -> None:
    """Each array is one that Slurm takes, and every point runs in its own folder."""
    assert small_arrays
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "train.py", WORK)
    ended = on_slurm.run(*WORDS, "work.kwargs.lr=range(0,5)", cwd=cwd)
    assert len(jobs_of(ended)) == 3, ended.out + ended.err
    wait_for_all(on_slurm, ended)
    logs = {number: ended.run_dir / f"{number}/attempt-0/rank0.log" for number in range(5)}
    assert {number: json.loads(log.read_text())["lr"] for number, log in logs.items()} == {n: n for n in range(5)}
    assert [report["job_id"].partition("_")[2] for _, report in sorted(reports_of(ended.run_dir).items())] == [
        "0", "1", "0", "1", "0",
    ]  # fmt: skip


def test_two_hundred_points_are_submitted_in_seconds(on_slurm: OnSlurm) -> None:
    """A sweep is one call of sbatch, and its points do not cost a start of Python each."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "train.py", WORK)
    ended = on_slurm.run(*WORDS, "work.kwargs.lr=range(0,200)", "resources.sbatch.hold=true", cwd=cwd)
    (job_id,) = jobs_of(ended)
    on_slurm.cluster.run(["scancel", job_id])
    assert len(list(ended.run_dir.glob("*/plan.json"))) == 200
    assert ended.seconds < 20  # under 2 s on an idle machine
