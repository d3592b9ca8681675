"""Which CPUs each worker of a node runs on, where they are shared out: ``launch.cpu_bind``."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hpc_multinode.context import NodeContext

_BITS = 64


def bind_cpus(node: NodeContext, *, num_granted: int | None) -> tuple[tuple[int, ...], ...] | None:
    """Return the CPUs of each of a node's workers; None where they are not the job's own, or too few to share out.

    Args:
        node: The node; nodes side by side on this machine share its CPUs out first.
        num_granted: CPUs that the job has on this node, or None where nobody says. Count.
    """
    cpus = find_own_cpus(num_granted)
    if node.source == "local":
        cpus = share_cpus(cpus, ((),) * node.num_nodes)[node.node_rank]
    if not cpus:
        return None
    near = find_near_cpus(node.devices)
    return share_cpus(cpus, near if len(near) == node.local_world_size else ((),) * node.local_world_size)


def share_cpus(cpus: Collection[int], near: Sequence[Collection[int]]) -> tuple[tuple[int, ...], ...]:
    """Share CPUs out evenly, to each worker first those near its GPU. Pure.

    Args:
        cpus: CPUs that the node's workers may use, by the kernel's numbers.
        near: For each worker the CPUs near its GPU; empty where nothing is known.

    Returns:
        The CPUs of each worker; an empty tuple for each where there are fewer CPUs than workers.
    """
    each = len(cpus) // len(near)
    if each == 0:
        return ((),) * len(near)
    free = sorted(cpus)
    shares = []
    for wanted in near:
        share = sorted(free, key=lambda cpu: (bool(wanted) and cpu not in wanted, cpu))[:each]
        free = [cpu for cpu in free if cpu not in share]
        shares.append(tuple(sorted(share)))
    return tuple(shares)


def find_own_cpus(num_granted: int | None) -> tuple[int, ...]:
    """Return the CPUs that this process may run on, where they are the job's own; else none.

    Args:
        num_granted: CPUs that the job has on this node, or None where nobody says. Count.
    """
    allowed = sorted(os.sched_getaffinity(0))
    # More than were granted: the site confines nobody, and the others' CPUs are among them.
    return tuple(allowed) if num_granted is None or len(allowed) <= num_granted else ()


def find_near_cpus(devices: Sequence[str]) -> tuple[frozenset[int], ...]:
    """Return for each device the CPUs near it, as the driver says; an empty set where it does not.

    Source:
        NVML, nvmlDeviceGetCpuAffinity.
    """
    unknown = (frozenset[int](),) * len(devices)
    if not devices:
        return unknown
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - no driver, no package or an old one: nothing is known, and nothing depends on it
        return unknown
    try:
        num_words = (os.cpu_count() or 1) // _BITS + 1
        return tuple(_read_near(nvml, device, num_words) for device in devices)
    finally:
        nvml.nvmlShutdown()


def _read_near(nvml: object, device: str, num_words: int) -> frozenset[int]:
    from_index, from_uuid = nvml.nvmlDeviceGetHandleByIndex, nvml.nvmlDeviceGetHandleByUUID  # type: ignore[attr-defined]
    try:
        handle = from_index(int(device)) if device.isdecimal() else from_uuid(device)
        words = nvml.nvmlDeviceGetCpuAffinity(handle, num_words)  # type: ignore[attr-defined]
    except nvml.NVMLError:  # type: ignore[attr-defined]
        return frozenset()
    return frozenset(
        word * _BITS + bit for word in range(num_words) for bit in range(_BITS) if int(words[word]) >> bit & 1
    )
