"""``after=`` on Slurm: a job that waits for another one, for its end, for a sweep, or in a chain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

WORK = """
import sys, time

def run(code=0, word=None):
    print(time.time())
    sys.exit(code)
"""
WORDS = [f"--config-dir={PLAIN_CONFIG}", "strategy=plain", "work.target=train.py:run"]


@pytest.fixture
def here(on_slurm: OnSlurm) -> Iterator[Path]:
    """Stand in a folder with a work, and cancel what is left in the end."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "train.py", WORK)
    yield cwd
    on_slurm.cluster.run(["scancel", "-u", "hpcuser"])


def submit(on_slurm: OnSlurm, cwd: Path, *words: str) -> EndedOnSlurm:
    """Submit a run of the folder's work."""
    ended = on_slurm.run(*WORDS, *words, cwd=cwd)
    assert ended.code == 0, ended.err
    return ended


def began(cwd: Path, run_id: str) -> float:
    """Return when a run's work began."""
    return float((cwd / f"runs/{run_id}/attempt-0/rank0.log").read_text().split()[0])


def dependency_of(on_slurm: OnSlurm, job_id: str) -> str:
    """Return what Slurm says that a job waits for."""
    return on_slurm.cluster.job(job_id)["Dependency"]


def test_runs_follow_one_another(on_slurm: OnSlurm, here: Path) -> None:
    """Each begins when the one before it, which waits itself, has succeeded: by id, by folder, by job id."""
    first = submit(on_slurm, here, "run_id=first", "resources.sbatch.hold=true")
    second = submit(on_slurm, here, "run_id=second", "after=first")
    third = submit(on_slurm, here, "run_id=third", "after=runs/second")
    fourth = submit(on_slurm, here, "run_id=fourth", f"after={third.job_id}")
    assert dependency_of(on_slurm, second.job_id) == f"afterok:{first.job_id}(unfulfilled)"
    assert dependency_of(on_slurm, third.job_id) == f"afterok:{second.job_id}(unfulfilled)"
    on_slurm.cluster.run(["scontrol", "release", first.job_id], check=True)
    assert on_slurm.wait_for_end(fourth.job_id)["JobState"] == "COMPLETED"
    times = [began(here, run_id) for run_id in ("first", "second", "third", "fourth")]
    assert times == sorted(times)


def test_afterok_and_afterany_part_at_a_failure(on_slurm: OnSlurm, here: Path) -> None:
    """Behind a run that fails one waits in vain, the other begins."""
    failing = submit(on_slurm, here, "run_id=failing", "work.kwargs.code=3", "resources.sbatch.hold=true")
    never = submit(on_slurm, here, "run_id=never", "after=failing")
    anyway = submit(on_slurm, here, "run_id=anyway", "after=afterany:failing")
    on_slurm.cluster.run(["scontrol", "release", failing.job_id], check=True)
    assert on_slurm.wait_for_end(anyway.job_id)["JobState"] == "COMPLETED"
    assert on_slurm.cluster.job(never.job_id)["Reason"] == "DependencyNeverSatisfied"
    refused = on_slurm.run(*WORDS, "run_id=late", "after=failing", cwd=here)
    assert (refused.code, (here / "runs/late").exists()) == (2, False)
    assert refused.err.startswith("error: this would wait for ever: the earlier run has failed\n")


def test_a_run_waits_for_a_whole_sweep(on_slurm: OnSlurm, here: Path) -> None:
    """All its arrays and all their tasks; what has ended well is waited for no more."""
    words = ["-m", "run_id=sweep", "work.kwargs.word=a,b", "nodes=1,2", "resources.sbatch.hold=true"]
    jobs = re.findall(r"^submitted: job (\d+),", submit(on_slurm, here, *words).out, re.MULTILINE)
    last = submit(on_slurm, here, "run_id=last", "after=sweep")
    assert dependency_of(on_slurm, last.job_id) == ",".join(f"afterok:{job}_*(unfulfilled)" for job in jobs)
    on_slurm.cluster.run(["scontrol", "release", *jobs], check=True)
    assert on_slurm.wait_for_end(last.job_id)["JobState"] == "COMPLETED"
    assert began(here, "last") > max(began(here, f"sweep/{number}") for number in range(4))
    later = submit(on_slurm, here, "run_id=later", "after=sweep", "resources.sbatch.hold=true")
    assert dependency_of(on_slurm, later.job_id) == "(null)"


def test_a_chain_is_one_run_after_the_other(on_slurm: OnSlurm, here: Path) -> None:
    """The same words again and again wait for all before them."""
    runs = [submit(on_slurm, here, f"run_id=link{number}", "name=chain", "after=chain") for number in range(3)]
    assert on_slurm.wait_for_end(runs[-1].job_id)["JobState"] == "COMPLETED"
    times = [began(here, f"link{number}") for number in range(3)]
    assert times == sorted(times)


def test_a_mistyped_job_id_is_refused(on_slurm: OnSlurm, here: Path) -> None:
    """Slurm would begin at once."""
    refused = on_slurm.run(*WORDS, "after=987654", cwd=here)
    assert (refused.code, refused.run_dirs) == (2, [])
    assert refused.err.startswith("error: no job of this id waits or runs\n")
