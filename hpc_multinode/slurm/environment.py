"""From Slurm's variables to a node context that is right, or to an error that says why it is not.

Pure: every function reads the mapping it is given, runs no command and resolves no name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpc_multinode.context import NodeContext
from hpc_multinode.devices import find_device_variable, parse_gpus_option, parse_visible_devices
from hpc_multinode.errors import ConfigError, SlurmEnvironmentError
from hpc_multinode.ports import make_port_candidates
from hpc_multinode.slurm.counts import parse_counts_per_node
from hpc_multinode.slurm.main_address import choose_main_address
from hpc_multinode.slurm.nodelist import expand_node_list
from hpc_multinode.slurm.scope import Scope, no_component, read_batch_scope, read_components, read_step_scope
from hpc_multinode.slurm.variables import START_WITH_SRUN, Variable, find, parse, require, where

if TYPE_CHECKING:
    from collections.abc import Mapping

# Step ids from here on are no steps of srun: batch script, interactive shell of salloc, external processes.
FIRST_SPECIAL_STEP_ID = 4_294_967_280

# Newest first, and the step's before what may be the job's.
_TASK_TOTALS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")


def has_job(environ: Mapping[str, str]) -> bool:
    """Tell whether this process belongs to a job; a login through ssh into one of its nodes does too."""
    return find(environ, "SLURM_JOB_ID", "SLURM_JOBID") is not None


def is_plain_step(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is a task that srun started, not a batch script or the shell of salloc."""
    step = find(environ, "SLURM_STEP_ID", "SLURM_STEPID")
    if step is None or not re.fullmatch(r"[0-9]{1,10}", step.value, re.ASCII):
        return False
    return int(step.value) < FIRST_SPECIAL_STEP_ID


def parse_job_id(environ: Mapping[str, str]) -> str | None:
    """Return the job id as people write it (``4711``, ``4700_3`` in an array), or None where there is no job.

    Raises:
        SlurmEnvironmentError: It is not a number.
    """
    job = find(environ, "SLURM_JOB_ID", "SLURM_JOBID")
    if job is None:
        return None
    array_job, task = find(environ, "SLURM_ARRAY_JOB_ID"), find(environ, "SLURM_ARRAY_TASK_ID")
    if array_job and task:
        return f"{parse(array_job)}_{parse(task)}"
    return str(parse(job))


def parse_cluster_name(environ: Mapping[str, str]) -> str | None:
    """Return the name of the cluster that this job is on, where it is told."""
    cluster = find(environ, "SLURM_CLUSTER_NAME")
    return cluster.value if cluster else None


def parse_restart_count(environ: Mapping[str, str]) -> int:
    """Return how often Slurm has requeued this job. Count from 0, which is what an absent variable means."""
    count = find(environ, "SLURM_RESTART_COUNT")
    return parse(count) if count else 0


def parse_cpus_on_node(environ: Mapping[str, str]) -> int | None:
    """Return the CPUs that Slurm gave the step (or the job) on this node, for thread counts.

    Returns:
        Count, at least 1; None where the variables cannot tell, as when nodes differ and this one has no name.

    Raises:
        SlurmEnvironmentError: A variable is malformed.
    """
    on_node = find(environ, "SLURM_CPUS_ON_NODE")
    if on_node:
        return parse(on_node, minimum=1)
    per_node = find(environ, "SLURM_JOB_CPUS_PER_NODE")
    if per_node is None:
        return None
    counts = parse_counts_per_node(per_node.value, variable=per_node.name)
    if len(set(counts)) == 1:
        return counts[0]
    # The list of CPUs goes with the job's nodes, whatever part of them the step has.
    node_list, name = find(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST"), find(environ, "SLURMD_NODENAME")
    hosts = expand_node_list(node_list.value, variable=node_list.name) if node_list else ()
    if name is None or name.value not in hosts or len(hosts) != len(counts):
        return None
    return counts[hosts.index(name.value)]


def parse_gpus_on_node(environ: Mapping[str, str]) -> int | None:
    """Return how many GPUs this node has for us, from what is visible, else from what Slurm says it gave.

    Returns:
        Count from 0; None where no variable tells.

    Raises:
        MultiNodeError: A variable is malformed.
    """
    visible = parse_visible_devices(environ)
    if visible is not None:
        return len(visible)
    on_node = find(environ, "SLURM_GPUS_ON_NODE")
    if on_node:
        return parse(on_node)
    per_node = find(environ, "SLURM_GPUS_PER_NODE")
    return sum(parse_gpus_option(per_node.value, source=per_node.name).values()) if per_node else None


def parse_allocated_nodes(environ: Mapping[str, str]) -> int:
    """Return how many nodes the job has that this shell, script or notebook belongs to. Count, at least 1.

    Raises:
        SlurmEnvironmentError: The variables do not tell, as after a login through ssh.
    """
    if read_components(environ):
        raise no_component(environ)
    count = find(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    if count is None:
        raise SlurmEnvironmentError(
            what="this shell knows its job, but not the job's nodes",
            found=f"{where(environ)}, SLURM_JOB_NUM_NODES and SLURM_NNODES are unset",
            fix="cluster=local for this machine alone, or start the run from salloc, sbatch or srun",
        )
    return parse(count, 1)


def parse_node_context(
    environ: Mapping[str, str],
    *,
    local_world_size: int,
    hostname: str,
    gpus_per_node: int | None = None,
    main_address: str | None = None,
    num_nodes: int | None = None,
    secret: bytes = b"",
    user: str = "",
) -> NodeContext:
    """Read this node's place in the job step from Slurm's variables.

    Pure: reads only ``environ``, runs no command, resolves no name, changes nothing. An empty variable counts as
    unset.

    Args:
        environ: Variables of one task of the step, normally ``os.environ``.
        local_world_size: Workers this node will start. Count, at least 1.
        hostname: This machine's own name, used only where ``SLURMD_NODENAME`` is unset.
        gpus_per_node: GPUs the run asks for on each node. Count from 0, or None where it does not say.
        main_address: An address given by hand, which goes to the workers unchanged; ``{host}`` in it stands for the
            computed host. None or empty: computed.
        num_nodes: Nodes the run asks for, at least 1, or None to take the step's.
        secret: What only the person's own processes know, for the ports.
        user: The user's name, for the ports.

    Returns:
        Rank and size in nodes and the host list in node order. ``devices`` holds all that are visible, so it may
        be longer than ``gpus_per_node``; it is empty where no variable says which are visible.

    Raises:
        SlurmEnvironmentError: A variable is absent, malformed, or contradicts another or what the run asks for.
        ConfigError: An argument that comes from the configuration makes no sense.

    Source:
        srun(1), OUTPUT ENVIRONMENT VARIABLES. https://slurm.schedmd.com/srun.html
    """
    _check_sizes(num_nodes=num_nodes, local_world_size=local_world_size, gpus_per_node=gpus_per_node)
    job_id = parse_job_id(environ)
    if job_id is None:
        raise SlurmEnvironmentError(
            what="this process belongs to no Slurm job",
            found="neither SLURM_JOB_ID nor SLURM_JOBID is set",
            fix=f"{START_WITH_SRUN}, or use cluster=local for this machine alone",
        )
    scope = read_step_scope(environ) if is_plain_step(environ) else read_batch_scope(environ)
    _check_requested_nodes(environ, scope, num_nodes)
    node_rank = _parse_node_rank(environ, scope)
    if scope.source == "slurm-step":
        _check_one_task_a_node(environ, scope)
    _check_requested_tasks(environ, scope)
    address = choose_main_address(environ, scope, node_rank=node_rank, given=main_address, hostname=hostname)
    step = find(environ, "SLURM_STEP_ID", "SLURM_STEPID") if scope.source == "slurm-step" else None
    step_id = str(parse(step)) if step else None
    restart_count = parse_restart_count(environ)
    # Both forms of the job id: array variables can be left over from the job that submitted this one.
    own_job = find(environ, "SLURM_JOB_ID", "SLURM_JOBID")
    identity = (job_id, own_job.value if own_job else "", step_id or scope.source, scope.component, str(restart_count))
    return NodeContext(
        job_id=job_id,
        step_id=step_id,
        node_rank=node_rank,
        num_nodes=len(scope.hosts),
        hosts=scope.hosts,
        main_address=address,
        port_candidates=make_port_candidates(*identity, user, secret=secret),
        local_world_size=local_world_size,
        devices=find_devices(environ, gpus_per_node),
        restart_count=restart_count,
        source=scope.source,
        component=scope.component,
    )


def _check_sizes(*, num_nodes: int | None, local_world_size: int, gpus_per_node: int | None) -> None:
    if local_world_size < 1 or (num_nodes is not None and num_nodes < 1) or (gpus_per_node or 0) < 0:
        raise ConfigError(
            what="a run needs at least one node and one worker on it, and no negative number of GPUs",
            found=f"nodes={num_nodes}, workers per node={local_world_size}, resources.gpus_per_node={gpus_per_node}",
            fix="set nodes and resources.workers_per_node to 1 or more, resources.gpus_per_node to 0 or more",
        )


def _check_requested_nodes(environ: Mapping[str, str], scope: Scope, num_nodes: int | None) -> None:
    actual = len(scope.hosts)
    if num_nodes is None or num_nodes == actual:
        return
    have = "fewer" if actual < num_nodes else "more"
    place = "step" if scope.source == "slurm-step" else "allocation"
    raise SlurmEnvironmentError(
        what=f"the {place} has {have} nodes than the run asks for",
        found=f"{scope.node_count} {where(environ)}, nodes={num_nodes}",
        fix=f"nodes={actual}, or start the step with srun --nodes={num_nodes}",
    )


def _parse_node_rank(environ: Mapping[str, str], scope: Scope) -> int:
    node_id = require(environ, "SLURM_NODEID")
    rank = parse(node_id)
    if rank >= len(scope.hosts):
        raise SlurmEnvironmentError(
            what="the number of this node is not below the number of nodes",
            found=f"{node_id}, {scope.node_count} {where(environ)}",
            fix=f"do not set either by hand: {START_WITH_SRUN}",
        )
    return rank


def _check_one_task_a_node(environ: Mapping[str, str], scope: Scope) -> None:
    evidence: list[Variable] = []
    layout = find(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    if layout:
        counts = parse_counts_per_node(layout.value, variable=layout.name)
        # Of a step on part of the job the older name may still describe the job.
        is_jobs = layout.name == "SLURM_TASKS_PER_NODE" and scope.node_list.name == "SLURM_STEP_NODELIST"
        if len(counts) != len(scope.hosts) and not is_jobs:
            raise SlurmEnvironmentError(
                what=f"{layout.name} and {scope.node_count.name} disagree on the nodes",
                found=f"{layout} describes {len(counts)} nodes, {scope.node_count} {where(environ)}",
                fix=f"both must come from one srun: {START_WITH_SRUN}",
            )
        if len(counts) == len(scope.hosts) and set(counts) != {1}:
            evidence.append(layout)
    total = find(environ, *_TASK_TOTALS)
    if total and parse(total) != len(scope.hosts):
        evidence.append(total)
    local_id = find(environ, "SLURM_LOCALID")
    if local_id and parse(local_id):
        evidence.append(local_id)
    if evidence:
        raise SlurmEnvironmentError(
            what="the step does not have one task on each node, which is what starts the workers there",
            found=f"{', '.join(map(str, evidence))}, {scope.node_count} {where(environ)}",
            fix=f"srun --nodes={len(scope.hosts)} --ntasks={len(scope.hosts)} --ntasks-per-node=1; the number of "
            "workers on a node is resources.workers_per_node",
        )


def _check_requested_tasks(environ: Mapping[str, str], scope: Scope) -> None:
    """Compare what was asked for with what runs: the request alone says nothing about the world."""
    request = find(environ, "SLURM_NTASKS_PER_NODE")
    totals = [total for name in _TASK_TOTALS if (total := find(environ, name))]
    if request is None or (scope.source != "slurm-step" and not totals):
        return
    actual = 1 if scope.source == "slurm-step" else parse(totals[0])
    if parse(request) != actual:
        seen = ", ".join(map(str, totals)) or f"{scope.node_count} with one task on each"
        raise SlurmEnvironmentError(
            what="the tasks asked for on each node are not the tasks that run",
            found=f"{request}, but {seen} {where(environ)}",
            fix="srun --ntasks-per-node=1; the number of workers on a node is resources.workers_per_node",
        )


def find_devices(environ: Mapping[str, str], gpus_per_node: int | None) -> tuple[str, ...]:
    """Return the devices that are visible on this node, or () where no variable tells.

    Args:
        environ: Variables of one task of the step.
        gpus_per_node: GPUs that the run asks for, or None.

    Raises:
        SlurmEnvironmentError: Fewer are visible than the run asks for.
    """
    devices = parse_visible_devices(environ)
    if not gpus_per_node:
        return devices or ()
    mask = find_device_variable(environ)
    evidence = Variable(*mask) if mask else find(environ, "SLURM_GPUS_ON_NODE")
    visible = len(devices) if devices is not None else parse(evidence) if evidence else gpus_per_node
    if visible < gpus_per_node:
        raise SlurmEnvironmentError(
            what="this node has fewer GPUs for the run than it asks for",
            found=f"asked {gpus_per_node} (resources.gpus_per_node), visible {visible}: {evidence} {where(environ)}",
            fix=f"ask Slurm for them (--gpus-per-node={gpus_per_node} without GPU binding of tasks), or set "
            f"resources.gpus_per_node={visible}",
        )
    return devices or ()
