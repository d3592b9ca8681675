"""Every signal at every stage of a run, once and twice: what all nodes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpc_multinode.node.coordinator import Coordinator, Step
from hpc_multinode.slurm.ends import WARNING
from tests.unit.node.test_coordinator import (
    START,
    ask,
    cancel,
    ended,
    failed,
    make_joined,
    make_restartable,
    make_running,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _some_have_joined() -> Coordinator:
    coordinator = Coordinator(num_nodes=2)
    coordinator.join(0, "n0")
    return coordinator


def _telling() -> Coordinator:
    coordinator = make_running(2)
    coordinator.hear(1, cancel(), now=1.0)
    return coordinator


def _cancelled() -> Coordinator:
    coordinator = make_running(2)
    ask(coordinator, 2, listens=True)
    return coordinator


def _warned() -> Coordinator:
    coordinator = make_running(2)
    ask(coordinator, 2, WARNING, listens=True)
    return coordinator


def _failed() -> Coordinator:
    coordinator = make_running(2)
    coordinator.hear(1, failed(1), now=1.0)
    return coordinator


def _between_attempts() -> Coordinator:
    coordinator = make_restartable(5)
    coordinator.hear(1, failed(1), now=100.0)
    for rank in (0, 1):
        coordinator.hear(rank, ended(rank, exit_code=1), now=100.0)
    return coordinator


def _over() -> Coordinator:
    coordinator = make_running(2)
    for rank in (0, 1):
        coordinator.hear(rank, ended(rank), now=1.0)
    return coordinator


_STAGES: dict[str, Callable[[], Coordinator]] = {
    "some have joined": _some_have_joined,
    "all have joined": lambda: make_joined(2),
    "running": lambda: make_running(2),
    "telling": _telling,
    "stopping, cancelled": _cancelled,
    "stopping, warned": _warned,
    "stopping, failed": _failed,
    "between attempts": _between_attempts,
    "over": _over,
}


@pytest.mark.parametrize(
    ("stage", "signals", "told"),
    [
        # No worker runs yet: there is nobody to tell.
        ("some have joined", ["SIGTERM"], ["cancel"]),
        ("some have joined", ["SIGTERM", "SIGTERM"], ["kill"]),
        ("some have joined", [WARNING], ["cancel"]),
        ("all have joined", ["SIGTERM"], ["cancel"]),
        ("all have joined", ["SIGTERM", "SIGTERM"], []),
        ("all have joined", [WARNING], ["cancel"]),
        ("running", ["SIGTERM"], ["tell"]),
        ("running", ["SIGTERM", "SIGTERM"], []),  # whether anybody listens is not known yet
        ("running", [WARNING], ["tell"]),
        ("running", [WARNING, WARNING], []),
        ("running", [WARNING, "SIGTERM"], []),
        ("telling", ["SIGINT"], []),
        ("telling", [WARNING], []),
        # node 0 has had the first one already
        ("stopping, cancelled", ["SIGTERM"], ["kill"]),
        ("stopping, cancelled", [WARNING], []),
        ("stopping, warned", ["SIGTERM"], ["hurry"]),
        ("stopping, warned", ["SIGTERM", "SIGTERM"], ["kill"]),
        ("stopping, warned", [WARNING], []),
        # srun's own, because one of its tasks has ended badly
        ("stopping, failed", ["SIGTERM"], []),
        ("stopping, failed", ["SIGTERM", "SIGTERM"], ["kill"]),
        ("stopping, failed", [WARNING], []),
        ("between attempts", ["SIGTERM"], ["cancel"]),
        ("between attempts", ["SIGTERM", "SIGTERM"], []),
        ("between attempts", [WARNING], ["cancel"]),
        ("over", ["SIGTERM"], []),
        ("over", ["SIGTERM", "SIGTERM"], []),
        ("over", [WARNING], []),
    ],
)
def test_what_a_signal_makes_of_a_stage(stage: str, signals: list[str], told: list[str]) -> None:
    """The answer to the last of the signals, each of which comes to node 0."""
    coordinator = _STAGES[stage]()
    for number, name in enumerate(signals):
        messages = coordinator.hear(0, cancel(name), now=10.0 + number)
    assert [message.get("reason", message["kind"]) for message in messages] == told


@pytest.mark.parametrize("stage", ["some have joined", "all have joined", "between attempts"])
@pytest.mark.parametrize("name", ["SIGTERM", WARNING])
def test_after_a_signal_no_worker_is_started(stage: str, name: str) -> None:
    """Whatever was being prepared."""
    coordinator = _STAGES[stage]()
    coordinator.hear(0, cancel(name), now=10.0)
    assert coordinator.start(START, now=11.0) == []
    assert coordinator.asked_by == name
    for rank in (0, 1):
        coordinator.hear(rank, ended(rank), now=12.0)
    assert coordinator.next_step is Step.finish
