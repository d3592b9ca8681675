"""From what was typed to a plan, for the verbs that make one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpc_multinode.compose import compose_config, find_config_dirs, render_config
from hpc_multinode.errors import ConfigError
from hpc_multinode.person import find_cwd
from hpc_multinode.preparation import prepare_plan

if TYPE_CHECKING:
    from hpc_multinode.cli.main import CommandLine
    from hpc_multinode.config import Config
    from hpc_multinode.context import NodeContext
    from hpc_multinode.plan import LaunchPlan


def compose_from(line: CommandLine) -> Config:
    """Compose what was typed.

    Raises:
        ConfigError: Something in it is wrong.
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
    return config


def make_plan_from(line: CommandLine, *, place: NodeContext | None = None) -> tuple[LaunchPlan, str]:
    """Compose and check what was typed.

    Args:
        line: The command line.
        place: This process's place in a job step, where it is to be the agent itself.

    Returns:
        The plan, and the resolved configuration as YAML.

    Raises:
        MultiNodeError: Something in it is wrong.
    """
    config = compose_from(line)
    text = render_config(config)
    dirs = find_config_dirs(line.config_dirs, os.environ)
    return prepare_plan(config, cwd=find_cwd(), place=place, config_dirs=dirs), text
