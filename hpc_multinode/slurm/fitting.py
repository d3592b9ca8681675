"""Whether a job fits a site's partitions, and the nearest thing that does. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpc_multinode.slurm.amounts import (
    count_gres_gpus,
    parse_memory,
    parse_time_limit,
    render_memory,
    render_time_limit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.slurm.partitions import NodeShape, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """One thing that a job asks for and a partition does not have.

    Attributes:
        found: What is asked for and what there is.
        fix: The nearest that fits, as words of the command line.
    """

    found: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """What a job asks for; None or 0 where it does not say."""

    num_nodes: int
    time_min: int | None
    is_unlimited: bool
    cpus: int
    memory_mb: int
    gpus: int
    gpu_type: str | None


def find_misfits(options: Mapping[str, Any], partitions: Sequence[Partition]) -> list[Misfit]:
    """Say why a job can start in none of the partitions that it names, or in the default one.

    Args:
        options: Its options of sbatch by long name, as in a plan.
        partitions: The site's.

    Returns:
        Nothing where one of its partitions has what it asks for, or where the site tells nothing.
    """
    if not partitions:
        return []
    wish = _parse_wish(options)
    named = str(options["partition"]).split(",") if "partition" in options else None
    chosen = [one for one in partitions if (one.is_default if named is None else one.name in named)]
    elsewhere = [one.name for one in partitions if one not in chosen and not _compare(wish, one)]
    move = f", or resources.partition={elsewhere[0]}" if elsewhere else ""
    if named is not None and not chosen:
        there = ", ".join(one.name for one in partitions)
        fix = f"resources.partition={partitions[0].name}; there are: {there}"
        return [Misfit(found=f"there is no partition {options['partition']}", fix=fix)]
    misfits = [_compare(wish, one) for one in chosen]
    if any(not found for found in misfits):
        return []
    return [Misfit(found=one.found, fix=f"{one.fix}{move}") for found in misfits for one in found]


def _parse_wish(options: Mapping[str, Any]) -> _Wish:
    time = options.get("time")
    minutes = None if time is None else parse_time_limit(str(time), key="--time")
    cpus = int(options.get("cpus-per-task") or 0)
    count, kind = _parse_gpus(options)
    each = {"mem": 1, "mem-per-cpu": max(1, cpus), "mem-per-gpu": max(1, count)}
    memory = sum(
        parse_memory(str(options[name]), key=f"--{name}", is_zero_all=True) * times
        for name, times in each.items()
        if name in options
    )
    return _Wish(
        num_nodes=int(options["nodes"]),
        time_min=minutes,
        is_unlimited=time is not None and minutes is None,
        cpus=cpus,
        memory_mb=memory,
        gpus=count,
        gpu_type=kind,
    )


def _parse_gpus(options: Mapping[str, Any]) -> tuple[int, str | None]:
    asked = options.get("gpus-per-node")
    text = f"gpu:{asked}" if asked is not None else str(options.get("gres", ""))
    count = count_gres_gpus(text) or 0
    kinds = [item.split(":")[1] for item in text.split(",") if item.startswith("gpu:") and item.count(":") > 1]
    return count, kinds[0] if len(kinds) == 1 else None


def _compare(wish: _Wish, partition: Partition) -> list[Misfit]:
    where = f"partition {partition.name}"
    misfits = []
    if not partition.is_up:
        misfits.append(Misfit(found=f"{where} is not up", fix="wait until it is"))
    longest = partition.max_time_min
    if longest is not None and (wish.is_unlimited or (wish.time_min or 0) > longest):
        allowed = render_time_limit(longest)
        found = f"{where} allows {allowed}, asked for: {render_time_limit(wish.time_min)}"
        misfits.append(Misfit(found=found, fix=f"resources.time={allowed}"))
    if partition.max_nodes is not None and wish.num_nodes > partition.max_nodes:
        found = f"{where} allows {partition.max_nodes} nodes, asked for: {wish.num_nodes}"
        misfits.append(Misfit(found=found, fix=f"nodes={partition.max_nodes}"))
    if partition.max_memory_mb is not None and wish.memory_mb > partition.max_memory_mb:
        most = render_memory(partition.max_memory_mb)
        found = f"{where} allows {most} a node, asked for: {render_memory(wish.memory_mb)}"
        misfits.append(Misfit(found=found, fix=f"resources.mem_gb={most}"))
    return misfits or _compare_nodes(wish, partition, where)


def _compare_nodes(wish: _Wish, partition: Partition, where: str) -> list[Misfit]:
    """Compare with the nodes: first what no node has, then how many nodes have all of it."""
    if not partition.nodes:
        return []
    kind = f" of type {wish.gpu_type}" if wish.gpu_type else ""
    most_gpus = max(node.count_gpus(wish.gpu_type) for node in partition.nodes)
    most_cpus = max(node.cpus for node in partition.nodes)
    most_memory = max(node.memory_mb for node in partition.nodes)
    misfits = []
    if wish.gpus > most_gpus:
        there = f"nodes with at most {most_gpus} GPUs{kind}" if most_gpus else f"no node with a GPU{kind}"
        found = f"{where} has {there}, asked for: {wish.gpus} a node"
        types = sorted({name for node in partition.nodes for name in node.gpus if name})
        fix = f"resources.gpus_per_node={most_gpus}" if most_gpus or not types else f"resources.gpu_type={types[0]}"
        misfits.append(Misfit(found=found, fix=fix))
    if wish.cpus > most_cpus:
        found = f"{where} has nodes with at most {most_cpus} CPUs, asked for: {wish.cpus} a node"
        misfits.append(Misfit(found=found, fix=f"resources.cpus_per_node={most_cpus}"))
    if wish.memory_mb > most_memory:
        most = render_memory(most_memory)
        found = f"{where} has nodes with at most {most} of memory, asked for: {render_memory(wish.memory_mb)} a node"
        misfits.append(Misfit(found=found, fix=f"resources.mem_gb={most}"))
    num_fitting = sum(_has_all(node, wish) for node in partition.nodes)
    if not misfits and wish.num_nodes > num_fitting:
        found = f"{where} has {num_fitting} such nodes, asked for: {wish.num_nodes}"
        misfits.append(Misfit(found=found, fix=f"nodes={num_fitting}" if num_fitting else "ask for less on each node"))
    return misfits


def _has_all(node: NodeShape, wish: _Wish) -> bool:
    has_gpus = node.count_gpus(wish.gpu_type) >= wish.gpus
    return has_gpus and node.cpus >= wish.cpus and node.memory_mb >= wish.memory_mb
