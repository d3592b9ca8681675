"""From a configuration and the facts to a plan. Pure: reads no clock, no environment and no disk."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from hpc_multinode.config import Config, Mode
from hpc_multinode.errors import ConfigError
from hpc_multinode.plan import Facts, LaunchPlan, StrategyPlan, WorkPlan
from hpc_multinode.slurm.leaking import LEAKING_NAMES
from hpc_multinode.slurm.options import check_directives, count_gpus_asked, make_sbatch_options
from hpc_multinode.slurm.step_options import check_srun_args
from hpc_multinode.stop_times import choose_stop_times, make_stop_options
from hpc_multinode.values import MAX_ID, UNSAFE, check_names, check_run_dir, check_values
from hpc_multinode.wrapping import choose_wrapper, make_agent_command, make_setup_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.config import ClusterConfig
    from hpc_multinode.stop_times import StopTimes
    from hpc_multinode.work import WorkTarget

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def make_run_name(config: Config, target: WorkTarget | None) -> str:
    """Return the run's name: the one given, else that of the work's file."""
    if config.name:
        return config.name
    return PurePosixPath(target.file).stem if target is not None else "work"


def make_run_id(name: str, *parts: str) -> str:
    """Compose a run's id, which is safe as a folder's name.

    Args:
        name: The run's name.
        parts: What tells it from other runs of that name: date, time and random digits, or job and step.
    """
    return "-".join([UNSAFE.sub("-", name).strip("-.")[:MAX_ID] or "run", *parts])


def make_plan(
    config: Config,
    *,
    facts: Facts,
    target: WorkTarget | None,
    executor: WorkTarget | None = None,
    keeps_results: bool = False,
) -> LaunchPlan:
    """Turn a configuration and the facts into a plan.

    Args:
        config: The composed configuration, every value resolved.
        facts: What is known of the world.
        target: The work's source, or None where the work is an object that travels in the run folder.
        executor: The source of an executor that was given by its path, or None.
        keeps_results: Whether a Python caller will ask for the return values.

    Raises:
        ConfigError: A value is out of its range, or two contradict each other.
    """
    check_values(config)
    check_srun_args(config.resources.srun_args)
    name = make_run_name(config, target)
    run_id = config.run_id or facts.run_id
    check_names(name, run_id)
    mode = facts.mode
    is_local = mode in (Mode.local, Mode.debug)
    num_nodes = 1 if mode is Mode.debug else _count_nodes(config, facts)
    workers = 1 if mode is Mode.debug else _count_workers(config, facts, num_nodes=num_nodes, is_shared=is_local)
    run_dir = str(PurePosixPath(facts.cwd) / (config.run_root or facts.run_root) / run_id)
    check_run_dir(run_dir, mode)
    stop = choose_stop_times(config)
    sbatch = _make_sbatch(config, stop, name=name, num_nodes=num_nodes)
    if mode is Mode.slurm:
        check_directives({**sbatch, "output": run_dir})
    wrapper = choose_wrapper(config.cluster, facts.pieces)
    plan = LaunchPlan(
        run_id=run_id,
        name=name,
        run_dir=run_dir,
        mode=mode.value,
        cwd=facts.cwd,
        python=_choose_python(config.cluster, facts),
        has_plain_python=config.cluster.python is None,
        container=config.cluster.container,
        wrapper=wrapper,
        pieces=facts.pieces if wrapper is not None else {},
        template_vars=dict(config.cluster.vars) if wrapper is not None else {},
        num_nodes=num_nodes,
        local_world_size=workers,
        node_devices=_share_devices(config, facts, num_nodes) if is_local else None,
        gpus_per_node=_count_gpus(config, facts),
        threads=max(1, facts.num_cpus // (num_nodes * workers)) if is_local else None,
        env=_make_env(config.env),
        sbatch=sbatch,
        srun_args=tuple(config.resources.srun_args),
        setup=make_setup_lines(config, facts.pieces, cwd=facts.cwd, num_nodes=num_nodes),
        teardown=tuple(config.cluster.teardown),
        is_private=config.private,
        waits=config.wait,
        keeps_results=keeps_results,
        main_address=config.launch.main_address,
        main_port=config.launch.main_port,
        join_timeout_s=config.launch.join_timeout_s,
        heartbeat_timeout_s=config.launch.heartbeat_timeout_s,
        max_restarts=config.restart.max,
        start_method=config.launch.start_method.value,
        has_bound_cpus=config.launch.cpu_bind,
        grace_s=stop.grace_s,
        requeues=config.requeue.enabled,
        max_requeues=config.requeue.max,
        requeue_exit_code=config.requeue.exit_code,
        requeue_method=config.requeue.method.value,
        kill_s=config.stop.kill_s,
        user=facts.user,
        work=_make_work(config, facts, target),
        strategy=_make_strategy(config, executor),
    )
    make_agent_command(plan)  # what cannot be started is refused now
    return plan


def _make_sbatch(config: Config, stop: StopTimes, *, name: str, num_nodes: int) -> dict[str, Any]:
    asked = make_sbatch_options(config.resources, name=name, num_nodes=num_nodes, gpu_option=config.cluster.gpu_option)
    return {**make_stop_options(config, stop, given=asked), **asked}


def _choose_python(cluster: ClusterConfig, facts: Facts) -> str:
    # This machine's interpreter is not the image's.
    return cluster.python or (shlex.quote(facts.python) if cluster.container is None else "python3")


def _count_nodes(config: Config, facts: Facts) -> int:
    nodes = config.nodes if config.nodes is not None else facts.num_allocated or 1
    if facts.mode is Mode.step and facts.num_allocated is not None and nodes > facts.num_allocated:
        raise ConfigError(
            what="the allocation has fewer nodes than the run asks for",
            found=f"nodes={nodes}, the allocation that we are in has {facts.num_allocated}",
            fix=f"nodes={facts.num_allocated}, or cluster=slurm to submit a job of its own",
        )
    return nodes


def _count_gpus(config: Config, facts: Facts) -> int | None:
    """Return the GPUs a node that the run counts on: those asked for, else those of the allocation that we are in."""
    asked = count_gpus_asked(config.resources)
    if asked is None and facts.mode in (Mode.step, Mode.allocation) and facts.devices:
        return len(facts.devices)
    return asked


def _count_workers(config: Config, facts: Facts, *, num_nodes: int, is_shared: bool) -> int:
    if config.strategy.is_one_worker_a_node:
        return 1
    resources = config.resources
    if resources.workers_per_node is not None:
        return resources.workers_per_node
    asked = count_gpus_asked(resources)
    if asked is not None:
        return max(1, asked)
    return max(1, len(facts.devices) // (num_nodes if is_shared else 1))


def _share_devices(config: Config, facts: Facts, num_nodes: int) -> tuple[tuple[str, ...], ...]:
    """Share the GPUs seen on this machine out between nodes that stand side by side on it."""
    seen = facts.devices
    asked = count_gpus_asked(config.resources)
    per_node = len(seen) // num_nodes if asked is None else asked
    if per_node * num_nodes > len(seen):
        raise ConfigError(
            what="this machine has fewer GPUs than the run asks for",
            found=f"nodes={num_nodes}, GPUs asked for each: {per_node}; seen: {', '.join(seen) or 'none'}",
            fix="resources=cpu, fewer nodes or resources.gpus_per_node, or cluster=slurm",
        )
    return tuple(seen[node * per_node : (node + 1) * per_node] for node in range(num_nodes))


def _make_env(values: Mapping[str, Any]) -> dict[str, str]:
    env = {}
    for key, value in values.items():
        name = str(key)
        if name in LEAKING_NAMES:
            raise ConfigError(
                what=f"env sets {name}, which the launcher sets for every worker itself",
                found=f"env.{name}={value}",
                fix="remove it; launch.main_address and launch.main_port choose where rank 0 is found",
            )
        if not _ENV_NAME.fullmatch(name):
            raise ConfigError(
                what="env holds a name that no shell would take", found=f"env.{name}", fix="letters, digits, underscore"
            )
        if value is None or isinstance(value, (bool, list, dict)):
            raise ConfigError(
                what=f"env.{name} is not a text", found=f"env.{name}={value!r}", fix=f'quote it: {name}: "..."'
            )
        text = str(value)
        if "\0" in text:
            raise ConfigError(what=f"env.{name} holds a NUL", found=repr(text), fix="remove it")
        env[name] = text
    return env


def _has_number_keys(value: object) -> bool:
    if isinstance(value, dict):
        return any(not isinstance(key, str) or _has_number_keys(inner) for key, inner in value.items())
    return isinstance(value, (list, tuple)) and any(_has_number_keys(inner) for inner in value)


def _make_work(config: Config, facts: Facts, target: WorkTarget | None) -> WorkPlan:
    work = config.work
    if config.strategy.is_script and work.kwargs:
        raise ConfigError(
            what="a script takes no keyword arguments",
            found=f"work.kwargs={work.kwargs}",
            fix="give its own command line after --: strategy=script work.target=train.py -- --lr 0.1",
        )
    if _has_number_keys(work.kwargs) or _has_number_keys(work.args):
        raise ConfigError(
            what="a mapping in work.kwargs or work.args has keys that are no texts",
            found=f"work.kwargs={work.kwargs}, work.args={work.args}",
            fix="put the keys into quotes, and turn them into numbers in the work",
        )
    args = [str(word) for word in work.args] if config.strategy.is_script else work.args
    folders: Sequence[str] = target.folders if target is not None else ()
    return WorkPlan(
        file=target.file if target else None,
        module=target.module if target else None,
        name=target.name if target else None,
        folders=tuple(dict.fromkeys((*folders, *facts.python_path))),
        args=tuple(args),
        kwargs=dict(work.kwargs),
    )


def _make_strategy(config: Config, executor: WorkTarget | None) -> StrategyPlan:
    strategy = config.strategy
    return StrategyPlan(
        name=strategy.name,
        executor=f"{executor.module}:{executor.name}" if executor else strategy.executor,
        executor_file=executor.file if executor else None,
        preload=tuple(dict.fromkeys((*strategy.preload, *config.launch.preload))),
        is_script=strategy.is_script,
        backend=strategy.backend,
        timeout_s=strategy.timeout_s,
        fabric_cli=strategy.fabric_cli,
        auto_checkpoint=strategy.auto_checkpoint,
    )
