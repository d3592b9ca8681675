"""The process that stands between the launcher and its agents: submitit's controller, or srun.

It runs in a session of its own, so that a Ctrl-C in the terminal reaches the launcher alone, and in the run folder,
which holds no modules, so that nothing of the person's takes the place of submitit's or ours.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_multinode.submission.shell import make_foreground_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

_LOG = "controller.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """What stands between us and the agents: a program of ours, or a job.

    Attributes:
        is_running: Says whether it is still there.
        ask_to_stop: Asks the agents to end the run; asked twice, they kill its workers at once.
        process: The program; None for a job.
        job_id: The job's; None for a program.
    """

    is_running: Callable[[], bool]
    ask_to_stop: Callable[[], None]
    process: subprocess.Popen[bytes] | None = None
    job_id: str | None = None


def start_controller(
    plan: LaunchPlan, folder: RunFolder, words: Sequence[str], *, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program that starts the agents, between the person's set-up and teardown lines.

    Args:
        plan: The run.
        folder: Its folder, already written.
        words: The program and its arguments.
        env: Its variables, which the agents inherit.
    """
    output = folder.path / "submitit"
    folder.make(output)
    log = folder.open_append(output / _LOG)
    try:
        return subprocess.Popen(  # noqa: S603 - the words are ours, quoted
            ["/bin/bash", "-c", make_foreground_script(plan, words)],
            env=dict(env),
            cwd=plan.run_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
