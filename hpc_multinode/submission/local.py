"""Agents side by side on this machine, as the tasks of submitit's local executor.

What is submitit's own there and would surprise is settled here: outer variables are not passed on, there is no time
limit, ``CUDA_VISIBLE_DEVICES`` stays the person's, and a Ctrl-C in the terminal reaches the launcher alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hpc_multinode.node.environment import LAUNCHER_PID
from hpc_multinode.slurm.environment import is_leaking
from hpc_multinode.submission.shell import make_agent_command, make_local_script

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

CONTROLLER_LOG = "controller.log"
# The program by which submitit's LocalExecutor starts and watches tasks. Its Python side (start_controller) passes all
# of os.environ on and leaves the controller in the terminal's process group, so the program is started from here.
CONTROLLER_MODULE = "submitit.local._local"
# It counts seconds up to this one by one and ends the tasks there; three centuries are no limit.
_NO_LIMIT_S = 10**10


def start_local(plan: LaunchPlan, folder: RunFolder, *, is_foreground: bool) -> subprocess.Popen[bytes]:
    """Start the agents and return their controller, whose SIGTERM it passes on to them.

    Args:
        plan: The run.
        folder: Its folder, already written.
        is_foreground: The run is to end with this process.
    """
    submitit_folder = folder.path / "submitit"
    folder.make(submitit_folder)
    env = {name: value for name, value in os.environ.items() if not is_leaking(name)}
    env.update(_make_controller_env(plan))
    if is_foreground:
        env[LAUNCHER_PID] = str(os.getpid())
    script = make_local_script(plan, [sys.executable, "-m", CONTROLLER_MODULE, str(submitit_folder)])
    log = folder.open_append(submitit_folder / CONTROLLER_LOG)
    try:
        return subprocess.Popen(  # noqa: S603 - the words are ours, quoted
            ["/bin/bash", "-c", script],
            env=env,
            # The run folder holds no modules, so nothing of the person's shadows submitit's or ours.
            cwd=plan.run_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def read_agent_output(folder: Path) -> str:
    """Return what controller and agents have printed, for the case that there is no report."""
    parts = []
    for file in sorted((folder / "submitit").iterdir()):
        text = file.read_text(errors="replace").strip()
        if text:
            parts.append(text)
    return "\n".join(parts)


def _make_controller_env(plan: LaunchPlan) -> Mapping[str, str]:
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
