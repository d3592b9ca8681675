"""The batch script's part in a requeue: the script is run by bash, with Slurm's commands as small programs."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.config import Config, Mode, RequeueMethod
from hpc_multinode.planning import make_plan
from hpc_multinode.submission.slurm import render_slurm
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from pathlib import Path

_PATH = os.environ["PATH"]
# srun leaves the request as agents do, unless it is started to tell of a refusal.
_SRUN = """#!/bin/bash
case "$*" in
*--refused) echo refused >> "$LOG"; exit 99 ;;
*) [ -z "$WISH" ] || touch "$WISH"; exit 75 ;;
esac
"""
_SBATCH = """#!/bin/bash
{ printf '%s|' "$@"; echo; pwd; env; } >> "$LOG"
[ -z "$SBATCH_SAYS" ] || { echo "$SBATCH_SAYS" >&2; exit 1; }
echo "Submitted batch job 12"
"""


class Job:
    """A batch script in a folder, and a machine on which bash can run it."""

    def __init__(self, tmp_path: Path) -> None:
        self.cwd = tmp_path / "it's $x 50%"
        self.run_dir = self.cwd / "runs" / "one"
        self.run_dir.mkdir(parents=True)
        self.log = tmp_path / "log"
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        for name, text in {"srun": _SRUN, "sbatch": _SBATCH, "sleep": "#!/bin/sh\n"}.items():
            self.add(name, text)

    def add(self, name: str, text: str) -> None:
        """Put a program on PATH."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, *, wishes: bool = True, job: str = "4711", config: Config | None = None, **env: str) -> int:
        """Run the script of a run and return its exit code."""
        config = config or Config()
        config.requeue.method = RequeueMethod.resubmit
        config.run_id = "one"
        facts = make_facts(cwd=str(self.cwd), run_root="runs", mode=Mode.slurm, python="/opt/python")
        script = self.cwd / "slurm_script"
        script.write_text(render_slurm(make_plan(config, facts=facts, target=None)))
        variables = {
            "PATH": f"{self.bin}:{_PATH}", "LOG": str(self.log), "WISH": "", "SLURM_JOB_ID": "4711", "KEPT": "a\n'b",
            "SLURM_SUBMIT_DIR": str(self.cwd), "SLURM_CONF": "/etc/slurm.conf", "SLURM_MEM_PER_CPU": "100",
        }  # fmt: skip
        if wishes:
            variables["WISH"] = str(self.run_dir / f"requeue-{job}")
        return subprocess.run(["bash", str(script)], env={**variables, **env}, cwd=self.cwd, check=False).returncode

    def told(self) -> str:
        """What the programs were told."""
        return self.log.read_text() if self.log.exists() else ""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Give a job."""
    return Job(tmp_path)


def test_the_new_job_starts_as_the_first_one_did(job: Job) -> None:
    """Sbatch gets the same script, in the same folder, without what this job and its set-up have added."""
    config = Config()
    config.cluster.setup = ["cd /", "export ADDED=1", "unset KEPT"]
    assert job.run(config=config) == 75
    (words, folder, *variables) = job.told().splitlines()
    assert (words, folder) == (f"{job.run_dir}/requeue-4711.sh|", str(job.cwd))
    assert not [line for line in variables if line.startswith(("SLURM_JOB", "SLURM_MEM", "ADDED"))]
    assert {"SLURM_CONF=/etc/slurm.conf", "KEPT=a", "'b"} <= set(variables)
    assert (job.run_dir / "requeue-4711.sh").read_text() == (job.cwd / "slurm_script").read_text()
    assert (job.run_dir / "requeue-4711.sh").stat().st_mode & 0o777 == 0o600


def test_nothing_is_handed_in_that_nobody_asked_for(job: Job) -> None:
    """A run that has ended is no new job."""
    assert job.run(wishes=False) == 75
    assert job.told() == ""


def test_it_is_handed_in_once(job: Job) -> None:
    """A job that Slurm starts again, although its run goes on in another job, ends at once."""
    job.run()
    assert job.run() == 0
    assert job.told().count("SLURM_CONF") == 1


def test_a_request_of_an_earlier_start_counts_no_more(job: Job) -> None:
    """A script that was killed before it could do as asked was requeued by Slurm itself."""
    (job.run_dir / "requeue-4711").touch()
    assert job.run(wishes=False) == 75
    assert job.told() == ""


def test_a_task_goes_on_under_its_number(job: Job) -> None:
    """Of an array only this task is handed in again."""
    env = {"SLURM_JOB_ID": "4713", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "2"}
    assert job.run(job="4711_2", **env) == 75
    assert job.told().splitlines()[0] == f"--array=2|{job.run_dir}/requeue-4711_2.sh|"


def test_a_refusal_is_told_to_the_report(job: Job) -> None:
    """Slurm's words are kept for the agent that writes them down, and its exit code is the job's."""
    job.add("squeue", "#!/bin/sh\n")
    assert job.run(SBATCH_SAYS="sbatch: error: no") == 99
    assert (job.run_dir / "requeue-4711.err").read_text() == "sbatch: error: no\n"
    assert job.told().splitlines()[-1] == "refused"


def test_a_job_whose_answer_was_lost_is_found(job: Job) -> None:
    """Sbatch that got no answer is not asked a second time: the queue shows the job by its script."""
    job.add("squeue", """#!/bin/sh\necho '13 /other.sh'\necho "12 $WISH.sh"\n""")
    assert job.run(SBATCH_SAYS="Socket timed out") == 75
    assert (job.run_dir / "requeue-4711.out").read_text() == "12\n"
    assert job.told().count("SLURM_CONF") == 1


def test_a_job_that_is_waited_for_is_not_waited_for_again(job: Job) -> None:
    """Slurm forgets jobs, and refuses to wait for those."""
    config = Config()
    config.resources.sbatch = {"dependency": "afterok:5", "comment": "dependency"}
    job.run(config=config)
    text = (job.run_dir / "requeue-4711.sh").read_text()
    assert "--dependency=" not in text.replace("'/^#SBATCH --dependency=/d'", "")
    assert "--comment=dependency" in text
