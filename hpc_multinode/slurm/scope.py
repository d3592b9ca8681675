"""Which nodes we are on: of the step inside srun, of the job only in the batch script of a job on one node. Pure.

List and count are always taken from one scope, and of a heterogeneous job from our own component.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpc_multinode.errors import SlurmEnvironmentError, format_variable
from hpc_multinode.slurm.counts import MAX_NODES, parse_count
from hpc_multinode.slurm.nodelist import expand_node_list
from hpc_multinode.slurm.variables import START_WITH_SRUN, Variable, find, parse, require, where

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The nodes of the step, or of the job where there is no step, with the variables that said so."""

    source: str
    node_list: Variable
    node_count: Variable
    hosts: tuple[str, ...]
    component: str


def read_step_scope(environ: Mapping[str, str]) -> Scope:
    """Return the nodes of the step that this process is a task of.

    Raises:
        SlurmEnvironmentError: The variables do not tell, or contradict each other.
    """
    components = read_components(environ)
    node_list = find(environ, "SLURM_STEP_NODELIST")
    if node_list is None and components:
        raise no_component(environ)
    # SLURM_NNODES describes the step inside srun, although SLURM_NODELIST beside it describes the job.
    count_names: tuple[str, ...] = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    if node_list is None:
        node_list = require(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        count_names = ("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    scope = _make_scope(environ, "slurm-step", node_list, count_names)
    if components:
        return _with_component(scope, components)
    job_list = find(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    job_hosts = expand_node_list(job_list.value, variable=job_list.name) if job_list else scope.hosts
    strangers = set(scope.hosts).difference(job_hosts)
    if strangers:
        raise SlurmEnvironmentError(
            what="the step has nodes that its job has not, so variables of two jobs are mixed",
            found=f"{scope.node_list}, {job_list} {where(environ)}",
            fix="start from a shell without the other job's SLURM_* variables, or use sbatch --export=NONE",
        )
    return scope


def read_batch_scope(environ: Mapping[str, str]) -> Scope:
    """Return the node of a batch script outside srun, whose job has that node alone.

    Raises:
        SlurmEnvironmentError: The job has more, or this is no batch script.
    """
    if read_components(environ):
        raise no_component(environ)
    node_list = find(environ, "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    on_node = find(environ, "SLURM_NODEID")
    if node_list is None or (on_node is None and not find(environ, "SLURMD_NODENAME")):
        seen = ", ".join(name for name in sorted(environ) if re.fullmatch(r"SLURM_(JOB|STEP|NODE)\w{0,30}", name))
        raise SlurmEnvironmentError(
            what="this process is not a task of a Slurm step: it is a login into a node, or a shell of salloc",
            found=f"no SLURM_STEP_ID of srun; set are {seen or 'none of SLURM_JOB*'} {where(environ)}",
            fix=f"{START_WITH_SRUN}, or use cluster=local for this machine alone",
        )
    scope = _make_scope(environ, "slurm-batch", node_list, ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"))
    if len(scope.hosts) > 1:
        raise SlurmEnvironmentError(
            what=f"this process runs outside srun, and nothing of us runs on the other nodes of {len(scope.hosts)}",
            found=f"{scope.node_count}, {scope.node_list}, no SLURM_STEP_ID of srun {where(environ)}",
            fix=START_WITH_SRUN,
        )
    return scope


def _make_scope(environ: Mapping[str, str], source: str, node_list: Variable, count_names: tuple[str, ...]) -> Scope:
    node_count = require(environ, *count_names)
    expected = parse_count(node_count.value, variable=node_count.name, minimum=1, maximum=MAX_NODES)
    hosts = expand_node_list(node_list.value, variable=node_list.name)
    if len(hosts) != expected or len(set(hosts)) != len(hosts):
        repeated = "" if len(set(hosts)) == len(hosts) else ", and a name comes twice"
        raise SlurmEnvironmentError(
            what=f"{node_list.name} and {node_count.name} disagree on the nodes",
            found=f"{node_list} names {len(hosts)} nodes{repeated}, {node_count} {where(environ)}",
            fix=f"both must come from one srun: {START_WITH_SRUN}",
        )
    return Scope(source=source, node_list=node_list, node_count=node_count, hosts=hosts, component="")


def read_components(environ: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each component of a heterogeneous job, none for an ordinary job."""
    components: dict[str, tuple[str, ...]] = {}
    for name in sorted(environ):
        match = re.fullmatch(r"SLURM_JOB_NODELIST_(?:HET|PACK)_GROUP_([0-9]{1,6})", name, re.ASCII)
        if match and environ[name].strip():
            components[match[1]] = expand_node_list(environ[name], variable=name)
    size = find(environ, "SLURM_HET_SIZE", "SLURM_PACK_SIZE")
    if size and parse(size) > 1 and not components:
        components[""] = ()
    return components


def _with_component(scope: Scope, components: dict[str, tuple[str, ...]]) -> Scope:
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


def no_component(environ: Mapping[str, str]) -> SlurmEnvironmentError:
    """Compose the error of a process that is in no component of its heterogeneous job."""
    names = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
    lists = [name for name in sorted(environ) if re.fullmatch(r"SLURM_JOB_NODELIST_HET_GROUP_[0-9]{1,6}", name)]
    seen = [format_variable(name, environ[name]) for name in (*names, *lists) if environ.get(name, "").strip()]
    return SlurmEnvironmentError(
        what="heterogeneous job: choose a group, for this process is in no step of one of its components",
        found=f"{', '.join(seen)}, no SLURM_STEP_NODELIST of a step of srun {where(environ)}",
        fix="start it in one component: srun --het-group=N --ntasks-per-node=1 python -m hpc_multinode ...",
    )
