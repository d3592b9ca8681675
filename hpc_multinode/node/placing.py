"""Where each worker of a node stands when an attempt starts: its rank, its CPUs, its log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hpc_multinode.node.affinity import bind_cpus
from hpc_multinode.node.spec import WorkerSpec
from hpc_multinode.slurm.environment import parse_cpus_on_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.context import NodeContext
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

NOT_BOUND = "launch.cpu_bind: the CPUs of this job are not its own, or too few; nothing is bound"


def share_cpus_out(node: NodeContext) -> tuple[tuple[int, ...], ...] | None:
    """Return the CPUs of each worker; None where they are not the job's own, or too few."""
    return bind_cpus(node, num_granted=None if node.source == "local" else parse_cpus_on_node(os.environ))


def make_specs(
    plan: LaunchPlan,
    node: NodeContext,
    start: Mapping[str, Any],
    *,
    folder: RunFolder,
    shares: Sequence[tuple[int, ...]] | None,
) -> list[WorkerSpec]:
    """Return what each worker of this node is told, by local rank.

    Args:
        plan: The run.
        node: This node's place in it.
        start: The coordinator's word: ``main_address``, ``main_port`` and ``attempt``.
        folder: The run's folder.
        shares: The CPUs of each worker, or None where all may use all.
    """
    name = plan.name if node.job_id is None else f"job {node.job_id}"
    specs = []
    for local_rank, cpus in enumerate(shares or ((),) * node.local_world_size):
        place = node.make_worker(
            local_rank,
            main_address=start["main_address"],
            main_port=start["main_port"],
            attempt=start["attempt"],
            run_dir=plan.run_dir,
        )
        specs.append(
            WorkerSpec(
                place=place,
                cpus=cpus,
                title=f"{name} rank {place.global_rank}/{place.world_size}",
                log=str(folder.rank_log(start["attempt"], place.global_rank)),
            )
        )
    return specs
