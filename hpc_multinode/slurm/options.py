"""Options of sbatch, from what a configuration asks for. Pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from hpc_multinode.config import ResourcesConfig

_OPTION = re.compile(r"[a-z][a-z0-9]+(-[a-z0-9]+)*")
_TIME = re.compile(r"\d+(-\d+)?(:\d+){0,2}|unlimited|infinite", re.IGNORECASE)


def make_sbatch_options(resources: ResourcesConfig, *, name: str, num_nodes: int) -> dict[str, Any]:
    """List the options of sbatch: only what was asked for, each by its long name; True for a flag.

    Args:
        resources: What is asked for.
        name: The job's name.
        num_nodes: Nodes. Count, at least 1.

    Raises:
        ConfigError: A value is none that sbatch takes, or an option is given twice.
    """
    _check_time(resources.time)
    options: dict[str, Any] = {
        "job-name": name,
        "nodes": num_nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": resources.gpus_per_node or None,
        "cpus-per-task": resources.cpus_per_node,
        "mem": None if resources.mem_gb is None else _megabytes(resources.mem_gb),
        "time": resources.time,
        "exclusive": resources.exclusive or None,
    }
    for key in ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "gres"):
        options[key] = getattr(resources, key)
    for key, value in resources.sbatch.items():
        option = str(key).replace("_", "-")
        _check_option(option, value, key=f"resources.sbatch.{key}")
        if options.get(option) is not None:
            raise ConfigError(
                what=f"--{option} is given twice",
                found=f"{options[option]!r} by the configuration, {value!r} in resources.sbatch.{key}",
                fix=f"remove resources.sbatch.{key}",
            )
        options[option] = None if value is False else value
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if "\n" in str(value):
            raise ConfigError(
                what=f"--{option} holds a line break", found=repr(value), fix="a directive of sbatch is one line"
            )
    return given


def _check_option(option: str, value: object, *, key: str) -> None:
    if not _OPTION.fullmatch(option):
        raise ConfigError(
            what="resources.sbatch holds a name that is no long option of sbatch",
            found=f"{key}={value}",
            fix="write it without the two dashes, as in resources.sbatch.mail_type=END",
        )
    if isinstance(value, (list, dict)) or value == "":
        raise ConfigError(what=f"--{option} has no single value", found=f"{key}={value!r}", fix="give one, as text")


def _check_time(time: object) -> None:
    is_number = isinstance(time, int) and not isinstance(time, bool) and time > 0
    if time is None or is_number or (isinstance(time, str) and _TIME.fullmatch(time)):
        return
    raise ConfigError(
        what="resources.time is no time limit",
        found=f"resources.time={time!r}",
        fix='minutes, as in 90, or one of Slurm\'s forms in quotes: "1:30:00", "2-12", "1-12:30:45", unlimited',
    )


def _megabytes(mem_gb: float) -> str:
    # Never rounded to 0, which means the whole node.
    return f"{math.ceil(mem_gb * 1024)}M" if mem_gb else "0"
