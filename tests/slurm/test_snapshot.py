"""``snapshot=true`` on Slurm: what is edited while a job waits, or before it is requeued, does not count."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.conftest import OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

SNAPSHOT = [f"--config-dir={PLAIN_CONFIG}", "strategy=plain", "work.target=train.py:run", "snapshot=true"]
WORK = """
import json, os, time
import helper

def run(global_rank, run_dir, attempt):
    place = os.path.relpath(os.getcwd(), run_dir)
    print(json.dumps({"word": helper.WORD, "place": place, "attempt": attempt}), flush=True)
    while not os.path.exists("go"):
        time.sleep(0.1)
"""


def test_a_job_that_waits_or_is_requeued_runs_the_code_of_its_submission(on_slurm: OnSlurm) -> None:
    """Edited before it starts, and requeued by Slurm, every rank of every attempt runs what was submitted."""
    cwd = _make_repository(on_slurm)
    ended = on_slurm.run(*SNAPSHOT, "nodes=2", "resources.sbatch.hold=true", cwd=cwd)
    assert ended.code == 0, ended.err
    assert f"\ncode: 3 files, 0.0 MB of {cwd}, " in ended.out  # Debian 13's root folder has no git: the same files
    (cwd / "helper.py").write_text("WORD = 'edited'\n")
    on_slurm.cluster.run(["scontrol", "release", ended.job_id], check=True)
    for attempt in (0, 1):
        logs = [ended.run_dir / f"attempt-{attempt}/rank{rank}.log" for rank in (0, 1)]
        wait_until(lambda logs=logs: all(map(_has_line, logs)), what=f"attempt {attempt} has begun", timeout_s=60)
        told = [json.loads(log.read_text()) for log in logs]
        assert told == [{"word": "submitted", "place": "code", "attempt": attempt}] * 2
        if attempt == 0:
            on_slurm.cluster.run(["scontrol", "requeue", ended.job_id], check=True)
            on_slurm.cluster.run(["scontrol", "release", ended.job_id])
    (ended.run_dir / "code/go").touch()
    assert on_slurm.wait_for_end(ended.job_id)["JobState"] == "COMPLETED", ended.read_logs()


def test_a_step_started_by_hand_runs_the_copy(on_slurm: OnSlurm) -> None:
    """Node 0 copies before the others begin."""
    cwd = _make_repository(on_slurm)
    on_slurm.write(cwd, "go", "")
    ended = on_slurm.run(*SNAPSHOT, before=["srun", "-N2", "--ntasks-per-node=1"], cwd=cwd)
    assert ended.code == 0, ended.out + ended.err
    assert {rank: told["place"] for rank, told in ended.ranks().items()} == {0: "code", 1: "code"}
    assert "\ncode: " in ended.out


def _make_repository(on_slurm: OnSlurm) -> Path:
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "train.py", WORK)
    on_slurm.write(cwd, "helper.py", "WORD = 'submitted'\n")
    subprocess.run(["git", "init", "-q"], cwd=cwd, check=True)
    subprocess.run(["chown", "-R", str(on_slurm.cluster.settings.uid), str(cwd)], check=True)
    return cwd


def _has_line(log: Path) -> bool:
    return log.exists() and log.read_text().endswith("\n")
