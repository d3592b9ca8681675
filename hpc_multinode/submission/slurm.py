"""A job on Slurm: submitit writes the sbatch text and submits it.

The one place that uses names of submitit which are not public; ``tests/unit/submission`` fails when they move.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import time
from typing import TYPE_CHECKING, Any

import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError

from hpc_multinode.errors import SubmissionError
from hpc_multinode.runs import REPORT
from hpc_multinode.slurm.commands import cancel_job, is_in_queue
from hpc_multinode.slurm.leaking import is_leaking
from hpc_multinode.submission.controller import Controller
from hpc_multinode.submission.shell import (
    make_agent_command,
    make_log_options,
    make_setup,
    make_srun_options,
    make_teardown,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

# How often a site's Slurm is asked for one job that somebody waits for, in seconds.
_ASK_EVERY_S = 5.0
_SUBMITTED = re.compile(r"^Submitted batch job (\d+)\b", re.MULTILINE)
_PARSABLE = re.compile(r"^(\d+)(?:;\S+)?$", re.MULTILINE)


class _Executor(submitit.SlurmExecutor):
    """submitit's executor with our agent as its command, and the sbatch text as asked for."""

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__(folder=f"{plan.run_dir}/submitit", python=plan.python)
        self._plan = plan
        self.update_parameters(**_make_parameters(plan))

    @classmethod
    def affinity(cls) -> int:
        """Let a text be rendered where there is no Slurm."""
        return 1

    @property
    def agent_command(self) -> str:
        # Our own srun line: submitit's cannot bear a % in a folder's name.
        srun = shlex.join(["srun", *make_log_options(), *make_srun_options(self._plan)])
        return f"{srun} {make_agent_command(self._plan)}"

    def render(self) -> str:
        return self._make_submission_file_text(self.agent_command, "")

    def submit_text(self) -> str:
        job: submitit.Job[Any] = self._submit_command(self.agent_command)
        return str(job.job_id)

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        lines = super()._make_submission_file_text(command, uid).splitlines()
        # What submitit always writes and nobody here has asked for: a signal 90 s before the end, its own variable.
        unasked = ["export SUBMITIT_EXECUTOR=", *(["#SBATCH --signal="] * ("signal" not in self._plan.sbatch))]
        return "\n".join(line for line in lines if not line.startswith(tuple(unasked))) + "\n"

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        unset = [word for name in os.environ if _is_outer(name) for word in ("-u", name)]
        return ["env", *unset, *super()._make_submission_command(submission_file_path)]

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        text = string.decode() if isinstance(string, bytes) else string
        found = _SUBMITTED.findall(text) or _PARSABLE.findall(text)
        if not found:
            raise FailedSubmissionError(f"sbatch names no job id; the job MAY be in the queue. It said: {text!r}")
        return str(found[-1])


def render_slurm(plan: LaunchPlan) -> str:
    """Return the sbatch text of a plan, without asking Slurm or writing anything."""
    return _Executor(plan).render()


def submit_slurm(plan: LaunchPlan, folder: RunFolder) -> str:
    """Submit a plan and return its job id.

    Raises:
        SubmissionError: sbatch refuses; the run folder is gone then.
    """
    folder.make(folder.path / "submitit")
    executor = _Executor(plan)
    folder.write("submission.sh", executor.render().encode())
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what is in the error as well
            return executor.submit_text()
    except FailedSubmissionError as error:
        raise SubmissionError(
            what="sbatch gave an answer that is not understood", found=str(error), fix="look with squeue --me"
        ) from None
    except FailedJobError as error:
        shutil.rmtree(folder.path)
        words = [line.strip() for line in str(error).splitlines() if line.strip().startswith("sbatch:")]
        raise SubmissionError(
            what="sbatch refuses the job",
            found="\n".join(words) or str(error),
            fix="python -m hpc_multinode render shows what was sent; cluster=local runs on this machine",
        ) from None


def make_job_controller(job_id: str, folder: RunFolder) -> Controller:
    """Return what tells whether a job is over, and cancels it.

    Slurm is asked rarely: the report in the run folder says first that a run is over.
    """
    asked_at, is_there = time.monotonic(), True

    def is_running() -> bool:
        nonlocal asked_at, is_there
        if (folder.path / REPORT).exists():
            return False
        if is_there and time.monotonic() - asked_at >= _ASK_EVERY_S:
            is_there = is_in_queue(job_id)
            asked_at = time.monotonic()
        return is_there

    return Controller(is_running=is_running, ask_to_stop=lambda: cancel_job(job_id))


def _make_parameters(plan: LaunchPlan) -> dict[str, Any]:
    options = dict(plan.sbatch)
    return {
        "job_name": options.pop("job-name"),
        "nodes": options.pop("nodes"),
        "ntasks_per_node": options.pop("ntasks-per-node"),
        # None: no line, where submitit would by itself write five minutes and a key of its own.
        "time": None,
        "wckey": None,
        "stderr_to_stdout": True,
        "setup": make_setup(plan.setup) or None,
        "teardown": ["code=$?", *make_teardown(plan.teardown), "exit $code"] if plan.teardown else None,
        "use_srun": False,
        # In the name of a log sbatch replaces %j and its like; a folder's own % is written twice.
        "additional_parameters": {**options, "output": f"{plan.run_dir.replace('%', '%%')}/submitit/%j_0_log.out"},
    }


def _is_outer(name: str) -> bool:
    return is_leaking(name) and not name.startswith("SBATCH_")
