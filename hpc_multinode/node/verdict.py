"""From what the coordinator has heard to the report. Pure but for the clock's reading at the end."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import Report, classify, describe, make_cancel_code, make_exit_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Attempt, Coordinator
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.report import Outcome

# Slurm's words for failures of these classes; the others are plain FAILED.
_STATES = {"lost_node": "NODE_FAIL", "out_of_memory": "OUT_OF_MEMORY"}


def compose_report(
    plan: LaunchPlan, node: NodeContext, coordinator: Coordinator, *, began: Sequence[datetime]
) -> Report:
    """Compose the report of a run that is over.

    Args:
        plan: The run.
        node: Node 0.
        coordinator: Has heard all agents.
        began: When each attempt began, the first with the agent of node 0.
    """
    last = coordinator.attempt
    cause = last.cause if coordinator.cancelled_by is None else None
    if coordinator.cancelled_by is not None:
        state, code, failure_class = "CANCELLED", make_cancel_code(coordinator.cancelled_by), "cancelled"
    elif cause is not None:
        failure_class = classify(cause)
        state, code = _STATES.get(failure_class, "FAILED"), make_exit_code(cause)
    else:
        state, code, failure_class = "COMPLETED", 0, None
    # What a worker said of its failure stands; how its process ended after that is our doing.
    outcomes = {**{_who(one): one for one in last.outcomes.values()}, **_first_told(last)}
    consequences = [
        outcomes[who]
        for who in sorted(outcomes)
        if (outcomes[who].is_failure or outcomes[who].is_stopped) and (cause is None or who != _who(cause))
    ]
    prepared = [attempt for attempt in coordinator.attempts if attempt.number is not None]
    ends = [*began[1:], datetime.now(timezone.utc).astimezone()]
    records = [
        _make_record(attempt, node, began=start, ended=end, state=state if attempt is last else "FAILED")
        for attempt, start, end in zip(prepared, began, ends, strict=False)
    ]
    return Report(
        run=plan.run_id,
        run_dir=plan.run_dir,
        job_id=node.job_id,
        state=state,
        exit_code=code,
        failure_class=failure_class,
        world_size=plan.world_size,
        num_nodes=plan.num_nodes,
        root_cause=cause,
        consequences=tuple(consequences),
        attempts=tuple(records),
        notes=_make_notes(coordinator),
    )


def _make_record(
    attempt: Attempt, node: NodeContext, *, began: datetime, ended: datetime, state: str
) -> dict[str, Any]:
    cause = attempt.cause
    return {
        "attempt": attempt.number,
        "started": began.isoformat(timespec="milliseconds"),
        "ended": ended.isoformat(timespec="milliseconds"),
        "nodes": list(node.hosts),
        "ended_by": _ended_by(state),
        "phases": dict(attempt.phases),
        "cause": describe(cause) if cause is not None else None,
    }


def _make_notes(coordinator: Coordinator) -> tuple[str, ...]:
    num_restarts = len(coordinator.attempts) - 1
    notes = []
    if num_restarts:
        notes.append(f"all workers were started again {num_restarts} time{'s' * (num_restarts != 1)} after a failure")
    if coordinator.gave_up is not None:
        notes.append(f"not started again: {coordinator.gave_up}")
    return tuple(notes)


def _who(outcome: Outcome) -> tuple[int, int]:
    """Return whose outcome it is: global rank, or -1 for an agent, and node."""
    return (-1 if outcome.global_rank is None else outcome.global_rank, outcome.node_rank)


def _first_told(attempt: Attempt) -> dict[tuple[int, int], Outcome]:
    return {_who(outcome): outcome for _, outcome in reversed(attempt.failures)}


def _ended_by(state: str) -> str:
    return {"COMPLETED": "success", "CANCELLED": "cancelled", "NODE_FAIL": "lost_node"}.get(state, "failure")
