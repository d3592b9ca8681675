"""What stands around the agents: set-up and wrapper from a site's pieces, and what a container is to see. Pure."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hpc_multinode.assets import AGENT_FOLDER, PACKAGE
from hpc_multinode.errors import ConfigError
from hpc_multinode.slurm.options import count_gpus_asked
from hpc_multinode.templates import SETUP, Shell, find_piece, render_piece, split_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hpc_multinode.config import ClusterConfig, Config
    from hpc_multinode.plan import LaunchPlan

_IN_CONTAINER = "apptainer"
# Modes in which srun starts the agents.
_WITH_SRUN = ("slurm", "step")
# A preemption or a warning may come while Python itself is starting. To die of it would end the job, which Slurm then
# does not requeue; unheard, it is followed by the end of the grace, and the requeue.
_DEAF = """/bin/sh -c 'trap "" TERM USR2; exec "$@"' agent"""


def has_pieces(cluster: ClusterConfig) -> bool:
    """Say whether pieces of ``sbatch_templates`` are asked for."""
    return bool(_list_names(cluster)) or cluster.container is not None


def make_setup_lines(config: Config, pieces: Mapping[str, str], *, cwd: str, num_nodes: int) -> tuple[str, ...]:
    """List the shell lines before the agents: those of the pieces, then ``cluster.setup``.

    Args:
        config: The composed configuration.
        pieces: Texts of ``sbatch_templates``.
        cwd: Working directory of the workers.
        num_nodes: Nodes. Count, at least 1.

    Raises:
        ConfigError: A piece is not there or cannot be rendered.
    """
    cluster = config.cluster
    ours = {
        "cwd": cwd,
        "num_nodes": num_nodes,
        "gpus_per_node": count_gpus_asked(config.resources) or 0,
        "container": cluster.container or "",
    }
    lines: list[str] = []
    for kind, path in (find_piece(pieces, name) for name in _list_names(cluster)):
        if kind == SETUP:
            lines += split_commands(render_piece(pieces, path, _merge_vars(cluster.vars, ours)))
    return (*lines, *cluster.setup)


def choose_wrapper(cluster: ClusterConfig, pieces: Mapping[str, str]) -> str | None:
    """Return the path of the piece that starts the agents; None where nothing stands around them.

    Raises:
        ConfigError: There are two.
    """
    wrappers = [path for kind, path in (find_piece(pieces, name) for name in _list_names(cluster)) if kind != SETUP]
    if len(wrappers) > 1:
        raise ConfigError(
            what="two templates want to start the agents",
            found=f"cluster.template={cluster.template}: {', '.join(wrappers)}",
            fix="name one of them",
        )
    if wrappers:
        return wrappers[0]
    return find_piece(pieces, _IN_CONTAINER)[1] if cluster.container is not None else None


def make_agent_command(plan: LaunchPlan, *words: str) -> str:
    """Return the shell words that start one agent; its working directory is to be the run folder.

    Args:
        plan: The run.
        words: More arguments of the agent's.

    Raises:
        ConfigError: The wrapper cannot be rendered, or a container cannot be given its folders.
    """
    command = " ".join((f"{plan.python} -m hpc_multinode.node", shlex.quote(plan.run_dir), *words))
    # Around the interpreter alone: a shell script that passes signals on could not take what was ignored before it.
    if plan.mode == "slurm" and plan.has_plain_python:
        command = f"{_DEAF} {command}"
    if plan.container is not None:  # of this machine's packages it is to find ours alone
        command = f"env PYTHONPATH={shlex.quote(f'{plan.run_dir}/{AGENT_FOLDER}')} {command}"
    return command if plan.wrapper is None else _wrap(plan, plan.wrapper, command)


def _wrap(plan: LaunchPlan, wrapper: str, command: str) -> str:
    has_binds = plan.container is not None
    binds = _make_binds([plan.run_dir, plan.cwd, *plan.work.folders, str(PACKAGE)]) if has_binds else []
    ours = {
        "run_dir": plan.run_dir,
        "cwd": plan.cwd,
        "num_nodes": plan.num_nodes,
        "gpus_per_node": plan.gpus_per_node or 0,
        "container": plan.container or "",
        "binds": binds,
        "mounts": ",".join(f"{folder}:{folder}" for folder in binds),
        "command": Shell(command),
    }
    wrapped = " ".join(split_commands(render_piece(plan.pieces, wrapper, _merge_vars(plan.template_vars, ours))))
    if command not in wrapped:
        raise ConfigError(
            what=f"the template {wrapper} starts no agent",
            found=wrapped or "nothing",
            fix="{{ command }} in it stands for the agent's command",
        )
    if wrapped.startswith("-") and plan.mode not in _WITH_SRUN:
        raise ConfigError(
            what=f"the template {wrapper} gives options of srun, and there is no srun in this mode",
            found=f"cluster.mode={plan.mode}",
            fix="cluster.template=apptainer, or a run on Slurm",
        )
    return wrapped


def _list_names(cluster: ClusterConfig) -> Sequence[str]:
    names = cluster.template
    listed = names if isinstance(names, list) else [] if names is None else [names]
    if any(not isinstance(name, str) or not name for name in listed):
        raise ConfigError(
            what="cluster.template is not made of names",
            found=f"cluster.template={names!r}",
            fix="a name, or a list of names, as in [modules,venv]",
        )
    return listed


def _make_binds(folders: Iterable[str]) -> list[str]:
    """List folders that hold all of these, in their order, none inside another."""
    paths = list(dict.fromkeys(PurePosixPath(folder) for folder in folders))
    outer = [path for path in paths if not any(other in path.parents for other in paths)]
    for path in outer:
        if set(str(path)) & {",", ":"}:
            raise ConfigError(
                what="a folder that the container needs has a comma or a colon in its path, which binds cannot bear",
                found=str(path),
                fix="run from, and into, folders without them",
            )
    return [str(path) for path in outer]


def _merge_vars(given: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    taken = [name for name in given if name in ours]
    if taken:
        raise ConfigError(
            what="cluster.vars sets a variable that templates get from the run itself",
            found=", ".join(f"cluster.vars.{name}={given[name]}" for name in taken),
            fix="choose another name",
        )
    return {**given, **ours}
