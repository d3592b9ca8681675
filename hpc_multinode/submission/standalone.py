"""``render --standalone``: a script for plain sbatch that makes a run of its own each time. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from hpc_multinode.templates import Shell, render_piece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.plan import LaunchPlan

_TEMPLATE = "standalone.sbatch.j2"


def render_standalone(
    plan: LaunchPlan, pieces: Mapping[str, str], *, cwd: str, python: str, words: Sequence[str]
) -> str:
    """Return a script in which the launcher starts one step on the job's nodes.

    Args:
        plan: What is asked for.
        pieces: Texts of ``sbatch_templates``.
        cwd: Absolute folder where the person stands; the plan's own may be a snapshot that is not made.
        python: Absolute path of the interpreter that runs the launcher.
        words: What was typed, for the launcher in the job.

    Raises:
        ConfigError: The template cannot be rendered.
    """
    variables = {
        "directives": tuple(Shell(line) for line in make_directives(plan.sbatch)),
        "name": plan.name,
        "cwd": cwd,
        "num_nodes": plan.num_nodes,
        "command": [python, "-m", "hpc_multinode", *words],
    }
    return f"{render_piece(pieces, _TEMPLATE, variables).rstrip()}\n"


def make_directives(options: Mapping[str, Any]) -> list[str]:
    """Write options of sbatch as lines of a script, True as a flag."""
    return [
        f"#SBATCH --{option}" if value is True else f"#SBATCH --{option}={shlex.quote(str(value))}"
        for option, value in options.items()
    ]
