"""From what the coordinator has heard to the report. Pure but for the clock's reading at the end."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.records import time_attempts
from hpc_multinode.report import Report, describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Attempt, Coordinator
    from hpc_multinode.node.ending import Ending
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.report import Outcome


def compose_report(
    plan: LaunchPlan,
    node: NodeContext,
    coordinator: Coordinator,
    ending: Ending,
    *,
    began: Sequence[datetime],
    history: Sequence[dict[str, Any]] = (),
    submitted: str | None = None,
) -> Report:
    """Compose the report of a run that is over in this job.

    Args:
        plan: The run.
        node: Node 0.
        coordinator: Has heard all agents.
        ending: How the last attempt has ended.
        began: When each attempt of this job began, the first with the agent of node 0.
        history: Attempts of earlier jobs.
        submitted: When the run was submitted, as ISO 8601; None where it is not known.
    """
    last, cause = coordinator.attempt, ending.cause
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
        _make_record(attempt, node, began=start, ended=stop, ending=ending if attempt is last else None)
        for attempt, start, stop in zip(prepared, began, ends, strict=False)
    ]
    return Report(
        run=plan.run_id,
        run_dir=plan.run_dir,
        job_id=node.job_id,
        state=ending.state,
        exit_code=ending.exit_code,
        failure_class=ending.failure_class,
        world_size=plan.world_size,
        num_nodes=plan.num_nodes,
        root_cause=cause,
        consequences=tuple(consequences),
        attempts=time_attempts((*history, *records), submitted=submitted),
        notes=(*_make_notes(coordinator), *ending.notes),
    )


def _make_record(
    attempt: Attempt, node: NodeContext, *, began: datetime, ended: datetime, ending: Ending | None
) -> dict[str, Any]:
    """Compose one attempt's record; without an ending another one followed it in the same job."""
    cause = attempt.cause if ending is None else ending.cause
    return {
        "attempt": attempt.number,
        "started": began.isoformat(timespec="milliseconds"),
        "ended": ended.isoformat(timespec="milliseconds"),
        "nodes": list(node.hosts),
        "ended_by": "restart" if ending is None else ending.ended_by,
        "phases": dict(attempt.phases),
        "cause": describe(cause) if cause is not None else None,
        "step": attempt.step,
        "requeued": ending is not None and ending.wants_requeue,
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
