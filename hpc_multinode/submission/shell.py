"""Shell lines around the agents: the person's set-up and teardown, the same on this machine and on Slurm. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.plan import LaunchPlan


def make_agent_command(plan: LaunchPlan) -> str:
    """Return the shell words that start one agent; its working directory is to be the run folder."""
    return f"{plan.python} -m hpc_multinode.node {shlex.quote(plan.run_dir)}"


def make_setup(lines: Sequence[str]) -> list[str]:
    """Wrap set-up lines so that one that fails ends the script and says which it was.

    Each runs in the script's own shell, so that what it exports or activates stays; in a pipe every part counts.
    """
    if not lines:
        return []
    wrapped = [
        f"{{ {line}\n}} || {{ echo {shlex.quote(f'hpc_multinode: this set-up line failed: {line}')} >&2; exit 1; }}"
        for line in lines
    ]
    return ["set -o pipefail", *wrapped, "set +o pipefail"]


def make_local_script(plan: LaunchPlan, controller: Sequence[str]) -> str:
    """Compose a shell script that runs the controller between set-up and teardown and ends with its exit code."""
    command = shlex.join(controller)
    if not plan.teardown:
        return "\n".join([*make_setup(plan.setup), f"exec {command}"])
    return "\n".join(
        [
            *make_setup(plan.setup),
            f"{command} & controller=$!",
            "trap 'kill -TERM $controller' TERM",
            "while kill -0 $controller 2>/dev/null; do wait $controller; code=$?; done",
            *plan.teardown,
            "exit $code",
        ]
    )
