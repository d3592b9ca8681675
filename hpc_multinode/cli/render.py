"""``render``: print the sbatch text that ``submit`` would send. Needs no Slurm, writes nothing.

With ``--standalone`` it is a script for plain sbatch; with ``--check`` Slurm is asked whether it would take the job.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hpc_multinode.cli.composing import compose_from, make_plan_from, make_sweep_from
from hpc_multinode.errors import ConfigError
from hpc_multinode.person import find_cwd
from hpc_multinode.preparation import find_piece_folders
from hpc_multinode.submission.slurm import render_slurm, warn_of_left_out
from hpc_multinode.templates import read_pieces

if TYPE_CHECKING:
    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.cli.composing import Composed
    from hpc_multinode.plan import LaunchPlan


def run(line: CommandLine) -> int:
    """Print the text, or Slurm's answer, and return 0."""
    typed = list(line.overrides)
    line.overrides.append("cluster.mode=slurm")
    if line.is_sweep and (line.is_standalone or line.is_check):
        option, does = ("--standalone", "prints the script of") if line.is_standalone else ("--check", "asks about")
        raise ConfigError(
            what=f"{option} {does} one run, and this is a sweep",
            found=f"render {option} with -m",
            fix="leave one of them out",
        )
    if line.is_sweep:
        from hpc_multinode.sweep_launch import render_sweep  # noqa: PLC0415 - a single run does without

        sweep, selection = make_sweep_from(line)
        sys.stdout.write(render_sweep(sweep, selection))
        return 0
    composed = compose_from(line)
    plan, _ = make_plan_from(composed)
    warn_of_left_out(plan)
    if line.is_check:
        from hpc_multinode.submission.checking import check_plan  # noqa: PLC0415 - only where it is asked for

        sys.stdout.write(f"{check_plan(plan)}\n")
        return 0
    sys.stdout.write(_render_standalone(line, composed, plan, typed) if line.is_standalone else render_slurm(plan))
    return 0


def _render_standalone(line: CommandLine, composed: Composed, plan: LaunchPlan, typed: list[str]) -> str:
    from hpc_multinode.submission.standalone import render_standalone  # noqa: PLC0415 - only where it is asked for

    folders = [f"--config-dir={folder}" for folder in composed.config_dirs]
    argv = [] if line.script_argv is None else ["--", *line.script_argv]
    # What the job waits for is in its directives; in the job that is over.
    waited = ["after=null"] * ("dependency" in plan.sbatch)
    words = [*folders, *typed, "cluster.mode=step", *waited, *argv]
    pieces = read_pieces(find_piece_folders(composed.config_dirs))
    return render_standalone(plan, pieces, cwd=str(find_cwd()), python=sys.executable, words=words)
