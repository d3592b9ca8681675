"""Which values a configuration may have. Pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from hpc_multinode.config import Mode
from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.config import Config

# What the name of a run folder is made of has none of these.
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
# Longest name in a run's id, in characters.
MAX_ID = 200
_MAX_PORT = 65535
_MAX_EXIT_CODE = 255
_MIN_HEARTBEAT_S = 1.0


def check_values(config: Config) -> None:
    """Refuse what no run could have.

    Args:
        config: The composed configuration, every value resolved.

    Raises:
        ConfigError: A value is out of its range, or two contradict each other.
    """
    _check_counts(config)
    _check_amounts(config)
    workers = config.resources.workers_per_node
    if config.strategy.is_one_worker_a_node and (workers or 1) > 1:
        raise ConfigError(
            what=f"strategy={config.strategy.name} runs one worker on each node, with all its devices",
            found=f"resources.workers_per_node={workers}",
            fix="strategy=pytorch_spawn for one worker a GPU, or leave resources.workers_per_node out",
        )
    _check_setup(config.cluster.setup)


def _check_counts(config: Config) -> None:
    resources, launch = config.resources, config.launch
    counts = {
        "nodes": (config.nodes, 1),
        "resources.workers_per_node": (resources.workers_per_node, 1),
        "resources.gpus_per_node": (resources.gpus_per_node, 0),
        "resources.cpus_per_node": (resources.cpus_per_node, 1),
        "launch.main_port": (launch.main_port, 1),
        "restart.max": (config.restart.max, 0),
        "requeue.max": (config.requeue.max, 0),
        "requeue.exit_code": (config.requeue.exit_code, 1),
        "array.parallel": (config.array.parallel, 1),
    }
    for key, (value, least) in counts.items():
        if value is not None and value < least:
            raise ConfigError(what=f"{key} is too small", found=f"{key}={value}", fix=f"{key} is at least {least}")
    most = {"launch.main_port": _MAX_PORT, "requeue.exit_code": _MAX_EXIT_CODE}
    for key, greatest in most.items():
        value, least = counts[key]
        if value is not None and value > greatest:
            raise ConfigError(what=f"{key} is too large", found=f"{key}={value}", fix=f"{least} to {greatest}")


def _check_amounts(config: Config) -> None:
    launch = config.launch
    amounts = {
        "launch.join_timeout_s": launch.join_timeout_s,
        "launch.heartbeat_timeout_s": launch.heartbeat_timeout_s,
        "stop.grace_s": config.stop.grace_s,
        "stop.warn_s": config.stop.warn_s,
        "stop.kill_s": config.stop.kill_s,
        "strategy.timeout_s": config.strategy.timeout_s,
        "snapshot_max_mb": config.snapshot_max_mb,
    }
    for key, amount in amounts.items():
        if amount is not None and not (math.isfinite(amount) and amount >= 0):
            raise ConfigError(
                what=f"{key} is not an amount", found=f"{key}={amount}", fix=f"{key} is a finite number from 0 on"
            )
    if launch.heartbeat_timeout_s < _MIN_HEARTBEAT_S:
        raise ConfigError(
            what="launch.heartbeat_timeout_s is too short",
            found=f"launch.heartbeat_timeout_s={launch.heartbeat_timeout_s}",
            fix=f"at least {_MIN_HEARTBEAT_S:.0f} s: a busy machine is silent for a moment too",
        )


def _check_setup(lines: Sequence[str]) -> None:
    for line in lines:
        if "\n" in line.strip():
            raise ConfigError(
                what="an entry of cluster.setup has several lines, of which only the last would count",
                found=line.strip(),
                fix="write one command in each entry",
            )


def check_names(name: str, run_id: str) -> None:
    """Refuse a name that cannot be shown, and an id that cannot be a folder's name.

    Raises:
        ConfigError: One of them is so.
    """
    if not name.isprintable():
        raise ConfigError(
            what="the name holds a character that cannot be printed", found=f"name={name!r}", fix="name=word"
        )
    if UNSAFE.search(run_id) or run_id.startswith((".", "-")) or len(run_id.encode()) > MAX_ID + 30:
        raise ConfigError(
            what="run_id cannot be the name of a folder",
            found=f"run_id={run_id}",
            fix="letters, digits, dot, dash and underscore, not beginning with dot or dash",
        )


def check_run_dir(run_dir: str, mode: Mode) -> None:
    """Refuse a run folder's path that a terminal or sbatch would not take as it is.

    Raises:
        ConfigError: It holds such a character.
    """
    if not run_dir.isprintable():
        raise ConfigError(
            what="the run folder's path holds a character that cannot be printed",
            found=repr(run_dir),
            fix="run_root=FOLDER",
        )
    if mode is Mode.slurm and "\\" in run_dir:
        # Tried: sbatch then replaces no %j in the log's name, with any number of backslashes.
        raise ConfigError(
            what="the run folder's path holds a backslash, which sbatch takes for a sign of its own",
            found=run_dir,
            fix="run_root=FOLDER whose path has none",
        )
