"""One srun step on the allocation that this shell, script or notebook holds: one agent a node."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from typing import TYPE_CHECKING

from hpc_multinode.errors import SubmissionError
from hpc_multinode.slurm.commands import find_step, signal_step
from hpc_multinode.submission.controller import Controller, start_controller
from hpc_multinode.submission.shell import make_srun_options
from hpc_multinode.wrapping import make_agent_command

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder


def require_srun() -> None:
    """Check that a step can be started from here.

    Raises:
        SubmissionError: There is no srun, as in many containers.
    """
    if shutil.which("srun") is None:
        raise SubmissionError(
            what="we are in a Slurm job, and cannot start a step in it",
            found="srun is not on PATH",
            fix="make srun visible here, or use cluster=local for this machine alone",
        )


def start_step(plan: LaunchPlan, folder: RunFolder) -> Controller:
    """Start the agents and return srun.

    Args:
        plan: The run.
        folder: Its folder, already written.
    """
    sizes = [f"--nodes={plan.num_nodes}", f"--ntasks={plan.num_nodes}"]
    words = [
        "srun",
        *sizes,
        f"--job-name={plan.run_id}",
        *make_srun_options(plan),
        *shlex.split(make_agent_command(plan)),
    ]
    process = start_controller(plan, folder, words, env=os.environ)
    was_asked = False

    def ask_to_stop() -> None:
        nonlocal was_asked
        step_id = None if was_asked else find_step(os.environ.get("SLURM_JOB_ID", ""), plan.run_id)
        was_asked = True
        if step_id is None or not signal_step(step_id, "TERM"):
            # srun then kills the tasks at once, which is what is asked for by the second time.
            process.send_signal(signal.SIGTERM)

    return Controller(is_running=lambda: process.poll() is None, ask_to_stop=ask_to_stop, process=process)
