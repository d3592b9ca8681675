"""The coordinator: decides for all nodes when an attempt starts, stops and is over. A state machine without any I/O.

It is told what the agents say and when, and answers with what all of them are to be told. ``hub`` carries the words,
and asks ``next_step`` for what is left to be done on node 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import Outcome, choose_root_cause, describe, is_lost_peer
from hpc_multinode.slurm.ends import WARNING

if TYPE_CHECKING:
    from collections.abc import Mapping

Message = dict[str, Any]

# A rank that has lost its peer often speaks before the peer, which is still cleaning up: for so long its own word is
# waited for before everything is stopped.
HOLD_S = 0.5
# A failure that comes this soon after the start, and again in the next attempt, will come in every attempt.
AT_ONCE_S = 10.0


# For so long the agents' word on whether their workers listen is waited for.
TELL_S = 1.0


class _State(Enum):
    joining = "joining"
    preparing = "preparing"
    running = "running"
    # The workers have been told that they are to stop; who of them listens decides what comes next.
    telling = "telling"
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
        has_noticed: A worker has heard that it was to stop.
        step: The furthest step that a worker has said to be saved; None where none has said anything.
    """

    number: int | None = None
    started: float | None = None
    failures: list[tuple[float, Outcome]] = field(default_factory=list)
    outcomes: dict[int | None, Outcome] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    has_noticed: bool = False
    step: int | None = None

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
        stops_at_warning: A warning ends the attempt also where no worker listens, because it is to be requeued.
    """

    def __init__(self, *, num_nodes: int, max_restarts: int = 0, stops_at_warning: bool = False) -> None:
        self._num_nodes, self._max_restarts = num_nodes, max_restarts
        self._stops_at_warning = stops_at_warning
        self._state = _State.joining
        self._hosts: dict[int, str] = {}
        self._lost: set[int] = set()
        self._signalled: set[int] = set()
        self._told: set[int] = set()
        self._has_listeners = False
        self._wake_at: float | None = None
        self.attempts = [Attempt()]
        self.asked_by: str | None = None
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
    def wake_at(self) -> float | None:
        """When ``tick`` is to be called, on the caller's clock in seconds; None where nothing is waited for."""
        return self._wake_at if self._state in (_State.running, _State.telling) else None

    @property
    def signalled(self) -> dict[int, str]:
        """The nodes that got a signal to end, by rank, and their hosts."""
        return {rank: self._hosts.get(rank, "?") for rank in sorted(self._signalled)}

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
            message: ``failed`` with an outcome, ``signal`` with its name, ``told`` with whether workers listen,
                ``phase`` with name and seconds, ``ended`` with all outcomes of the node.
            now: Seconds on the coordinator's own monotonic clock.
        """
        kind = message["kind"]
        if kind == "failed":
            return self.fail(Outcome.from_json(message["outcome"]), now=now)
        if kind == "signal":
            return self._hear_signal(node_rank, message["signal"], now=now)
        if kind == "told":
            self._told.add(node_rank)
            self._has_listeners = self._has_listeners or message["listens"]
            return self._decide() if self._told | self._lost >= set(self._hosts) else []
        if kind == "phase":
            name, seconds = message["name"], message["seconds"]
            self.attempt.phases[name] = max(seconds, self.attempt.phases.get(name, 0.0))
        if kind == "ended":
            for data in message["outcomes"]:
                outcome = Outcome.from_json(data)
                self.attempt.outcomes[outcome.global_rank] = outcome
            self.attempt.has_noticed = self.attempt.has_noticed or message.get("has_noticed", False)
            steps = [step for step in (self.attempt.step, message.get("step")) if step is not None]
            self.attempt.step = max(steps, default=None)
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
        if self._state in (_State.running, _State.telling) and is_lost_peer(outcome):
            if self._wake_at is None:
                self._wake_at = now + HOLD_S
            return []
        return self._stop("failure")

    def tick(self, now: float) -> list[Message]:
        """Go on where a lost peer's own word, or the agents' answer, has been waited for long enough."""
        if self.wake_at is None or now < self.wake_at:
            return []
        return self._stop("failure") if self.attempt.failures else self._decide()

    def _hear_signal(self, node_rank: int, name: str, *, now: float) -> list[Message]:
        if self._state is _State.over:
            return []
        if name == WARNING:
            return self._ask(name, now=now) if self._state not in (_State.telling, _State.stopping) else []
        is_repeated = node_rank in self._signalled
        self._signalled.add(node_rank)
        if self._state is _State.telling:
            self.asked_by = name
            return []
        if self._state is not _State.stopping:
            return self._ask(name, now=now)
        if is_repeated:  # whoever asks twice does not want to wait
            return [{"kind": "stop", "reason": "kill"}]
        # After a warning the end is there; after a failure it is srun that ends all because one has ended badly.
        return [{"kind": "stop", "reason": "hurry"}] if self.asked_by == WARNING else []

    def _ask(self, name: str, *, now: float) -> list[Message]:
        self.asked_by = name
        if self._state is not _State.running:
            return self._stop("cancel")
        self._state = _State.telling
        self._told.clear()
        self._has_listeners = False
        self._wake_at = now + TELL_S
        return [{"kind": "tell"}]

    def _decide(self) -> list[Message]:
        """Stop the workers that have been told; or let them go on to the end where that is all that they can do."""
        if self._state is not _State.telling:
            return []
        if self.asked_by == WARNING:
            if self._has_listeners or self._stops_at_warning:
                return self._stop("warning")
            self._state, self._wake_at, self.asked_by = _State.running, None, None
            return []
        return self._stop("cancel" if self._has_listeners else "cancel_at_once")

    def _stop(self, reason: str) -> list[Message]:
        if self._state in (_State.stopping, _State.over):
            return []
        # Between attempts no worker runs anywhere.
        self._state = _State.over if self._state is _State.preparing else _State.stopping
        self._settle()
        return [self._make_stop(reason)]

    def _make_stop(self, reason: str) -> Message:
        cause = self.attempt.cause
        return {"kind": "stop", "reason": reason, "why": describe(cause) if cause is not None else self.asked_by}

    def _note_end(self, node_rank: int) -> None:
        self.attempt.ended.add(node_rank)
        self._settle()

    def _settle(self) -> None:
        """Go on where no worker is left anywhere: to the next attempt, or to the end."""
        is_live = self._state in (_State.running, _State.telling, _State.stopping)
        if not is_live or not self.attempt.ended >= set(self._hosts):
            return
        if self._may_restart():
            self._state = _State.preparing
            self._wake_at = None
            self.attempts.append(Attempt())
        else:
            self._state = _State.over

    def _may_restart(self) -> bool:
        cause = self.attempt.cause
        # What is no worker's failure, such as a node that is gone, is there in the next attempt too.
        if cause is None or cause.global_rank is None or self.asked_by is not None or self._lost:
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
