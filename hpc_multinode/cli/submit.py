"""``submit``, the verb that is meant where none is given: run or submit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.cli.planning import make_plan_from
from hpc_multinode.launching import launch

if TYPE_CHECKING:
    from hpc_multinode.cli.main import CommandLine


def run(line: CommandLine) -> int:
    """Run or submit what was typed and return the exit code."""
    plan, config_text = make_plan_from(line)
    return launch(plan, config_text=config_text)
