"""From what was typed to a plan, for the verbs that make one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.compose import compose_config, find_config_dirs, render_config
from hpc_multinode.errors import ConfigError
from hpc_multinode.preparation import prepare_plan

if TYPE_CHECKING:
    from hpc_multinode.cli.main import CommandLine
    from hpc_multinode.plan import LaunchPlan


def make_plan_from(line: CommandLine) -> tuple[LaunchPlan, str]:
    """Compose and check what was typed.

    Returns:
        The plan, and the resolved configuration as YAML.

    Raises:
        MultiNodeError: Something in it is wrong.
    """
    config = compose_config(line.overrides, config_dirs=find_config_dirs(line.config_dirs, os.environ))
    if line.script_argv is not None:
        if not config.strategy.is_script:
            raise ConfigError(
                what=f"strategy={config.strategy.name} takes no words after --",
                found=f"-- {' '.join(line.script_argv)}",
                fix="strategy=script for a script's own command line, or work.kwargs.NAME=... for a function",
            )
        config.work.args = [*config.work.args, *line.script_argv]
    text = render_config(config)
    return prepare_plan(config, cwd=Path.cwd()), text
