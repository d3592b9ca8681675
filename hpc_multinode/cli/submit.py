"""``submit``, the verb that is meant where none is given: run or submit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpc_multinode.cli.composing import make_plan_from
from hpc_multinode.launching import launch, render_header
from hpc_multinode.slurm.environment import is_plain_step

if TYPE_CHECKING:
    from hpc_multinode.cli.main import CommandLine

_CHOICES = ("cluster=", "cluster.mode=")


def run(line: CommandLine) -> int:
    """Run or submit what was typed and return the exit code."""
    if _is_agent(line):
        from hpc_multinode.node.allocation import run_here  # noqa: PLC0415 - asyncio, and only in a job step

        return run_here(lambda place: make_plan_from(line, place=place), announce=render_header)
    plan, config_text = make_plan_from(line)
    return launch(plan, config_text=config_text)


def _is_agent(line: CommandLine) -> bool:
    """Say whether this process is to be a node's agent, before anything is composed: node 0 alone does that."""
    chosen = [word.partition("=")[2] for word in line.overrides if word.startswith(_CHOICES)]
    if chosen:
        return chosen[-1] == "allocation"
    return is_plain_step(os.environ)
