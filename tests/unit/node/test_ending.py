"""How an attempt has ended, and whether the job comes back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.ending import Ending, judge_ending, refuse_requeue
from hpc_multinode.report import Outcome
from hpc_multinode.slurm.ends import EndKind, JobEnd
from tests.unit.life.runs import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan


@pytest.fixture
def plan(tmp_path: Path) -> LaunchPlan:
    """A job of one worker that Slurm requeues as it does by itself."""
    made = make_plan(tmp_path / "run", mode="slurm", requeues=None, max_requeues=3, requeue_exit_code=None)
    return dataclasses.replace(made, num_nodes=1, local_world_size=1)


def judge(
    plan: LaunchPlan,
    *,
    asked_by: str | None = "SIGTERM",
    kind: str | None = None,
    outcome: Outcome | None = None,
    history: Sequence[dict[str, Any]] = (),
    **attempt: Any,
) -> Ending:
    """Judge the end of an attempt."""
    coordinator = Coordinator(num_nodes=1)
    coordinator.asked_by = asked_by
    for name, value in {"has_noticed": asked_by is not None, **attempt}.items():
        setattr(coordinator.attempt, name, value)
    if outcome is not None:
        coordinator.attempt.outcomes[0] = outcome
        if outcome.is_failure:
            coordinator.attempt.failures.append((0.0, outcome))
    end = None if kind is None else JobEnd(kind=EndKind(kind), left_s=None)
    return judge_ending(plan, coordinator, end=end, history=history)


def make_outcome(exit_code: int = 0, **changes: Any) -> Outcome:
    """Return the end of rank 0."""
    return Outcome(node_rank=0, host="n1", global_rank=0, local_rank=0, exit_code=exit_code, **changes)


@pytest.mark.parametrize(
    ("requeues", "kind", "state", "code", "ended_by"),
    [
        # What Slurm does by itself, and what it does not.
        (None, "preempted", "REQUEUED", 75, "preempted"),
        (None, "time_limit", "TIMEOUT", 143, "time_limit"),
        (True, "preempted", "REQUEUED", 75, "preempted"),
        (True, "time_limit", "REQUEUED", 75, "requeue"),
        (False, "preempted", "PREEMPTED", 143, "preempted"),
        (False, "time_limit", "TIMEOUT", 143, "time_limit"),
        (True, "cancelled", "CANCELLED", 143, "cancelled"),
        (None, None, "CANCELLED", 143, "cancelled"),
    ],
)
def test_who_ends_it_and_what_is_wanted_decide(
    *, plan: LaunchPlan, requeues: bool | None, kind: str | None, state: str, code: int, ended_by: str
) -> None:
    """A cancelled job never comes back, whatever is wanted."""
    ending = judge(dataclasses.replace(plan, requeues=requeues), kind=kind)
    assert (ending.state, ending.exit_code, ending.ended_by) == (state, code, ended_by)
    assert ending.wants_requeue == (state == "REQUEUED")


@pytest.mark.parametrize(
    ("signalled", "goes_on", "note"),
    [
        ([1], True, "only node 1 (n2) got a signal to end, and Slurm lets the job run: a node that shuts down, or"),
        ([0, 1], True, None),
        ([1], False, None),  # the others have not said so yet
    ],
)
def test_a_signal_to_some_nodes_only_is_told(
    *, plan: LaunchPlan, signalled: Sequence[int], goes_on: bool, note: str | None
) -> None:
    """Whoever reads that the run was cancelled, and has cancelled nothing, learns where to look."""
    coordinator = Coordinator(num_nodes=2)
    for rank, host in enumerate(("n1", "n2")):
        coordinator.join(rank, host)
    coordinator.start({}, now=0.0)
    for rank in signalled:
        coordinator.hear(rank, {"kind": "signal", "signal": "SIGTERM"}, now=1.0)
    end = JobEnd(kind=EndKind.cancelled, left_s=None, goes_on=goes_on)
    ending = judge_ending(dataclasses.replace(plan, num_nodes=2), coordinator, end=end, history=())
    assert ending.state == "CANCELLED"
    assert [one[: len(note or "")] for one in ending.notes] == ([note] if note else [])


def test_a_job_that_another_hand_has_requeued(plan: LaunchPlan) -> None:
    """It comes back without our doing, and nobody counts it as ours."""
    ending = judge(dataclasses.replace(plan, requeues=False), kind="requeued")
    assert (ending.state, ending.exit_code, ending.ended_by) == ("REQUEUED", 75, "requeue")
    assert not ending.wants_requeue


def test_a_run_on_this_machine_is_not_requeued(plan: LaunchPlan) -> None:
    """There is nobody to do it."""
    assert judge(dataclasses.replace(plan, mode="step", requeues=True), kind="preempted").state == "PREEMPTED"


def test_slurm_that_cannot_be_asked_is_waited_for(plan: LaunchPlan) -> None:
    """If it was a preemption, Slurm requeues the job only where it has to kill it."""
    ending = judge(plan, kind="unknown")
    assert (ending.state, ending.stays, ending.wants_requeue) == ("CANCELLED", True, False)


def test_a_work_that_was_through_before_it_heard(plan: LaunchPlan) -> None:
    """Its success stands."""
    assert judge(plan, kind="preempted", has_noticed=False, outcome=make_outcome()).state == "COMPLETED"


def test_a_work_that_heard_of_a_warning_later_by_itself(plan: LaunchPlan) -> None:
    """Nobody listened in time, the run went on, and then a handler ended it."""
    ending = judge(dataclasses.replace(plan, requeues=True), asked_by=None, has_noticed=True, outcome=make_outcome())
    assert (ending.state, ending.ended_by) == ("REQUEUED", "requeue")


@pytest.mark.parametrize(
    ("failure_class", "state"), [(None, "FAILED"), ("out_of_memory", "OUT_OF_MEMORY"), ("lost_node", "NODE_FAIL")]
)
def test_a_failure_is_never_requeued_by_us(plan: LaunchPlan, failure_class: str | None, state: str) -> None:
    """Neither memory that ran out nor a lost node; for the latter Slurm does it."""
    outcome = make_outcome(3, failure_class=failure_class)
    ending = judge(dataclasses.replace(plan, requeues=True), asked_by=None, outcome=outcome)
    assert (ending.state, ending.wants_requeue, ending.cause) == (state, False, outcome)


@pytest.mark.parametrize(("num_requeues", "state"), [(0, "REQUEUED"), (2, "REQUEUED"), (3, "PREEMPTED")])
def test_requeues_are_counted_over_all_attempts(plan: LaunchPlan, num_requeues: int, state: str) -> None:
    """At most ``requeue.max``; attempts that Slurm brought back by itself count for nothing."""
    history = [{"requeued": True}] * num_requeues + [{"requeued": False}] * 5
    ending = judge(plan, kind="preempted", history=history)
    assert ending.state == state
    assert ending.notes == (() if state == "REQUEUED" else ("not requeued: requeue.max=3 is used up",))


@pytest.mark.parametrize(
    ("steps", "step", "is_requeued"),
    [
        ([], None, True),
        ([None, None, None], None, True),  # it never says how far it has come
        ([5], 9, True),
        ([5], 5, True),
        ([5, 5], 5, False),
        ([5, None], None, False),
        ([5, 4], 3, False),
        ([5, 5], 6, True),
        ([None, None], 0, True),
    ],
)
def test_a_run_that_gets_nowhere_ends(
    *, plan: LaunchPlan, steps: list[int | None], step: int | None, is_requeued: bool
) -> None:
    """Two attempts in a row that have saved nothing new are enough."""
    begun = {"phases": {"process_group": 1.0}}
    history = [{"requeued": False, "step": one, **begun} for one in steps]
    ending = judge(plan, kind="preempted", history=history, step=step, **begun)
    assert ending.wants_requeue == is_requeued
    if not is_requeued:
        assert "2 attempts in a row have saved nothing new; the last step saved is 5" in ending.notes[0]


def test_attempts_that_were_over_before_they_began_are_not_idle(plan: LaunchPlan) -> None:
    """They could save nothing; ``requeue.max`` bounds them."""
    history = [{"step": 5, "phases": {"process_group": 1.0}}, *[{"step": None, "phases": {"joined": 0.1}}] * 4]
    assert judge(plan, kind="preempted", history=history, phases={"joined": 0.1}).wants_requeue


@pytest.mark.parametrize(
    ("kind", "exit_code", "code", "state", "stays"),
    [
        ("preempted", None, 143, "PREEMPTED", True),
        ("time_limit", None, 143, "TIMEOUT", False),
        ("time_limit", 99, 99, "TIMEOUT", False),
    ],
)
def test_a_requeue_that_is_refused(
    *, plan: LaunchPlan, kind: str, exit_code: int | None, code: int, state: str, stays: bool
) -> None:
    """Slurm's words are in the report; a site may set the exit code that its own scripts look for."""
    plan = dataclasses.replace(plan, requeues=True, requeue_exit_code=exit_code)
    ending = refuse_requeue(plan, judge(plan, kind=kind), why="Requested operation is disabled")
    assert (ending.exit_code, ending.state, ending.stays, ending.wants_requeue) == (code, state, stays, False)
    assert ending.notes == ("not requeued, though it was to be: Requested operation is disabled",)
