"""Partitions as Slurm prints them, and whether a job fits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.slurm.fitting import find_misfits
from hpc_multinode.slurm.partitions import NodeShape, Partition, parse_partitions
from tests.conftest import TESTS

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSIONS = ["22.05", "24.11"]


def _recorded(version: str) -> tuple[Partition, ...]:
    """Read what the test cluster of a version printed: 2 nodes with 8 CPUs, 16000 MiB and 2 GPUs of type fake."""
    folder = TESTS / "data/slurm" / version
    return parse_partitions((folder / "partitions.txt").read_text(), (folder / "nodes.txt").read_text())


def _node(name: str = "n1", cpus: int = 8, memory_mb: int = 16000, **gpus: int) -> NodeShape:
    return NodeShape(name=name, cpus=cpus, memory_mb=memory_mb, gpus=gpus)


def _partition(name: str, *nodes: NodeShape, **changes: Any) -> Partition:
    values: dict[str, Any] = {
        "is_default": False, "is_up": True, "max_time_min": None, "max_nodes": None, "max_memory_mb": None,
    }  # fmt: skip
    return Partition(name=name, nodes=nodes or (_node(),), **{**values, **changes})


def _told(options: dict[str, Any], partitions: Sequence[Partition]) -> list[tuple[str, str]]:
    return [(one.found, one.fix) for one in find_misfits({"nodes": 1, **options}, partitions)]


@pytest.mark.parametrize("version", VERSIONS)
def test_reads_what_slurm_prints(version: str) -> None:
    """Limits, the default, and what each node has, from a real cluster of each version."""
    main, urgent, short = _recorded(version)
    assert [one.name for one in (main, urgent, short)] == ["main", "urgent", "short"]
    assert (main.is_default, urgent.is_default, main.is_up) == (True, False, True)
    assert (main.max_time_min, short.max_time_min, main.max_nodes, main.max_memory_mb) == (None, 2, None, None)
    assert main.nodes == tuple(_node(f"node{number}", fake=2) for number in (1, 2))


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:4", {"": 4}),
        ("gpu:a100:4(S:0-1)", {"a100": 4}),
        ("gpu:a100:2,gpu:v100:1,lustre:1", {"a100": 2, "v100": 1}),
        ("(null)", {}),
    ],
)
def test_reads_the_gpus_of_a_node(gres: str, gpus: dict[str, int]) -> None:
    """With and without types and sockets."""
    (partition,) = parse_partitions("PartitionName=p", f"p|n|8|100+|{gres}")
    assert partition.nodes == (NodeShape(name="n", cpus=8, memory_mb=100, gpus=gpus),)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("options", "found", "fix"),
    [
        ({"nodes": 3}, "partition main has 2 such nodes, asked for: 3", "nodes=2"),
        (
            {"partition": "short", "time": "00:05:00"},
            "partition short allows 00:02:00, asked for: 00:05:00",
            "resources.time=00:02:00, or resources.partition=main",
        ),
        (
            {"partition": "short", "time": "unlimited"},
            "partition short allows 00:02:00, asked for: unlimited",
            "resources.time=00:02:00, or resources.partition=main",
        ),
        (
            {"gpus-per-node": "4"},
            "partition main has nodes with at most 2 GPUs, asked for: 4 a node",
            "resources.gpus_per_node=2",
        ),
        (
            {"gres": "gpu:a100:1"},
            "partition main has no node with a GPU of type a100, asked for: 1 a node",
            "resources.gpu_type=fake",
        ),
        (
            {"cpus-per-task": 9},
            "partition main has nodes with at most 8 CPUs, asked for: 9 a node",
            "resources.cpus_per_node=8",
        ),
        (
            {"mem-per-cpu": "8G", "cpus-per-task": 4},
            "partition main has nodes with at most 16000M of memory, asked for: 32G a node",
            "resources.mem_gb=16000M",
        ),
        (
            {"partition": "nope"},
            "there is no partition nope",
            "resources.partition=main; there are: main, urgent, short",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_the_nearest_that_does(
    version: str, options: dict[str, Any], found: str, fix: str
) -> None:
    """Each limit of a partition and of its nodes, with words that can be typed."""
    assert _told(options, _recorded(version)) == [(found, fix)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nodes": 2, "gpus-per-node": "fake:2", "cpus-per-task": 8, "mem": "16000M", "time": "7-00:00:00"},
        {"gres": "gpu:fake:2"},
        {"mem": "0"},
        {"partition": "short,main", "time": "01:00:00"},
        {"partition": "short", "time": "00:02:00"},
    ],
)
def test_nothing_is_told_of_what_fits(options: dict[str, Any]) -> None:
    """One of several partitions is enough."""
    assert _told(options, _recorded("22.05")) == []


def test_limits_of_a_partition_are_told() -> None:
    """Nodes, memory and state of a partition itself."""
    partition = _partition("p", is_default=True, is_up=False, max_nodes=1, max_memory_mb=1024)
    assert _told({"nodes": 2, "mem": "2G"}, [partition]) == [
        ("partition p is not up", "wait until it is"),
        ("partition p allows 1 nodes, asked for: 2", "nodes=1"),
        ("partition p allows 1G a node, asked for: 2G", "resources.mem_gb=1G"),
    ]


def test_only_nodes_that_have_all_count() -> None:
    """A partition of unlike nodes may have too few that fit."""
    nodes = (_node("a", a100=4), _node("b", a100=4, memory_mb=100), _node("c"))
    told = _told({"nodes": 2, "gpus-per-node": "4", "mem": "1G"}, [_partition("p", *nodes, is_default=True)])
    assert told == [("partition p has 1 such nodes, asked for: 2", "nodes=1")]


def test_a_site_that_tells_nothing_is_not_judged() -> None:
    """Without partitions there is nothing to compare with."""
    assert _told({"partition": "x"}, []) == []
