"""From what the coordinator has heard to the report."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from hpc_multinode.config import Config, Mode
from hpc_multinode.context import NodeContext
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.ending import judge_ending
from hpc_multinode.node.verdict import compose_report
from hpc_multinode.planning import make_plan
from hpc_multinode.report import Outcome, Report
from tests.unit.facts import make_facts

NUM_NODES = 3
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def make_outcome(rank: int, **fields: Any) -> Outcome:
    """Return the outcome of the one worker of a node; by default it ended well."""
    return Outcome(**{"node_rank": rank, "host": f"n{rank}", "global_rank": rank, "local_rank": 0, **fields})


def make_error(rank: int, exception: str = "ValueError", message: str = "boom") -> Outcome:
    """Return the outcome of a worker that raised."""
    return make_outcome(rank, exit_code=1, exception=exception, message=message)


def make_stopped(rank: int) -> Outcome:
    """Return the outcome of a worker that was stopped by us."""
    return make_outcome(rank, signal="SIGTERM", is_stopped=True)


class History:
    """A run of three nodes with one worker each, which has started."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(num_nodes=NUM_NODES)
        for rank in range(NUM_NODES):
            self.coordinator.join(rank, f"n{rank}")
        self.coordinator.start({"main_address": "n0", "main_port": 1234, "attempt": 0}, now=0.0)
        self.coordinator.attempt.number = 2
        self.coordinator.attempt.phases["joined"] = 0.1

    def fail(self, outcome: Outcome, *, now: float = 1.0) -> History:
        """A worker's failure is told."""
        self.coordinator.hear(outcome.node_rank, {"kind": "failed", "outcome": outcome.to_json()}, now=now)
        return self

    def cancel(self, signal: str = "SIGTERM") -> History:
        """A signal is told."""
        self.coordinator.hear(0, {"kind": "signal", "signal": signal}, now=1.0)
        for rank in range(NUM_NODES):
            self.coordinator.hear(rank, {"kind": "told", "listens": False}, now=1.0)
        return self

    def end(self, *outcomes: Outcome) -> History:
        """The nodes of these outcomes tell their end."""
        for outcome in outcomes:
            words = {"kind": "ended", "outcomes": [outcome.to_json()]}
            self.coordinator.hear(outcome.node_rank, words, now=9.0)
        return self

    def report(self) -> Report:
        """Return the report of what has been heard."""
        facts = make_facts(mode=Mode.slurm)
        node = NodeContext(
            job_id="4711",
            step_id="0",
            node_rank=0,
            num_nodes=NUM_NODES,
            hosts=("n0", "n1", "n2"),
            main_address="n0",
            port_candidates=(),
            local_world_size=1,
            devices=(),
            restart_count=0,
            source="slurm-step",
        )
        plan = make_plan(Config(nodes=NUM_NODES), facts=facts, target=None)
        ending = judge_ending(plan, self.coordinator, end=None, history=())
        return compose_report(plan, node, self.coordinator, ending, began=[STARTED])


def test_success() -> None:
    """All workers that ended well make a completed run without a cause."""
    report = History().end(*(make_outcome(rank, exit_code=0) for rank in range(3))).report()
    assert (report.state, report.exit_code, report.failure_class) == ("COMPLETED", 0, None)
    assert (report.root_cause, report.consequences) == (None, ())


def test_the_report_says_which_run_it_was() -> None:
    """Run, folder, job and sizes are the plan's and the node's."""
    report = History().report()
    assert (report.run, report.run_dir, report.job_id) == ("run-1", "/home/ada/runs/run-1", "4711")
    assert (report.world_size, report.num_nodes) == (3, 3)


def test_the_attempt_is_recorded() -> None:
    """Number, hosts, phases and times with their zone are kept."""
    (attempt,) = History().end(*(make_outcome(rank, exit_code=0) for rank in range(3))).report().attempts
    assert (attempt["attempt"], attempt["nodes"], attempt["phases"]) == (2, ["n0", "n1", "n2"], {"joined": 0.1})
    assert (attempt["started"], attempt["ended_by"]) == ("2026-01-02T03:04:05.000+00:00", "success")
    assert datetime.fromisoformat(attempt["ended"]).tzinfo is not None


def test_the_first_failure_is_the_cause() -> None:
    """The first to arrive is the root cause, and the run ends with its code."""
    report = History().fail(make_outcome(2, exit_code=9), now=1.0).fail(make_error(1), now=1.2).report()
    assert report.root_cause is not None
    assert (report.root_cause.global_rank, report.exit_code, report.state) == (2, 9, "FAILED")
    assert report.failure_class == "exception"


def test_everything_else_is_a_consequence() -> None:
    """Who failed later and who was stopped follow in order of rank, the cause not among them."""
    history = History().fail(make_error(1)).fail(make_error(2), now=1.5)
    report = history.end(make_stopped(0), make_error(1), make_error(2)).report()
    assert [(one.global_rank, one.is_stopped) for one in report.consequences] == [(0, True), (2, False)]


def test_who_ended_well_is_no_consequence() -> None:
    """A worker that had ended before the failure is not counted."""
    report = History().fail(make_error(1)).end(make_outcome(0, exit_code=0), make_stopped(2)).report()
    assert [one.global_rank for one in report.consequences] == [2]


def test_a_lost_peer_is_not_the_cause() -> None:
    """A rank that reports a closed connection stands behind the one that raised, though it was heard first."""
    lost = make_error(0, "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:1234")
    report = History().fail(lost, now=1.0).fail(make_error(2), now=1.5).report()
    assert report.root_cause is not None
    assert report.root_cause.global_rank == 2


def test_a_lost_peer_is_the_cause_where_nothing_else_is() -> None:
    """Where all report closed connections, the earliest is the cause."""
    first, second = (make_error(rank, "RuntimeError", "Connection reset by peer") for rank in (1, 0))
    report = History().fail(first, now=1.0).fail(second, now=1.1).report()
    assert report.root_cause is not None
    assert report.root_cause.global_rank == 1


def test_a_failure_that_comes_late_is_not_the_cause() -> None:
    """Seconds after the first nothing is its cause any more."""
    lost = make_error(0, "RuntimeError", "Connection reset by peer")
    report = History().fail(lost, now=1.0).fail(make_error(2), now=3.0).report()
    assert report.root_cause is not None
    assert report.root_cause.global_rank == 0


@pytest.mark.parametrize(("exit_code", "code"), [(3, 3), (255, 255), (2, 1), (75, 1)])
def test_the_exit_code_is_the_works_own(exit_code: int, code: int) -> None:
    """The work's own code is the run's, but for 2 and 75, which mean something else; the report keeps the true one."""
    report = History().fail(make_outcome(1, exit_code=exit_code)).report()
    assert report.root_cause is not None
    assert (report.exit_code, report.root_cause.exit_code) == (code, exit_code)


def test_a_signal_is_128_and_its_number() -> None:
    """A worker that was killed gives the run the code of its signal."""
    report = History().fail(make_outcome(1, signal="SIGKILL")).report()
    assert (report.exit_code, report.failure_class) == (137, "signal")


def test_a_signal_without_a_name_still_fails_the_run() -> None:
    """A real-time signal has no name in Python and gives code 1."""
    assert History().fail(make_outcome(1, signal="signal 40")).report().exit_code == 1


def test_a_lost_node_is_the_cause() -> None:
    """An agent that is gone fails the run as a lost node, by name."""
    history = History()
    history.coordinator.lose(1, now=1.0)
    report = history.end(make_stopped(0), make_stopped(2)).report()
    assert report.root_cause is not None
    assert (report.root_cause.node_rank, report.root_cause.host) == (1, "n1")
    assert (report.state, report.exit_code, report.failure_class) == ("NODE_FAIL", 1, "lost_node")
    assert report.attempts[0]["ended_by"] == "lost_node"


def test_a_node_lost_after_a_failure_is_a_consequence() -> None:
    """An agent that is lost while the run stops is told, though it is not the cause."""
    history = History().fail(make_error(0), now=1.0)
    history.coordinator.lose(1, now=1.5)
    report = history.end(make_error(0), make_stopped(2)).report()
    assert [(one.node_rank, one.failure_class) for one in report.consequences] == [(1, "lost_node"), (2, None)]


def test_two_lost_nodes_are_both_named() -> None:
    """Every node that is lost while the run stops is a consequence."""
    history = History().fail(make_error(0), now=1.0)
    history.coordinator.lose(1, now=1.5)
    history.coordinator.lose(2, now=1.6)
    report = history.end(make_error(0)).report()
    assert [one.node_rank for one in report.consequences] == [1, 2]


def test_a_node_that_never_came_is_the_cause() -> None:
    """A rendezvous that failed has its own class."""
    history = History()
    absent = Outcome(node_rank=2, host="n2", message="did not come", failure_class="rendezvous")
    history.coordinator.fail(absent, now=1.0)
    report = history.report()
    assert (report.root_cause, report.failure_class) == (absent, "rendezvous")
    assert (report.state, report.exit_code) == ("FAILED", 1)


@pytest.mark.parametrize(("signal", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_cancelled_run_has_no_cause(signal: str, code: int) -> None:
    """A signal to the agents ends the run with its code, and is nobody's failure."""
    report = History().cancel(signal).end(*(make_stopped(rank) for rank in range(3))).report()
    assert (report.state, report.exit_code, report.failure_class) == ("CANCELLED", code, "cancelled")
    assert report.root_cause is None
    assert report.attempts[0]["ended_by"] == "cancelled"
    assert [one.global_rank for one in report.consequences] == [0, 1, 2]


def test_a_failure_during_a_cancel_is_a_consequence() -> None:
    """A worker that raises because it was stopped is told, and the run stays cancelled."""
    report = History().cancel().fail(make_error(1), now=1.5).end(make_stopped(0), make_stopped(2)).report()
    assert (report.state, report.root_cause) == ("CANCELLED", None)
    assert [(one.global_rank, one.exception) for one in report.consequences] == [
        (0, None),
        (1, "ValueError"),
        (2, None),
    ]


def test_a_cancel_after_a_failure_does_not_hide_it() -> None:
    """The SIGTERM that follows a failed task leaves the run a failed one."""
    report = History().fail(make_error(1)).cancel().report()
    assert (report.state, report.exit_code) == ("FAILED", 1)


def test_the_report_survives_json() -> None:
    """What is written is what is read back."""
    report = History().fail(make_error(1)).end(make_stopped(0)).report()
    assert Report.from_json(report.to_json()) == report
