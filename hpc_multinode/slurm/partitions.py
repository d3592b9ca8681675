"""What a site's partitions allow and what their nodes have, from what Slurm prints. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpc_multinode.errors import ConfigError
from hpc_multinode.slurm.amounts import parse_time_limit

# Fields of sinfo that ``parse_nodes`` reads: partition, node, CPUs, memory in MiB, gres.
NODE_FORMAT = "%R|%N|%c|%m|%G"
_NUM_FIELDS = 5
_NO_LIMIT = ("UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "")
_GPU = re.compile(r"gpu(?::([^:(]*[^:(0-9][^:(]*))?:([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What one node has.

    Attributes:
        name: Its name.
        cpus: Count.
        memory_mb: Memory in MiB.
        gpus: Count by type; an empty type where the site names none.
    """

    name: str
    cpus: int
    memory_mb: int
    gpus: dict[str, int]

    def count_gpus(self, kind: str | None) -> int:
        """Return its GPUs of one type, or of all types for None."""
        return sum(self.gpus.values()) if kind is None else self.gpus.get(kind, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """What one partition allows.

    Attributes:
        name: Its name.
        is_default: Jobs that name none go there.
        is_up: It takes and starts jobs.
        max_time_min: Longest time limit in minutes, or None.
        max_nodes: Most nodes of a job, or None. Count.
        max_memory_mb: Most memory of a job on each node in MiB, or None.
        nodes: Its nodes.
    """

    name: str
    is_default: bool
    is_up: bool
    max_time_min: int | None
    max_nodes: int | None
    max_memory_mb: int | None
    nodes: tuple[NodeShape, ...]


def parse_partitions(partitions: str, nodes: str) -> tuple[Partition, ...]:
    """Read partitions and their nodes.

    Args:
        partitions: What ``scontrol show partition --oneliner`` prints.
        nodes: What ``sinfo --Node`` prints in ``NODE_FORMAT``.

    Source:
        scontrol(1), show partition; sinfo(1), --format.
    """
    shapes = _parse_nodes(nodes)
    return tuple(
        Partition(
            name=values["PartitionName"],
            is_default=values.get("Default") == "YES",
            is_up=values.get("State", "UP") == "UP",
            max_time_min=_parse_time(values.get("MaxTime", "")),
            max_nodes=_parse_limit(values.get("MaxNodes", "")),
            max_memory_mb=_parse_limit(values.get("MaxMemPerNode", "")),
            nodes=shapes.get(values["PartitionName"], ()),
        )
        for line in partitions.splitlines()
        if "PartitionName" in (values := dict(word.partition("=")[::2] for word in line.split()))
    )


def _parse_nodes(text: str) -> dict[str, tuple[NodeShape, ...]]:
    found: dict[str, list[NodeShape]] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != _NUM_FIELDS:
            continue
        partition, name, cpus, memory, gres = fields
        gpus: dict[str, int] = {}
        for kind, count in _GPU.findall(gres):
            gpus[kind] = gpus.get(kind, 0) + int(count)
        shape = NodeShape(name=name, cpus=_parse_limit(cpus) or 0, memory_mb=_parse_limit(memory) or 0, gpus=gpus)
        found.setdefault(partition, []).append(shape)
    return {partition: tuple(shapes) for partition, shapes in found.items()}


def _parse_time(text: str) -> int | None:
    if text.upper() in _NO_LIMIT:
        return None
    try:
        return parse_time_limit(text, key="MaxTime")
    except ConfigError:  # a form of a later Slurm: what is not known is no limit
        return None


def _parse_limit(text: str) -> int | None:
    digits = text.strip().rstrip("+")
    return int(digits) if digits.isascii() and digits.isdigit() else None
