"""What one worker is told when it starts: its place, its CPUs, its log.

Crosses from the agent to the forkserver and on to the worker as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hpc_multinode.context import WorkerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker of one attempt.

    Attributes:
        place: Its place in the run.
        cpus: CPUs that it runs on; empty: all that the agent may use.
        title: Its name in ``top`` and ``ps``.
        log: Absolute path of its log.
    """

    place: WorkerContext
    cpus: tuple[int, ...]
    title: str
    log: str

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> WorkerSpec:
        """Read back what ``to_json`` made."""
        return cls(**{**data, "place": WorkerContext.from_json(data["place"]), "cpus": tuple(data["cpus"])})
