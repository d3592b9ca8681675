"""``submit``, the verb that is meant where none is given: run or submit."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from hpc_multinode.cli.composing import compose_from, make_plan_from, make_sweep_from
from hpc_multinode.config import Mode
from hpc_multinode.errors import MultiNodeError
from hpc_multinode.launching import fill_folder, launch, render_header
from hpc_multinode.preparation import decide_mode
from hpc_multinode.slurm.environment import is_plain_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.cli.composing import Composed
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder


def run(line: CommandLine) -> int:
    """Run or submit what was typed and return the exit code."""
    if line.is_sweep:
        from hpc_multinode.sweep_launch import launch_sweep  # noqa: PLC0415 - a single run does without

        sweep, selection = make_sweep_from(line)
        return launch_sweep(sweep, selection)
    compose = functools.cache(lambda: compose_from(line))
    if _is_agent(line, compose):
        from hpc_multinode.node.allocation import run_here  # noqa: PLC0415 - asyncio, and only in a job step

        return run_here(lambda place: make_plan_from(compose(), place=place), fill=_fill)
    plan, config_text = make_plan_from(compose())
    return launch(plan, config_text=config_text)


def _fill(plan: LaunchPlan, folder: RunFolder) -> str:
    return render_header(plan) + fill_folder(plan, folder)


def _is_agent(line: CommandLine, compose: Callable[[], Composed]) -> bool:
    """Say whether this process is to be a node's agent; where the words say it, only node 0 composes them."""
    if "cluster=allocation" in line.overrides:
        return True
    if not is_plain_step(os.environ):
        return False
    try:
        return decide_mode(compose().config.cluster.mode, os.environ) is Mode.allocation
    except MultiNodeError:
        # Node 0 will say what is wrong, for all of us.
        return True
