"""Agents side by side on this machine, as the tasks of submitit's local executor.

What is submitit's own there and would surprise is settled here: outer variables are not passed on, there is no time
limit, and ``CUDA_VISIBLE_DEVICES`` stays the person's.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from hpc_multinode.node.environment import LAUNCHER_PID
from hpc_multinode.slurm.leaking import is_leaking
from hpc_multinode.submission.controller import Controller, start_controller
from hpc_multinode.wrapping import make_agent_command

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

# The program by which submitit's LocalExecutor starts and watches tasks. Its Python side (start_controller) passes all
# of os.environ on and leaves the controller in the terminal's process group, so the program is started from here.
CONTROLLER_MODULE = "submitit.local._local"
# It counts seconds up to this one by one and ends the tasks there; three centuries are no limit.
_NO_LIMIT_S = 10**10


def start_local(plan: LaunchPlan, folder: RunFolder, *, is_foreground: bool) -> Controller:
    """Start the agents and return their controller, which passes a SIGTERM on to them.

    Args:
        plan: The run.
        folder: Its folder, already written.
        is_foreground: The run is to end with this process.
    """
    env = {name: value for name, value in os.environ.items() if not is_leaking(name)}
    env.update(_make_controller_env(plan))
    if is_foreground:
        env[LAUNCHER_PID] = str(os.getpid())
    words = [sys.executable, "-m", CONTROLLER_MODULE, str(folder.path / "submitit")]
    process = start_controller(plan, folder, words, env=env)
    return Controller(
        is_running=lambda: process.poll() is None,
        ask_to_stop=lambda: process.send_signal(signal.SIGTERM),
        process=process,
    )


def _make_controller_env(plan: LaunchPlan) -> dict[str, str]:
    return {
        "SUBMITIT_EXECUTOR": "local",
        "SUBMITIT_LOCAL_COMMAND": make_agent_command(plan),
        "SUBMITIT_LOCAL_NTASKS": str(plan.num_nodes),
        "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
        "SUBMITIT_LOCAL_NODEID": "0",
        "SUBMITIT_LOCAL_TIMEOUT_S": str(_NO_LIMIT_S),
        "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "0",
        "SUBMITIT_LOCAL_WITH_SHELL": "",
        "SUBMITIT_STDERR_TO_STDOUT": "1",
    }
