"""The coordinator: decides for all nodes when a run starts, stops and is over. A state machine without any I/O.

It is told what the agents say and when, and answers with what all of them are to be told. ``hub`` carries the words.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

Message = dict[str, Any]


class _State(Enum):
    joining = "joining"
    running = "running"
    stopping = "stopping"


class Coordinator:
    """One run's state, as the agents' words make it.

    Every method returns the messages that all agents are to get, in order.

    Args:
        num_nodes: Nodes of the run. Count, at least 1.
    """

    def __init__(self, *, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._state = _State.joining
        self._hosts: dict[int, str] = {}
        self._ended: set[int] = set()
        self._cancelling: set[int] = set()
        self.failures: list[tuple[float, Outcome]] = []
        self.outcomes: dict[int | None, Outcome] = {}
        self.cancelled_by: str | None = None

    @property
    def missing(self) -> tuple[int, ...]:
        """Nodes that have not joined, by rank."""
        return tuple(rank for rank in range(self._num_nodes) if rank not in self._hosts)

    @property
    def has_started(self) -> bool:
        """Say whether workers may be running."""
        return self._state is not _State.joining

    @property
    def is_over(self) -> bool:
        """Say whether every agent that joined has no worker left."""
        return self._state is not _State.joining and self._ended >= set(self._hosts)

    def expects(self, node_rank: int) -> bool:
        """Say whether this node is one of the run's and has not joined yet."""
        return node_rank in self.missing

    def join(self, node_rank: int, host: str) -> bool:
        """Note a node; say whether the run is to start now: all are there, and nothing has stopped it."""
        self._hosts[node_rank] = host
        return not self.missing and self._state is _State.joining

    def greet(self) -> list[Message]:
        """Return what a node that joins only now is to be told."""
        return [{"kind": "stop", "reason": "failure"}] if self._state is _State.stopping else []

    def start(self, coordinates: Mapping[str, Any]) -> list[Message]:
        """Start the run on all nodes, unless it was stopped before it began.

        Args:
            coordinates: What all nodes are told: ``main_address``, ``main_port``, ``attempt``, and the plan where they
                do not have it.
        """
        if self._state is not _State.joining:
            return []
        self._state = _State.running
        return [{"kind": "start", **coordinates}]

    def hear(self, node_rank: int, message: Mapping[str, Any], *, now: float) -> list[Message]:
        """Take what an agent says.

        Args:
            node_rank: Who says it.
            message: ``failed`` with an outcome, ``cancel`` with a signal, ``ended`` with all outcomes of the node.
            now: Seconds on the coordinator's own monotonic clock.
        """
        kind = message["kind"]
        if kind == "failed":
            return self._fail(Outcome.from_json(message["outcome"]), now=now)
        if kind == "cancel":
            return self._cancel(node_rank, message["signal"])
        if kind == "ended":
            self._ended.add(node_rank)
            for data in message["outcomes"]:
                outcome = Outcome.from_json(data)
                self.outcomes[outcome.global_rank] = outcome
        return []

    def lose(self, node_rank: int, *, now: float) -> list[Message]:
        """Take that an agent's connection is gone."""
        if node_rank in self._ended:
            return []
        self._ended.add(node_rank)
        host = self._hosts.get(node_rank, "?")
        lost = Outcome(
            node_rank=node_rank, host=host, message="its agent was lost: the connection closed",
            failure_class="lost_node",
        )  # fmt: skip
        return self._fail(lost, now=now)

    def fail(self, outcome: Outcome, *, now: float) -> list[Message]:
        """Take a failure of the run as a whole, such as a node that never came."""
        return self._fail(outcome, now=now)

    def _cancel(self, node_rank: int, signal: str) -> list[Message]:
        if self._state is not _State.stopping:
            self.cancelled_by = signal
        is_repeated = node_rank in self._cancelling
        self._cancelling.add(node_rank)
        # Said twice on one node: whoever asks does not want to wait.
        return [{"kind": "stop", "reason": "kill"}] if is_repeated else self._stop("cancel")

    def _fail(self, outcome: Outcome, *, now: float) -> list[Message]:
        self.failures.append((now, outcome))
        return self._stop("failure")

    def _stop(self, reason: str) -> list[Message]:
        if self._state is _State.stopping:
            return []
        self._state = _State.stopping
        return [{"kind": "stop", "reason": reason}]
