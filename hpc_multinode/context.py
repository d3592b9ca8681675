"""Who am I, who are the others: the place of a node, and of a worker on it.

Which rank is where is reckoned here alone. Pure, but for ``stop_requested`` and ``progress``, by which a work and its
run speak. Where the facts come from is the business of ``slurm.environment`` (a job step) and ``node.local`` (this
machine).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpc_multinode.stopping import report_progress, stop_requested


def list_ranks(node_rank: int, local_world_size: int) -> range:
    """Return the ranks in the world of a node's workers, by local rank."""
    first = node_rank * local_world_size
    return range(first, first + local_world_size)


def describe_size(num_nodes: int, local_world_size: int) -> str:
    """Say for people how many workers a run has."""
    world_size = num_nodes * local_world_size
    return f"{num_nodes} x {local_world_size} = {world_size} worker{'s' * (world_size != 1)}"


def find_node(global_rank: int, local_world_size: int) -> int:
    """Return the node of a worker."""
    return global_rank // local_world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """One node's place in the run.

    Attributes:
        job_id: Slurm's job id as people write it (``4711``, ``4700_3`` in an array), or None on this machine.
        step_id: Slurm's step id, or None on this machine.
        node_rank: This node's rank, in ``[0, num_nodes)``.
        num_nodes: Nodes of the step. Count, at least 1.
        hosts: Host names in node order, ``num_nodes`` of them.
        main_address: Where the workers of all nodes find global rank 0.
        port_candidates: Ports on which the coordinator may listen, in the order to try; the same on every node.
        local_world_size: Workers on each node. Count, at least 1.
        devices: Visible devices as opaque strings (an index, a GPU or MIG UUID); empty where there are none.
        restart_count: How often Slurm has requeued the job. Count from 0.
        source: ``slurm-step``, ``slurm-batch`` or ``local``.
        component: Our component of a heterogeneous job, as Slurm numbers it; empty in any other job.
    """

    job_id: str | None
    step_id: str | None
    node_rank: int
    num_nodes: int
    hosts: tuple[str, ...]
    main_address: str
    port_candidates: tuple[int, ...]
    local_world_size: int
    devices: tuple[str, ...]
    restart_count: int
    source: str
    component: str = ""

    @property
    def world_size(self) -> int:
        """Workers of the whole run."""
        return self.num_nodes * self.local_world_size

    @property
    def host(self) -> str:
        """This node's own name."""
        return self.hosts[self.node_rank]

    @property
    def global_ranks(self) -> range:
        """Ranks in the world of this node's workers, by local rank."""
        return list_ranks(self.node_rank, self.local_world_size)

    def make_worker(
        self, local_rank: int, *, main_address: str, main_port: int, attempt: int, run_dir: str
    ) -> WorkerContext:
        """Return the place of one of this node's workers.

        Args:
            local_rank: In ``[0, local_world_size)``.
            main_address: Where this attempt's workers find global rank 0.
            main_port: Port of the store there.
            attempt: Restarts and requeues of the run so far, from 0.
            run_dir: Absolute path of the run folder.
        """
        return WorkerContext(
            world_size=self.world_size,
            node_rank=self.node_rank,
            global_rank=self.global_ranks[local_rank],
            local_rank=local_rank,
            local_world_size=self.local_world_size,
            num_nodes=self.num_nodes,
            main_address=main_address,
            main_port=main_port,
            attempt=attempt,
            run_dir=run_dir,
            devices=self.devices,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """One worker's place in the run; a work that asks for ``context`` gets it.

    Attributes:
        world_size: Workers of the whole run.
        node_rank: This worker's node, in ``[0, num_nodes)``.
        global_rank: This worker, in ``[0, world_size)``.
        local_rank: This worker on its node, in ``[0, local_world_size)``.
        local_world_size: Workers on each node.
        num_nodes: Nodes of the run.
        main_address: Where global rank 0 is found.
        main_port: Port of the store there.
        attempt: Restarts and requeues of the run so far, from 0.
        run_dir: Absolute path of the run folder, the same for all ranks and attempts.
        devices: The node's devices as opaque strings; empty where there are none.
    """

    world_size: int
    node_rank: int
    global_rank: int
    local_rank: int
    local_world_size: int
    num_nodes: int
    main_address: str
    main_port: int
    attempt: int
    run_dir: str
    devices: tuple[str, ...]

    @property
    def stop_requested(self) -> bool:
        """Say whether the run is to stop soon; cheap enough for every step. See ``stopping.stop_requested``."""
        return stop_requested()

    def progress(self, step: int) -> None:
        """Say that everything up to a step is saved. See ``stopping.report_progress``."""
        report_progress(step)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WorkerContext:
        """Read back from the fields as JSON values."""
        return cls(**{**data, "devices": tuple(data["devices"])})
