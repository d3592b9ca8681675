"""Which job a run is by now: read from what sbatch answered to the batch script of the job before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.layout import REPORT
from hpc_multinode.life.files import read_files
from hpc_multinode.life.finding import find_run
from hpc_multinode.life.slurm_word import SlurmWord
from hpc_multinode.life.view import judge
from hpc_multinode.registry import read_entries, read_entry, register
from hpc_multinode.resubmission import find_successor, list_job_ids
from tests.unit.life.runs import at, make_entry, make_plan, make_report

if TYPE_CHECKING:
    from pathlib import Path


def answer(run_dir: Path, job_id: str, said: str) -> None:
    """Leave what sbatch answered when a job's run went on."""
    (run_dir / f"requeue-{job_id}").touch()
    (run_dir / f"requeue-{job_id}.out").write_text(said)


@pytest.mark.parametrize(
    ("job_id", "said", "successor"),
    [
        ("4711", "Submitted batch job 4712\n", "4712"),
        ("4711", "quota: max job 500\nSubmitted batch job 4712 on cluster alpha\n", "4712"),
        ("4711", "4712;alpha\n", "4712"),
        ("4711_3", "Submitted batch job 4720\n", "4720_3"),
        ("4711", "", None),
        ("4711", "sbatch: error: no\n", None),
    ],
)
def test_the_next_job_is_what_sbatch_said(tmp_path: Path, job_id: str, said: str, successor: str | None) -> None:
    """Banners, wrappers, clusters and arrays are read as they are at the first submission."""
    answer(tmp_path, job_id, said)
    found = find_successor(tmp_path, job_id)
    assert (found.job_id if found is not None else None) == successor


def test_all_jobs_of_a_run_are_followed(tmp_path: Path) -> None:
    """From any of them to the newest; a broken note that leads in a circle ends there."""
    answer(tmp_path, "1", "Submitted batch job 2")
    answer(tmp_path, "2", "Submitted batch job 3")
    assert list_job_ids(tmp_path, "1") == ("1", "2", "3")
    answer(tmp_path, "3", "Submitted batch job 1")
    assert list_job_ids(tmp_path, "1") == ("1", "2", "3")


def test_the_registry_knows_the_newest_job(tmp_path: Path) -> None:
    """A run is found by any of its jobs, and is the last one."""
    run_dir = tmp_path / "runs" / "one"
    register(replace(make_plan(run_dir), mode="slurm"), job_id="4711", cluster="big")
    answer(run_dir, "4711", "Submitted batch job 4712")
    (entry,) = read_entries()
    assert (entry.job_id, entry.job_ids, entry.slurm_id) == ("4712", ("4711", "4712"), "4712")
    assert entry == read_entry(run_dir) == find_run("4711") == find_run("4712")
    assert entry.queued_since.timestamp() == pytest.approx((run_dir / "requeue-4711.out").stat().st_mtime, abs=1e-3)


@pytest.mark.parametrize(
    ("requested", "now", "is_over"), [(True, 130, False), (True, 181, True), (False, 130, True)]
)  # fmt: skip
def test_a_new_job_may_show_late(tmp_path: Path, requested: bool, now: float, is_over: bool) -> None:  # noqa: FBT001
    """For a minute a run that was to go on in a new job is not over, although its old job is."""
    report = make_report("REQUEUED", 75, ended_by="requeue")
    (tmp_path / REPORT).write_text(report.to_json())
    (tmp_path / "attempt-0").mkdir()
    if requested:
        answer(tmp_path, "4711", "")
    word = SlurmWord(taken=at(now), is_gone=True)
    view = judge(make_entry(tmp_path), read_files(tmp_path), word, is_alive=None, now=at(now))
    assert view.is_over is is_over
    if requested:  # but where it is known, it is that job's end that counts
        answer(tmp_path, "4711", "Submitted batch job 4712\n")
        assert judge(
            make_entry(tmp_path, job_id="4712"), read_files(tmp_path), word, is_alive=None, now=at(now)
        ).is_over
