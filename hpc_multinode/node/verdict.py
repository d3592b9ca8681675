"""From what the coordinator has heard to the report. Pure but for the clock's reading at the end."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import Report, choose_root_cause, classify, make_cancel_code, make_exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Coordinator
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.report import Outcome


def compose_report(
    plan: LaunchPlan,
    node: NodeContext,
    coordinator: Coordinator,
    *,
    attempt: int,
    started: datetime,
    phases: Mapping[str, float],
) -> Report:
    """Compose the report of a run that is over.

    Args:
        plan: The run.
        node: Node 0.
        coordinator: Has heard all agents.
        attempt: Number of the attempt.
        started: When the agent of node 0 began.
        phases: Seconds from there to each phase.
    """
    is_cancelled = coordinator.cancelled_by is not None
    cause = None if is_cancelled else choose_root_cause(coordinator.failures)
    if coordinator.cancelled_by is not None:
        state, code, failure_class = "CANCELLED", make_cancel_code(coordinator.cancelled_by), "cancelled"
    elif cause is not None:
        failure_class = classify(cause)
        state, code = "NODE_FAIL" if failure_class == "lost_node" else "FAILED", make_exit_code(cause)
    else:
        state, code, failure_class = "COMPLETED", 0, None
    # What a worker said of its failure stands; how its process ended after that is our doing.
    outcomes = {**{_who(one): one for one in coordinator.outcomes.values()}, **_first_told(coordinator)}
    consequences = [
        outcomes[who]
        for who in sorted(outcomes)
        if (outcomes[who].is_failure or outcomes[who].is_stopped) and (cause is None or who != _who(cause))
    ]
    record: dict[str, Any] = {
        "attempt": attempt,
        "started": started.isoformat(timespec="milliseconds"),
        "ended": datetime.now(timezone.utc).astimezone().isoformat(timespec="milliseconds"),
        "nodes": list(node.hosts),
        "ended_by": _ended_by(state),
        "phases": dict(phases),
    }
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
        attempts=(record,),
    )


def _who(outcome: Outcome) -> tuple[int, int]:
    """Return whose outcome it is: global rank, or -1 for an agent, and node."""
    return (-1 if outcome.global_rank is None else outcome.global_rank, outcome.node_rank)


def _first_told(coordinator: Coordinator) -> dict[tuple[int, int], Outcome]:
    return {_who(outcome): outcome for _, outcome in reversed(coordinator.failures)}


def _ended_by(state: str) -> str:
    return {"COMPLETED": "success", "CANCELLED": "cancelled", "NODE_FAIL": "lost_node"}.get(state, "failure")
