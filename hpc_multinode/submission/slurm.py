"""A job on Slurm: submitit writes the sbatch text, sbatch gets exactly that.

The one place that uses names of submitit which are not public; ``tests/unit/submission`` fails when they move. Its own
way of submitting is not taken: it takes any "job 12" of a banner for the id, and submits again after a time-out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import submitit

from hpc_multinode.errors import SubmissionError
from hpc_multinode.runs import SCRIPT
from hpc_multinode.slurm.commands import cancel_job, find_job_of_script, submit_script
from hpc_multinode.slurm.jobs import parse_submitted
from hpc_multinode.slurm.leaking import make_submission_env, render_left_out
from hpc_multinode.submission.requeue import make_requeue_guard, make_requeue_lines
from hpc_multinode.submission.shell import (
    make_log_options,
    make_setup,
    make_srun_options,
    make_teardown,
)
from hpc_multinode.wrapping import make_agent_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

# When to look for a job that may have got in, in seconds after the look before.
_LOOK_AFTER_S = (0.0, 1.0, 3.0, 6.0)
# Slurm's words for a controller that may have taken the job all the same.
_NO_ANSWER = (
    "timed out",
    "Unable to contact slurm controller",
    "Zero Bytes were transmitted",
    "Transport endpoint",
    "Communication connection failure",
    "Connection reset",
)
_LOOK = "look with squeue --me --format='%i %o' | grep -F {script}"


class _Executor(submitit.SlurmExecutor):
    """submitit's executor with our agent as its command, and the sbatch text as asked for."""

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__(folder=f"{plan.run_dir}/submitit")
        self._plan = plan
        self.update_parameters(**_make_parameters(plan))

    @classmethod
    def affinity(cls) -> int:
        """Let a text be rendered where there is no Slurm."""
        return 1

    def render(self) -> str:
        # Our own srun line: submitit's cannot bear a % in a folder's name.
        srun = shlex.join(["srun", *make_log_options(), *make_srun_options(self._plan)])
        lines = self._make_submission_file_text(f"{srun} {make_agent_command(self._plan)}", "").splitlines()
        # What submitit always writes and nobody here has asked for: a signal 90 s before the end, its own variable.
        unasked = ["export SUBMITIT_EXECUTOR=", *(["#SBATCH --signal="] * ("signal" not in self._plan.sbatch))]
        text = "\n".join(line for line in lines if not line.startswith(tuple(unasked)))
        return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def require_sbatch() -> None:
    """Check that a job can be submitted from here.

    Raises:
        SubmissionError: There is no sbatch; falling back to this machine would not be what was asked.
    """
    if shutil.which("sbatch") is None:
        raise SubmissionError(
            what="cluster=slurm, and there is no Slurm here",
            found="sbatch is not on PATH",
            fix="log in to a node of the cluster that submits, load its Slurm module, or use cluster=local",
        )


def warn_of_left_out(plan: LaunchPlan) -> None:
    """Name each wish in ``SBATCH_*`` that does not count."""
    for line in render_left_out(os.environ, plan.sbatch):
        print(f"warning: {line}", file=sys.stderr)  # noqa: T201


def render_slurm(plan: LaunchPlan) -> str:
    """Return the sbatch text of a plan, without asking Slurm or writing anything."""
    return _Executor(plan).render()


def submit_slurm(plan: LaunchPlan, folder: RunFolder, *, sleep: Callable[[float], None] = time.sleep) -> str:
    """Submit a plan and return its job id, with the cluster behind a semicolon where it is another one.

    Args:
        plan: The run.
        folder: Its folder, already written.
        sleep: Waits for so many seconds.

    Raises:
        SubmissionError: sbatch refuses, and the run folder is gone then; or nobody knows whether it took the job.
    """
    folder.make(folder.path / "submitit")
    folder.write(SCRIPT, render_slurm(plan).encode())
    try:
        return hand_in(folder.path / SCRIPT, user=plan.user, sleep=sleep)
    except RefusedError as error:
        raise make_refusal(folder, SCRIPT, error) from None
    except Withdrawn as withdrawn:
        if withdrawn.job_id is None:
            shutil.rmtree(folder.path)
        raise


class RefusedError(Exception):
    """sbatch has refused a script; its text is what it said."""


class Withdrawn(KeyboardInterrupt):
    """Ctrl-C while sbatch was at work.

    Args:
        job_id: The job that had got in all the same, and was cancelled; None where there is none.
    """

    def __init__(self, job_id: str | None) -> None:
        super().__init__()
        self.job_id = job_id


def hand_in(script: Path, *, user: str, sleep: Callable[[float], None] = time.sleep) -> str:
    """Give a script to sbatch and return the job's id, with the cluster behind a semicolon where it is another one.

    Args:
        script: Absolute path of its own, by which the job can be found again.
        user: Whose job it will be.
        sleep: Waits for so many seconds.

    Raises:
        RefusedError: sbatch refuses it.
        Withdrawn: Ctrl-C.
        SubmissionError: Nobody knows whether it took the job.
    """
    try:
        ended = submit_script(str(script), env=make_submission_env(os.environ))
    except KeyboardInterrupt:
        raise _withdraw(str(script), user=user, sleep=sleep) from None
    said = "sbatch did not answer within five minutes" if ended is None else ended.stderr.strip()
    if ended is not None and ended.returncode == 0:
        job_id = parse_submitted(ended.stdout) or find_job_of_script(str(script), user=user)
        if job_id is not None:
            print(said, end="\n" if said else "", file=sys.stderr)  # noqa: T201 - a site's words to its people
            return job_id
        raise SubmissionError(
            what="sbatch gave an answer that is not understood",
            found=f"it names no job id; the job MAY be in the queue. It said: {ended.stdout.strip()!r}",
            fix=_LOOK.format(script=shlex.quote(str(script))),
        )
    if ended is not None and not any(sign in said for sign in _NO_ANSWER):
        raise RefusedError(said or ended.stdout.strip() or f"nothing, with exit code {ended.returncode}")
    return _find_submitted(str(script), said, user=user, sleep=sleep)


def make_refusal(folder: RunFolder, script: str, error: RefusedError) -> SubmissionError:
    """Keep the script for a look at it, remove the run, and compose the error."""
    kept = folder.path.with_name(f"{folder.path.name}.refused.sh")
    (folder.path / script).replace(kept)
    shutil.rmtree(folder.path)
    said = str(error)
    words = [line.strip() for line in said.splitlines() if line.strip().startswith("sbatch:")]
    return SubmissionError(
        what="sbatch refuses the job",
        found="\n".join(words) or said,
        fix=f"look at the script that was sent, {kept}; render --check tells more; cluster=local runs on this machine",
    )


def _find_submitted(script: str, said: str, *, user: str, sleep: Callable[[float], None]) -> str:
    """Look for a job that got in although sbatch was not told so; it is never submitted a second time."""
    for wait_s in _LOOK_AFTER_S:
        sleep(wait_s)
        job_id = find_job_of_script(script, user=user)
        if job_id is not None:
            return job_id
    raise SubmissionError(
        what="Slurm did not answer sbatch, and no job of this run is in the queue by now",
        found=said,
        fix=f"the job may still come: {_LOOK.format(script=shlex.quote(script))}; if there is none, submit again",
    )


def _withdraw(script: str, *, user: str, sleep: Callable[[float], None]) -> Withdrawn:
    """Cancel a job that has got in, and say what has become of it."""
    for wait_s in _LOOK_AFTER_S[:2]:
        sleep(wait_s)
        job_id = find_job_of_script(script, user=user)
        if job_id is not None:
            refusal = cancel_job(job_id)
            end = f"cannot be cancelled: {refusal}" if refusal else "is cancelled"
            print(f"interrupted: job {job_id} was submitted, and {end}", file=sys.stderr)  # noqa: T201
            return Withdrawn(job_id)
    print("interrupted: no job was submitted", file=sys.stderr)  # noqa: T201
    return Withdrawn(None)


def _make_parameters(plan: LaunchPlan) -> dict[str, Any]:
    options = dict(plan.sbatch)
    after = [*(make_teardown(plan.teardown) if plan.teardown else ()), *make_requeue_lines(plan)]
    return {
        "job_name": options.pop("job-name"),
        "nodes": options.pop("nodes"),
        "ntasks_per_node": options.pop("ntasks-per-node"),
        # None: no line, where submitit would by itself write five minutes and a key of its own.
        "time": None,
        "wckey": None,
        "stderr_to_stdout": True,
        "setup": [*make_requeue_guard(plan), *make_setup(plan.setup)] or None,
        "teardown": ["code=$?", *after, "exit $code"] if after else None,
        "use_srun": False,
        # In the name of a log sbatch replaces %j and its like; a folder's own % is written twice.
        "additional_parameters": {"output": f"{plan.run_dir.replace('%', '%%')}/submitit/%j_0_log.out", **options},
    }
