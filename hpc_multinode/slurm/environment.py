"""From Slurm's variables to a node context that is right, or to an error that says why it is not.

Pure: every function reads the mapping it is given, runs no command and resolves no name. The one module that reads
``SLURM_*``. List, count and id of the nodes are always taken from one scope: the step's inside srun, the job's only
in the batch script of a job on one node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from hpc_multinode.context import NodeContext
from hpc_multinode.devices import find_device_variable, parse_gpus_option, parse_visible_devices
from hpc_multinode.errors import ConfigError, SlurmEnvironmentError
from hpc_multinode.ports import (
    HOST_PLACEHOLDER,
    is_ip_literal,
    is_loopback,
    is_same_address,
    make_port_candidates,
    render_main_address,
)
from hpc_multinode.slurm.counts import MAX_NODES, format_value, format_variable, parse_count, parse_counts_per_node
from hpc_multinode.slurm.nodelist import expand_node_list, find_named_node, is_same_host

if TYPE_CHECKING:
    from collections.abc import Mapping

# Step ids from here on are no steps of srun: batch script, interactive shell of salloc, external processes.
FIRST_SPECIAL_STEP_ID = 4_294_967_280

# Variables that describe an outer job, or a rank in an outer launcher. A worker or a new job that inherits them
# believes in ranks that are not its own.
LEAKING_PREFIXES = (
    "SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SUBMITIT_",
    "PMI_", "PMI2_", "PMIX_", "PRTE_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "HYDI_",
    "TORCHELASTIC_", "PET_RDZV_",
)  # fmt: skip
LEAKING_NAMES = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GLOBAL_RANK", "NODE_RANK",
    "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
    "MASTER_ADDR", "MASTER_PORT", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "OMPI_UNIVERSE_SIZE",
    "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
    # Sizes that `fabric run` and Lightning's launchers hand down. PL_TRAINER_MAX_EPOCHS and its like are wishes of
    # the person and stay.
    "LT_CLI_USED", "LT_NUM_NODES", "LT_DEVICES", "PL_TRAINER_NUM_NODES", "PL_TRAINER_DEVICES",
})  # fmt: skip
# Where Slurm's own commands find the cluster and how they log in there: true inside and outside of any job.
_KEPT_NAMES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_TIME_FORMAT"})

# Newest first, and the step's before what may be the job's.
_TASK_TOTALS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")

_START_WITH_SRUN = "start one task on each node with srun: srun --ntasks-per-node=1 python -m hpc_multinode ..."


class _Variable(NamedTuple):
    name: str
    value: str

    def __str__(self) -> str:
        return format_variable(self.name, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The nodes of the step, or of the job where there is no step, with the variables that said so."""

    source: str
    node_list: _Variable
    node_count: _Variable
    hosts: tuple[str, ...]
    component: str


def has_job(environ: Mapping[str, str]) -> bool:
    """Tell whether this process belongs to a job; a login through ssh into one of its nodes does too."""
    return _find(environ, "SLURM_JOB_ID", "SLURM_JOBID") is not None


def is_plain_step(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is a task that srun started, not a batch script or the shell of salloc."""
    step = _find(environ, "SLURM_STEP_ID", "SLURM_STEPID")
    if step is None or not re.fullmatch(r"[0-9]{1,10}", step.value, re.ASCII):
        return False
    return int(step.value) < FIRST_SPECIAL_STEP_ID


def is_leaking(name: str) -> bool:
    """Tell whether a variable of an outer job or launcher must not reach a worker or a job of ours.

    ``SLURM_*`` leaks as a whole, but for where to find the cluster; whoever wants a worker to know its job hands
    those names on by purpose.
    """
    if name in _KEPT_NAMES:
        return False
    return name in LEAKING_NAMES or name.startswith(LEAKING_PREFIXES)


def parse_job_id(environ: Mapping[str, str]) -> str | None:
    """Return the job id as people write it (``4711``, ``4700_3`` in an array), or None where there is no job.

    Raises:
        SlurmEnvironmentError: It is not a number.
    """
    job = _find(environ, "SLURM_JOB_ID", "SLURM_JOBID")
    if job is None:
        return None
    array_job, task = _find(environ, "SLURM_ARRAY_JOB_ID"), _find(environ, "SLURM_ARRAY_TASK_ID")
    if array_job and task:
        return f"{_parse(array_job)}_{_parse(task)}"
    return str(_parse(job))


def parse_restart_count(environ: Mapping[str, str]) -> int:
    """Return how often Slurm has requeued this job. Count from 0, which is what an absent variable means."""
    count = _find(environ, "SLURM_RESTART_COUNT")
    return _parse(count) if count else 0


def parse_cpus_on_node(environ: Mapping[str, str]) -> int | None:
    """Return the CPUs that Slurm gave the step (or the job) on this node, for thread counts.

    Returns:
        Count, at least 1; None where the variables cannot tell, as when nodes differ and this one has no name.

    Raises:
        SlurmEnvironmentError: A variable is malformed.
    """
    on_node = _find(environ, "SLURM_CPUS_ON_NODE")
    if on_node:
        return _parse(on_node, minimum=1)
    per_node = _find(environ, "SLURM_JOB_CPUS_PER_NODE")
    if per_node is None:
        return None
    counts = parse_counts_per_node(per_node.value, variable=per_node.name)
    if len(set(counts)) == 1:
        return counts[0]
    # The list of CPUs goes with the job's nodes, whatever part of them the step has.
    node_list, name = _find(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST"), _find(environ, "SLURMD_NODENAME")
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
    on_node = _find(environ, "SLURM_GPUS_ON_NODE")
    if on_node:
        return _parse(on_node)
    per_node = _find(environ, "SLURM_GPUS_PER_NODE")
    return sum(parse_gpus_option(per_node.value, source=per_node.name).values()) if per_node else None


def parse_allocated_nodes(environ: Mapping[str, str]) -> int:
    """Return how many nodes the job has that this shell, script or notebook belongs to. Count, at least 1.

    Raises:
        SlurmEnvironmentError: The variables do not tell, as after a login through ssh.
    """
    if _read_components(environ):
        raise _no_component(environ)
    count = _find(environ, "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    if count is None:
        raise SlurmEnvironmentError(
            what="this shell knows its job, but not the job's nodes",
            found=f"{_where(environ)}, SLURM_JOB_NUM_NODES and SLURM_NNODES are unset",
            fix="cluster=local for this machine alone, or start the run from salloc, sbatch or srun",
        )
    return _parse(count, 1)


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
    if local_world_size < 1 or (num_nodes is not None and num_nodes < 1) or (gpus_per_node or 0) < 0:
        raise ConfigError(
            what="a run needs at least one node and one worker on it, and no negative number of GPUs",
            found=f"nodes={num_nodes}, workers per node={local_world_size}, resources.gpus_per_node={gpus_per_node}",
            fix="set nodes and resources.workers_per_node to 1 or more, resources.gpus_per_node to 0 or more",
        )
    job_id = parse_job_id(environ)
    if job_id is None:
        raise SlurmEnvironmentError(
            what="this process belongs to no Slurm job",
            found="neither SLURM_JOB_ID nor SLURM_JOBID is set",
            fix=f"{_START_WITH_SRUN}, or use cluster=local for this machine alone",
        )
    scope = _read_step_scope(environ) if is_plain_step(environ) else _read_batch_scope(environ)
    _check_requested_nodes(environ, scope, num_nodes)
    node_rank = _parse_node_rank(environ, scope)
    if scope.source == "slurm-step":
        _check_one_task_a_node(environ, scope)
    _check_requested_tasks(environ, scope)
    address = _choose_main_address(environ, scope, node_rank=node_rank, given=main_address, hostname=hostname)
    step = _find(environ, "SLURM_STEP_ID", "SLURM_STEPID") if scope.source == "slurm-step" else None
    step_id = str(_parse(step)) if step else None
    restart_count = parse_restart_count(environ)
    # Both forms of the job id: array variables can be left over from the job that submitted this one.
    own_job = _find(environ, "SLURM_JOB_ID", "SLURM_JOBID")
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
        devices=_check_devices(environ, gpus_per_node),
        restart_count=restart_count,
        source=scope.source,
        component=scope.component,
    )


def _find(environ: Mapping[str, str], *names: str) -> _Variable | None:
    """Return the first of these variables that is set and not blank: the newest name comes first."""
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return _Variable(name, value)
    return None


def _require(environ: Mapping[str, str], *names: str) -> _Variable:
    found = _find(environ, *names)
    if found is None:
        unset = [format_variable(name, environ[name]) if name in environ else f"{name} is unset" for name in names]
        raise SlurmEnvironmentError(
            what=f"{names[0]} is missing from the environment of this task",
            found=f"{', '.join(unset)} {_where(environ)}",
            fix=f"{_START_WITH_SRUN}; a container or wrapper in between must pass SLURM_* on",
        )
    return found


def _parse(variable: _Variable, minimum: int = 0) -> int:
    return parse_count(variable.value, variable=variable.name, minimum=minimum)


def _where(environ: Mapping[str, str]) -> str:
    node, job = _find(environ, "SLURMD_NODENAME"), _find(environ, "SLURM_JOB_ID", "SLURM_JOBID")
    place = f"on {format_value(node.value)} " if node else ""
    return f"{place}(job {format_value(job.value)})" if job else f"{place}(no job)"


def _read_step_scope(environ: Mapping[str, str]) -> _Scope:
    components = _read_components(environ)
    node_list = _find(environ, "SLURM_STEP_NODELIST")
    if node_list is None and components:
        raise _no_component(environ)
    # SLURM_NNODES describes the step inside srun, although SLURM_NODELIST beside it describes the job.
    count_names: tuple[str, ...] = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    if node_list is None:
        node_list = _require(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        count_names = ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    scope = _make_scope(environ, "slurm-step", node_list, count_names)
    if components:
        return _with_component(scope, components)
    job_list = _find(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    job_hosts = expand_node_list(job_list.value, variable=job_list.name) if job_list else scope.hosts
    strangers = set(scope.hosts).difference(job_hosts)
    if strangers:
        raise SlurmEnvironmentError(
            what="the step has nodes that its job has not, so variables of two jobs are mixed",
            found=f"{scope.node_list}, {job_list} {_where(environ)}",
            fix="start from a shell without the other job's SLURM_* variables, or use sbatch --export=NONE",
        )
    return scope


def _read_batch_scope(environ: Mapping[str, str]) -> _Scope:
    if _read_components(environ):
        raise _no_component(environ)
    node_list = _find(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    on_node = _find(environ, "SLURM_NODEID")
    if node_list is None or (on_node is None and not _find(environ, "SLURMD_NODENAME")):
        seen = ", ".join(name for name in sorted(environ) if re.fullmatch(r"SLURM_(JOB|STEP|NODE)\w{0,30}", name))
        raise SlurmEnvironmentError(
            what="this process is not a task of a Slurm step: it is a login into a node, or a shell of salloc",
            found=f"no SLURM_STEP_ID of srun; set are {seen or 'none of SLURM_JOB*'} {_where(environ)}",
            fix=f"{_START_WITH_SRUN}, or use cluster=local for this machine alone",
        )
    scope = _make_scope(environ, "slurm-batch", node_list, ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"))
    if len(scope.hosts) > 1:
        raise SlurmEnvironmentError(
            what=f"this process runs outside srun, and nothing of us runs on the other nodes of {len(scope.hosts)}",
            found=f"{scope.node_count}, {scope.node_list}, no SLURM_STEP_ID of srun {_where(environ)}",
            fix=_START_WITH_SRUN,
        )
    return scope


def _make_scope(environ: Mapping[str, str], source: str, node_list: _Variable, count_names: tuple[str, ...]) -> _Scope:
    node_count = _require(environ, *count_names)
    expected = parse_count(node_count.value, variable=node_count.name, minimum=1, maximum=MAX_NODES)
    hosts = expand_node_list(node_list.value, variable=node_list.name)
    if len(hosts) != expected or len(set(hosts)) != len(hosts):
        repeated = "" if len(set(hosts)) == len(hosts) else ", and a name comes twice"
        raise SlurmEnvironmentError(
            what=f"{node_list.name} and {node_count.name} disagree on the nodes",
            found=f"{node_list} names {len(hosts)} nodes{repeated}, {node_count} {_where(environ)}",
            fix=f"both must come from one srun: {_START_WITH_SRUN}",
        )
    return _Scope(source=source, node_list=node_list, node_count=node_count, hosts=hosts, component="")


def _read_components(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each component of a heterogeneous job, none for an ordinary job."""
    components: dict[str, tuple[str, ...]] = {}
    for name in sorted(environ):
        match = re.fullmatch(r"SLURM_JOB_NODELIST_(?:HET|PACK)_GROUP_([0-9]{1,6})", name, re.ASCII)
        if match and environ[name].strip():
            components[match[1]] = expand_node_list(environ[name], variable=name)
    size = _find(environ, "SLURM_HET_SIZE", "SLURM_PACK_SIZE")
    if size and _parse(size) > 1 and not components:
        components[""] = ()
    return components


def _with_component(scope: _Scope, components: dict[str, tuple[str, ...]]) -> _Scope:
    """Find the component whose nodes the step has; a step over two of them would mix unlike nodes."""
    known = {group: hosts for group, hosts in components.items() if hosts}
    for group, hosts in known.items():
        if set(scope.hosts) <= set(hosts):
            return replace(scope, component=group)
    if not known:
        return scope
    lists = [f"{group}: {', '.join(hosts[:8])}" for group, hosts in known.items()]
    raise SlurmEnvironmentError(
        what="heterogeneous job: the step's nodes are not those of one component",
        found=f"{scope.node_list}; the components have {'; '.join(lists)}",
        fix="start one step in one component: srun --het-group=N --ntasks-per-node=1 python -m hpc_multinode ...",
    )


def _no_component(environ: Mapping[str, str]) -> SlurmEnvironmentError:
    names = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
    lists = [name for name in sorted(environ) if re.fullmatch(r"SLURM_JOB_NODELIST_HET_GROUP_[0-9]{1,6}", name)]
    seen = [format_variable(name, environ[name]) for name in (*names, *lists) if environ.get(name, "").strip()]
    return SlurmEnvironmentError(
        what="heterogeneous job: choose a group, for this process is in no step of one of its components",
        found=f"{', '.join(seen)}, no SLURM_STEP_NODELIST of a step of srun {_where(environ)}",
        fix="start it in one component: srun --het-group=N --ntasks-per-node=1 python -m hpc_multinode ...",
    )


def _check_requested_nodes(environ: Mapping[str, str], scope: _Scope, num_nodes: int | None) -> None:
    actual = len(scope.hosts)
    if num_nodes is None or num_nodes == actual:
        return
    have = "fewer" if actual < num_nodes else "more"
    place = "step" if scope.source == "slurm-step" else "allocation"
    raise SlurmEnvironmentError(
        what=f"the {place} has {have} nodes than the run asks for",
        found=f"{scope.node_count} {_where(environ)}, nodes={num_nodes}",
        fix=f"nodes={actual}, or start the step with srun --nodes={num_nodes}",
    )


def _parse_node_rank(environ: Mapping[str, str], scope: _Scope) -> int:
    node_id = _require(environ, "SLURM_NODEID")
    rank = _parse(node_id)
    if rank >= len(scope.hosts):
        raise SlurmEnvironmentError(
            what="the number of this node is not below the number of nodes",
            found=f"{node_id}, {scope.node_count} {_where(environ)}",
            fix=f"do not set either by hand: {_START_WITH_SRUN}",
        )
    return rank


def _check_one_task_a_node(environ: Mapping[str, str], scope: _Scope) -> None:
    evidence: list[_Variable] = []
    layout = _find(environ, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    if layout:
        counts = parse_counts_per_node(layout.value, variable=layout.name)
        # Of a step on part of the job the older name may still describe the job.
        is_jobs = layout.name == "SLURM_TASKS_PER_NODE" and scope.node_list.name == "SLURM_STEP_NODELIST"
        if len(counts) != len(scope.hosts) and not is_jobs:
            raise SlurmEnvironmentError(
                what=f"{layout.name} and {scope.node_count.name} disagree on the nodes",
                found=f"{layout} describes {len(counts)} nodes, {scope.node_count} {_where(environ)}",
                fix=f"both must come from one srun: {_START_WITH_SRUN}",
            )
        if len(counts) == len(scope.hosts) and set(counts) != {1}:
            evidence.append(layout)
    total = _find(environ, *_TASK_TOTALS)
    if total and _parse(total) != len(scope.hosts):
        evidence.append(total)
    local_id = _find(environ, "SLURM_LOCALID")
    if local_id and _parse(local_id):
        evidence.append(local_id)
    if evidence:
        raise SlurmEnvironmentError(
            what="the step does not have one task on each node, which is what starts the workers there",
            found=f"{', '.join(map(str, evidence))}, {scope.node_count} {_where(environ)}",
            fix=f"srun --nodes={len(scope.hosts)} --ntasks={len(scope.hosts)} --ntasks-per-node=1; the number of "
            "workers on a node is resources.workers_per_node",
        )


def _check_requested_tasks(environ: Mapping[str, str], scope: _Scope) -> None:
    """Compare what was asked for with what runs: the request alone says nothing about the world."""
    request = _find(environ, "SLURM_NTASKS_PER_NODE")
    totals = [total for name in _TASK_TOTALS if (total := _find(environ, name))]
    if request is None or (scope.source != "slurm-step" and not totals):
        return
    actual = 1 if scope.source == "slurm-step" else _parse(totals[0])
    if _parse(request) != actual:
        seen = ", ".join(map(str, totals)) or f"{scope.node_count} with one task on each"
        raise SlurmEnvironmentError(
            what="the tasks asked for on each node are not the tasks that run",
            found=f"{request}, but {seen} {_where(environ)}",
            fix="srun --ntasks-per-node=1; the number of workers on a node is resources.workers_per_node",
        )


def _choose_main_address(
    environ: Mapping[str, str], scope: _Scope, *, node_rank: int, given: str | None, hostname: str
) -> str:
    hosts = scope.hosts
    is_computed = not given or HOST_PLACEHOLDER in given
    if node_rank == 0 and is_computed:
        _check_first_host(environ, scope, hostname)
    # On a single node nothing has to be resolved.
    computed = hosts[0] if len(hosts) > 1 else "127.0.0.1"
    address = render_main_address(given, host=hosts[0]) if given else computed
    if len(hosts) > 1:
        _check_reachable(environ, scope, address)
        if not is_computed:
            _check_names_node_0(environ, scope, address, node_rank=node_rank, hostname=hostname)
    return address


def _check_first_host(environ: Mapping[str, str], scope: _Scope, hostname: str) -> None:
    """On node 0: its own name must be the one that the others will call."""
    name = _find(environ, "SLURMD_NODENAME")
    first = scope.hosts[0]
    is_first = name.value == first if name else len(scope.hosts) == 1 or is_same_host(hostname, first)
    if is_first:
        return
    own = format_value(name.value if name else hostname)
    distribution = _find(environ, "SLURM_DISTRIBUTION")
    raise SlurmEnvironmentError(
        what=f"node 0 is {own}, but the node list begins with {first}, where the others would look for it",
        found=f"SLURM_NODEID=0 with {name or format_variable('host name', hostname)}, {scope.node_list}"
        + (f", {distribution}" if distribution else ""),
        fix=f"set launch.main_address={own}, or start the step without a host file or arbitrary distribution",
    )


def _check_reachable(environ: Mapping[str, str], scope: _Scope, address: str) -> None:
    """Refuse addresses that lead every node to itself, or all of them to the login node."""
    found, what = f"main address {address}, {scope.node_count} {_where(environ)}", ""
    if is_loopback(address):
        what = "the main address leads every node to itself"
    # Inside a batch script or the shell of salloc on a node, srun's own machine is a node of the job.
    is_started_inside = environ.get("ENVIRONMENT") == "BATCH" or _find(environ, "SLURM_PTY_PORT") is not None
    launch, submit = _find(environ, "SLURM_LAUNCH_NODE_IPADDR"), _find(environ, "SLURM_SUBMIT_HOST")
    if launch and not is_started_inside and is_same_address(address, launch.value):
        what, found = "the main address is that of the machine that called srun", f"{found}, {launch}"
    is_node = any(is_same_host(address, host) for host in scope.hosts)
    if submit and not is_node and is_same_host(address, submit.value):
        what, found = "the main address is the machine from which the job was submitted", f"{found}, {submit}"
    if what:
        raise SlurmEnvironmentError(
            what=what,
            found=found,
            fix=f"leave launch.main_address out, or name node 0 by an address the others reach: {scope.hosts[0]}",
        )


def _check_names_node_0(
    environ: Mapping[str, str], scope: _Scope, address: str, *, node_rank: int, hostname: str
) -> None:
    """Refuse a hand-given address that names another node of the list; aliases and IP addresses cannot be judged."""
    named = None if is_ip_literal(address) else find_named_node(address, scope.hosts)
    if named is None:
        return
    name = _find(environ, "SLURMD_NODENAME")
    own = next((host for host in scope.hosts if (host == name.value if name else is_same_host(hostname, host))), None)
    distribution = _find(environ, "SLURM_DISTRIBUTION")
    is_arbitrary = distribution is not None and distribution.value.startswith("arbitrary")
    # Where nodes are not numbered in the order of the list, only node 0 knows who node 0 is.
    node_0 = own or scope.hosts[0]
    if node_rank:
        node_0 = "" if is_arbitrary or own != scope.hosts[node_rank] else scope.hosts[0]
    if (node_0 and named != node_0) or (node_rank and named == own):
        node_0, place = node_0 or f"not {named}", own or format_value(hostname)
        raise SlurmEnvironmentError(
            what=f"launch.main_address names {named}, but node 0, where global rank 0 runs, is {node_0}",
            found=f"launch.main_address={address}, SLURM_NODEID={node_rank} on {place}, {scope.node_list}",
            fix=f"leave launch.main_address out, or name node 0 in it ({{host}} stands for {scope.hosts[0]})",
        )


def _check_devices(environ: Mapping[str, str], gpus_per_node: int | None) -> tuple[str, ...]:
    """Return the visible devices, or () where no variable tells; fewer than asked for is an error."""
    devices = parse_visible_devices(environ)
    if not gpus_per_node:
        return devices or ()
    mask = find_device_variable(environ)
    evidence = _Variable(*mask) if mask else _find(environ, "SLURM_GPUS_ON_NODE")
    visible = len(devices) if devices is not None else _parse(evidence) if evidence else gpus_per_node
    if visible < gpus_per_node:
        raise SlurmEnvironmentError(
            what="this node has fewer GPUs for the run than it asks for",
            found=f"asked {gpus_per_node} (resources.gpus_per_node), visible {visible}: {evidence} {_where(environ)}",
            fix=f"ask Slurm for them (--gpus-per-node={gpus_per_node} without GPU binding of tasks), or set "
            f"resources.gpus_per_node={visible}",
        )
    return devices or ()
