"""What one worker is told when it starts: its place, its environment, its log.

Crosses from the agent to the forkserver and on to the worker as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker of one attempt.

    Attributes:
        node_rank: Its node, in ``[0, num_nodes)``.
        local_rank: Its place on the node, in ``[0, local_world_size)``.
        global_rank: Its place in the world, in ``[0, world_size)``.
        num_nodes: Nodes of the run.
        local_world_size: Workers a node.
        main_address: Where global rank 0 is found.
        main_port: Port of the workers' store there.
        attempt: Which attempt of the run, from 0.
        devices: The node's devices, as opaque strings.
        cpus: CPUs that it runs on; empty: all that the agent may use.
        title: Its name in ``top`` and ``ps``.
        log: Absolute path of the worker's log.
        env: Variables that only this worker gets.
    """

    node_rank: int
    local_rank: int
    global_rank: int
    num_nodes: int
    local_world_size: int
    main_address: str
    main_port: int
    attempt: int
    devices: tuple[str, ...]
    cpus: tuple[int, ...]
    title: str
    log: str
    env: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WorkerSpec:
        """Read back what ``to_json`` made."""
        return cls(**{**data, "devices": tuple(data["devices"]), "cpus": tuple(data["cpus"])})
