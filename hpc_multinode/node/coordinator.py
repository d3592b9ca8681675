"""The coordinator: decides for all nodes when an attempt starts, stops and is over. A state machine without any I/O.

It is told what the agents say and when, and answers with what all of them are to be told. ``hub`` carries the words,
and asks ``next_step`` for what is left to be done on node 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import Outcome, choose_root_cause, describe, is_lost_peer

if TYPE_CHECKING:
    from collections.abc import Mapping

Message = dict[str, Any]

# A rank that has lost its peer often speaks before the peer, which is still cleaning up: for so long its own word is
# waited for before everything is stopped.
HOLD_S = 0.5
# A failure that comes this soon after the start, and again in the next attempt, will come in every attempt.
AT_ONCE_S = 10.0


class _State(Enum):
    joining = "joining"
    preparing = "preparing"
    running = "running"
    stopping = "stopping"
    over = "over"


class Step(Enum):
    """What node 0 has to do next for the run to go on."""

    wait = "wait"
    start = "start"
    finish = "finish"


@dataclass(slots=True)
class Attempt:
    """What has been heard of one attempt.

    Attributes:
        number: Its number in the run folder; None where it was never prepared.
        started: When its workers were started, on the caller's clock in seconds; None where they were not.
        failures: Time of arrival and failure, in order of arrival.
        outcomes: How the workers ended, by global rank.
        phases: Seconds from its start to each phase, on the slowest node.
        ended: Nodes that have no worker left.
    """

    number: int | None = None
    started: float | None = None
    failures: list[tuple[float, Outcome]] = field(default_factory=list)
    outcomes: dict[int | None, Outcome] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    @property
    def cause(self) -> Outcome | None:
        """Return the failure that the others follow from."""
        return choose_root_cause(self.failures)

    @property
    def failed_at_once(self) -> bool:
        """Say whether its first failure came within seconds of its start."""
        return bool(self.failures) and self.started is not None and self.failures[0][0] - self.started < AT_ONCE_S


class Coordinator:
    """One run's state in this job, as the agents' words make it.

    Every method that returns messages returns those that all agents are to get, in order.

    Args:
        num_nodes: Nodes of the run. Count, at least 1.
        max_restarts: How often all workers may be started again after a failure. Count.
    """

    def __init__(self, *, num_nodes: int, max_restarts: int = 0) -> None:
        self._num_nodes, self._max_restarts = num_nodes, max_restarts
        self._state = _State.joining
        self._hosts: dict[int, str] = {}
        self._lost: set[int] = set()
        self._cancelling: set[int] = set()
        self._stop_at: float | None = None
        self.attempts = [Attempt()]
        self.cancelled_by: str | None = None
        self.gave_up: str | None = None

    @property
    def missing(self) -> tuple[int, ...]:
        """Nodes that have not joined, by rank."""
        return tuple(rank for rank in range(self._num_nodes) if rank not in self._hosts)

    @property
    def attempt(self) -> Attempt:
        """What has been heard of the attempt that runs, or was the last."""
        return self.attempts[-1]

    @property
    def has_all(self) -> bool:
        """Say whether the nodes need no longer be waited for: all are there, or the run is being stopped."""
        return self._state is not _State.joining

    @property
    def is_over(self) -> bool:
        """Say whether no worker is left, and none will be started."""
        return self._state is _State.over

    @property
    def next_step(self) -> Step:
        """What node 0 has to do now."""
        if self._state is _State.over:
            return Step.finish
        return Step.start if self._state is _State.preparing else Step.wait

    @property
    def stop_at(self) -> float | None:
        """When ``tick`` is to be called, on the caller's clock in seconds; None where nothing is waited for."""
        return self._stop_at if self._state is _State.running else None

    def expects(self, node_rank: int) -> bool:
        """Say whether this node is one of the run's and has not joined yet."""
        return 0 <= node_rank < self._num_nodes and node_rank not in self._hosts

    def join(self, node_rank: int, host: str) -> None:
        """Note a node that has come."""
        self._hosts[node_rank] = host
        if len(self._hosts) == self._num_nodes and self._state is _State.joining:
            self._state = _State.preparing

    def greet(self) -> list[Message]:
        """Return what a node that joins only now is to be told."""
        return [self._make_stop("failure")] if self._state in (_State.stopping, _State.over) else []

    def start(self, coordinates: Mapping[str, Any], *, now: float) -> list[Message]:
        """Start the workers on all nodes, unless the run was stopped while this was being prepared.

        Args:
            coordinates: What all nodes are told: ``main_address``, ``main_port``, ``attempt``, and the plan where they
                do not have it.
            now: Seconds on the coordinator's own monotonic clock.
        """
        if self._state is not _State.preparing:
            return []
        self._state = _State.running
        self.attempt.started = now
        return [{"kind": "start", **coordinates}]

    def hear(self, node_rank: int, message: Mapping[str, Any], *, now: float) -> list[Message]:
        """Take what an agent says.

        Args:
            node_rank: Who says it.
            message: ``failed`` with an outcome, ``cancel`` with a signal, ``phase`` with name and seconds, ``ended``
                with all outcomes of the node.
            now: Seconds on the coordinator's own monotonic clock.
        """
        kind = message["kind"]
        if kind == "failed":
            return self.fail(Outcome.from_json(message["outcome"]), now=now)
        if kind == "cancel":
            return self._cancel(node_rank, message["signal"])
        if kind == "phase":
            name, seconds = message["name"], message["seconds"]
            self.attempt.phases[name] = max(seconds, self.attempt.phases.get(name, 0.0))
        if kind == "ended":
            for data in message["outcomes"]:
                outcome = Outcome.from_json(data)
                self.attempt.outcomes[outcome.global_rank] = outcome
            self._note_end(node_rank)
        return []

    def lose(self, node_rank: int, *, now: float, why: str = "the connection closed") -> list[Message]:
        """Take that an agent is gone."""
        if node_rank in self._lost:
            return []
        self._lost.add(node_rank)
        if node_rank in self.attempt.ended:
            return []
        host = self._hosts.get(node_rank, "?")
        lost = Outcome(
            node_rank=node_rank, host=host, message=f"its agent was lost: {why}", failure_class="lost_node"
        )  # fmt: skip
        messages = self.fail(lost, now=now)
        self._note_end(node_rank)
        return messages

    def fail(self, outcome: Outcome, *, now: float) -> list[Message]:
        """Take a failure: of a worker, of a node, or of the run as a whole, such as a node that never came."""
        self.attempt.failures.append((now, outcome))
        if self._state is _State.running and is_lost_peer(outcome):
            if self._stop_at is None:
                self._stop_at = now + HOLD_S
            return []
        return self._stop("failure")

    def tick(self, now: float) -> list[Message]:
        """Stop the run where a lost peer's own word has been waited for long enough."""
        return self._stop("failure") if self.stop_at is not None and now >= self.stop_at else []

    def _cancel(self, node_rank: int, signal: str) -> list[Message]:
        if self._state is not _State.stopping:
            self.cancelled_by = signal
        is_repeated = node_rank in self._cancelling
        self._cancelling.add(node_rank)
        # Said twice on one node: whoever asks does not want to wait.
        return [{"kind": "stop", "reason": "kill"}] if is_repeated else self._stop("cancel")

    def _stop(self, reason: str) -> list[Message]:
        if self._state in (_State.stopping, _State.over):
            return []
        # Between attempts no worker runs anywhere.
        self._state = _State.over if self._state is _State.preparing else _State.stopping
        self._settle()
        return [self._make_stop(reason)]

    def _make_stop(self, reason: str) -> Message:
        cause = self.attempt.cause
        return {"kind": "stop", "reason": reason, "why": describe(cause) if cause is not None else self.cancelled_by}

    def _note_end(self, node_rank: int) -> None:
        self.attempt.ended.add(node_rank)
        self._settle()

    def _settle(self) -> None:
        """Go on where no worker is left anywhere: to the next attempt, or to the end."""
        if self._state not in (_State.running, _State.stopping) or not self.attempt.ended >= set(self._hosts):
            return
        if self._may_restart():
            self._state = _State.preparing
            self._stop_at = None
            self.attempts.append(Attempt())
        else:
            self._state = _State.over

    def _may_restart(self) -> bool:
        cause = self.attempt.cause
        # What is no worker's failure, such as a node that is gone, is there in the next attempt too.
        if cause is None or cause.global_rank is None or self.cancelled_by is not None or self._lost:
            return False
        if self._max_restarts == 0:
            return False
        if len(self.attempts) > self._max_restarts:
            self.gave_up = f"restart.max={self._max_restarts} is used up"
            return False
        if len(self.attempts) > 1 and _are_same(self.attempts[-2], self.attempt):
            self.gave_up = f"the same failure came twice within {AT_ONCE_S:.0f} s of the start"
            return False
        return True


def _are_same(before: Attempt, now: Attempt) -> bool:
    """Say whether two attempts failed at once, and of the same thing; on which rank is chance."""
    if not (before.failed_at_once and now.failed_at_once):
        return False
    one, other = before.cause, now.cause
    return (
        one is not None
        and other is not None
        and (one.exception, one.message, one.exit_code, one.signal)
        == (other.exception, other.message, other.exit_code, other.signal)
    )
