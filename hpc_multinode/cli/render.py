"""``render``: print the sbatch text that ``submit`` would send. Needs no Slurm, writes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hpc_multinode.cli.composing import make_plan_from
from hpc_multinode.launching import warn_of_left_out
from hpc_multinode.submission.slurm import render_slurm

if TYPE_CHECKING:
    from hpc_multinode.cli.main import CommandLine


def run(line: CommandLine) -> int:
    """Print the text and return 0."""
    line.overrides.append("cluster.mode=slurm")
    plan, _ = make_plan_from(line)
    warn_of_left_out(plan)
    sys.stdout.write(render_slurm(plan))
    return 0
