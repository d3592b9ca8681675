"""From what was typed to a plan, for the verbs that make one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_multinode.compose import compose_config, find_config_dirs, render_config
from hpc_multinode.errors import ConfigError
from hpc_multinode.person import find_cwd
from hpc_multinode.preparation import prepare_plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.config import Config
    from hpc_multinode.context import NodeContext
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.sweep import Sweep
    from hpc_multinode.sweep_selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """What was typed, composed.

    Attributes:
        config: The configuration.
        config_dirs: The person's folders that it was composed from, the strongest first.
    """

    config: Config
    config_dirs: tuple[Path, ...]


def compose_from(line: CommandLine) -> Composed:
    """Compose what was typed.

    Raises:
        ConfigError: Something in it is wrong.
    """
    config_dirs = find_config_dirs(line.config_dirs, os.environ)
    config = compose_config(line.overrides, config_dirs=config_dirs)
    if config.rerun is not None:
        raise ConfigError(
            what="rerun chooses points of a sweep, and this is a single run",
            found=f"rerun={config.rerun.name}",
            fix="-m for a sweep, or leave rerun out",
        )
    if line.script_argv is not None:
        _require_script(config, line.script_argv)
        config.work.args = [*config.work.args, *line.script_argv]
    return Composed(config=config, config_dirs=config_dirs)


def make_sweep_from(line: CommandLine) -> tuple[Sweep, Selection]:
    """Compose and check all points of what was typed, and choose those that are to be started.

    Raises:
        MultiNodeError: Something in it is wrong.
    """
    from hpc_multinode.points import compose_points  # noqa: PLC0415 - a single run does without
    from hpc_multinode.sweep import prepare_sweep  # noqa: PLC0415
    from hpc_multinode.sweep_selection import Selection, select_points  # noqa: PLC0415

    config_dirs = find_config_dirs(line.config_dirs, os.environ)
    points = compose_points(line.overrides, config_dirs=config_dirs, script_argv=line.script_argv or ())
    if line.script_argv is not None:
        for point in points:
            _require_script(point.config, line.script_argv)
    sweep = prepare_sweep(points, cwd=find_cwd(), config_dirs=config_dirs)
    is_whole = points[0].config.rerun is None
    return sweep, Selection(todo=sweep.points) if is_whole else select_points(sweep)


def _require_script(config: Config, argv: Sequence[str]) -> None:
    if not config.strategy.is_script:
        raise ConfigError(
            what=f"strategy={config.strategy.name} takes no words after --",
            found=f"-- {' '.join(argv)}",
            fix="strategy=script for a script's own command line, or work.kwargs.NAME=... for a function",
        )


def make_plan_from(composed: Composed, *, place: NodeContext | None = None) -> tuple[LaunchPlan, str]:
    """Make and check the plan of what was typed.

    Args:
        composed: What was typed.
        place: This process's place in a job step, where it is to be the agent itself.

    Returns:
        The plan, and the resolved configuration as YAML.

    Raises:
        MultiNodeError: Something in it is wrong.
    """
    text = render_config(composed.config)
    return prepare_plan(composed.config, cwd=find_cwd(), place=place, config_dirs=composed.config_dirs), text
