"""How an attempt has ended, and whether the job is to come back for another one. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import EXIT_REQUEUED, classify, make_cancel_code, make_exit_code
from hpc_multinode.slurm.ends import WARNING, EndKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.node.coordinator import Coordinator
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.report import Outcome
    from hpc_multinode.slurm.ends import JobEnd

REQUEUED = "REQUEUED"
# Slurm's words for failures of these classes; the others are plain FAILED.
_STATES = {"lost_node": "NODE_FAIL", "out_of_memory": "OUT_OF_MEMORY"}
_ENDED_BY = {"COMPLETED": "success", "CANCELLED": "cancelled", "NODE_FAIL": "lost_node"}
# Longer than any grace that is left to one who stays; Slurm's SIGKILL comes before.
STAY_S = 300.0
# So many attempts in a row without anything new are enough.
_MAX_IDLE = 2
# The phase in which the works of an attempt begin.
_BEGUN = "process_group"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt, and with it the run in this job, has ended.

    Attributes:
        state: Slurm's word, as of the report.
        exit_code: As of the report.
        failure_class: As of the report.
        ended_by: As of an attempt in the report.
        cause: The root cause, or None.
        wants_requeue: The job is to come back.
        stays: Slurm requeues the job itself when it has killed it, and never if it ends before.
        notes: What a reader has to know beside it.
    """

    state: str
    exit_code: int
    failure_class: str | None
    ended_by: str
    cause: Outcome | None = None
    wants_requeue: bool = False
    stays: bool = False
    notes: tuple[str, ...] = ()


def judge_ending(
    plan: LaunchPlan, coordinator: Coordinator, *, end: JobEnd | None, history: Sequence[Mapping[str, Any]]
) -> Ending:
    """Decide how the last attempt has ended.

    Args:
        plan: The run.
        coordinator: Has heard all agents.
        end: Why Slurm has sent a signal; None where it has sent none, or there is no Slurm.
        history: Attempts of earlier jobs of this run, as in the report.
    """
    last = coordinator.attempt
    if coordinator.asked_by is None and not last.has_noticed:
        return _judge_own_end(last.cause)
    outcomes = last.outcomes.values()
    if not last.has_noticed and len(outcomes) == plan.world_size and all(one.exit_code == 0 for one in outcomes):
        return _judge_own_end(None)  # the work was through before it heard of anything
    kind = EndKind.cancelled if end is None else end.kind
    # A work that was told of its limit, went on, and heard of it later by itself.
    kind = EndKind.time_limit if coordinator.asked_by is None else kind
    code = make_cancel_code(coordinator.asked_by or WARNING)
    if kind is EndKind.cancelled:
        notes = _tell_who(coordinator.signalled, plan.num_nodes) if end is not None and end.goes_on else ()
        return Ending(state="CANCELLED", exit_code=code, failure_class="cancelled", ended_by="cancelled", notes=notes)
    if kind is EndKind.requeued:
        return Ending(
            state=REQUEUED,
            exit_code=EXIT_REQUEUED,
            failure_class="cancelled",
            ended_by="requeue",
            notes=("requeued by another hand: scontrol requeue, or Slurm itself",),
        )
    if kind is EndKind.unknown:
        note = "Slurm could not be asked whether this was a preemption: its own requeue was waited for"
        stays = coordinator.asked_by != WARNING
        return Ending(
            state="CANCELLED",
            exit_code=code,
            failure_class="cancelled",
            ended_by="cancelled",
            stays=stays,
            notes=(note,),
        )
    ended_by = "preempted" if kind is EndKind.preempted else "time_limit"
    without = Ending(
        state="PREEMPTED" if kind is EndKind.preempted else "TIMEOUT",
        exit_code=make_cancel_code("SIGTERM"),
        failure_class=ended_by,
        ended_by=ended_by,
    )
    attempts = [*history, {"step": last.step, "phases": last.phases}]
    return _consider_requeue(plan, without, kind=kind, attempts=attempts)


def _tell_who(signalled: Mapping[int, str], num_nodes: int) -> tuple[str, ...]:
    """Say who was told to end, where it was not all of a job that Slurm lets run on."""
    if not 0 < len(signalled) < num_nodes:
        return ()
    who = ", ".join(f"node {rank} ({host})" for rank, host in signalled.items())
    return (f"only {who} got a signal to end, and Slurm lets the job run: a node that shuts down, or a kill by hand",)


def _judge_own_end(cause: Outcome | None) -> Ending:
    if cause is None:
        return Ending(state="COMPLETED", exit_code=0, failure_class=None, ended_by="success")
    failure_class = classify(cause)
    state = _STATES.get(failure_class, "FAILED")
    return Ending(
        state=state,
        exit_code=make_exit_code(cause),
        failure_class=failure_class,
        ended_by=_ENDED_BY.get(state, "failure"),
        cause=cause,
    )


def _consider_requeue(
    plan: LaunchPlan, without: Ending, *, kind: EndKind, attempts: Sequence[Mapping[str, Any]]
) -> Ending:
    """Return the ending with a requeue where one is wanted and makes sense, else the one without."""
    # Slurm's own habit: preempted jobs come back unless that is forbidden, those at their limit only if asked for.
    is_wanted = plan.requeues is True or (plan.requeues is None and kind is EndKind.preempted)
    if plan.mode != "slurm" or not is_wanted:
        return without
    num_requeues = sum(bool(attempt.get("requeued")) for attempt in attempts)
    # One that was over before its works began has burnt nothing, and could save nothing.
    steps = [attempt.get("step") for attempt in attempts if _BEGUN in attempt.get("phases", {})]
    refusal = None
    if num_requeues >= plan.max_requeues:
        refusal = f"not requeued: requeue.max={plan.max_requeues} is used up"
    elif _is_idle(steps):
        best = max(step for step in steps if step is not None)
        refusal = f"not requeued: {_MAX_IDLE} attempts in a row have saved nothing new; the last step saved is {best}"
    if refusal is not None:
        return replace(without, notes=(refusal,))
    ended_by = "preempted" if kind is EndKind.preempted else "requeue"
    return replace(without, state=REQUEUED, exit_code=EXIT_REQUEUED, ended_by=ended_by, wants_requeue=True)


def refuse_requeue(plan: LaunchPlan, ending: Ending, *, why: str) -> Ending:
    """Return the ending of an attempt that was to be requeued and could not be.

    Args:
        plan: The run.
        ending: What was wanted.
        why: Slurm's words.
    """
    is_preempted = ending.ended_by == "preempted"
    code = make_cancel_code("SIGTERM") if plan.requeue_exit_code is None else plan.requeue_exit_code
    return replace(
        ending,
        state="PREEMPTED" if is_preempted else "TIMEOUT",
        exit_code=code,
        ended_by="preempted" if is_preempted else "time_limit",
        wants_requeue=False,
        # In a preemption Slurm may still requeue the job itself.
        stays=is_preempted,
        notes=(*ending.notes, f"not requeued, though it was to be: {why}"),
    )


def _is_idle(steps: Sequence[int | None]) -> bool:
    """Say whether the last attempts have saved nothing new, in a run whose work has ever said what it saves."""
    best, num_idle = -1, 0
    for step in steps:
        is_new = step is not None and step > best
        num_idle = 0 if is_new else num_idle + 1
        best = max(best, -1 if step is None else step)
    return best >= 0 and num_idle >= _MAX_IDLE
