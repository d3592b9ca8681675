"""Scripted histories of the coordinator: what all nodes are told, and when a run is over."""

from __future__ import annotations

from typing import Any

from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.report import Outcome

START = {"main_address": "n0", "main_port": 1234, "attempt": 0}
STOPPED_BY_FAILURE = [{"kind": "stop", "reason": "failure"}]
STOPPED_BY_CANCEL = [{"kind": "stop", "reason": "cancel"}]
KILLED = [{"kind": "stop", "reason": "kill"}]


def make_joined(num_nodes: int) -> Coordinator:
    """Return a coordinator whose nodes have all joined, not started."""
    coordinator = Coordinator(num_nodes=num_nodes)
    for rank in range(num_nodes):
        coordinator.join(rank, f"n{rank}")
    return coordinator


def make_running(num_nodes: int) -> Coordinator:
    """Return a coordinator of a run that has started."""
    coordinator = make_joined(num_nodes)
    coordinator.start(START)
    return coordinator


def failed(rank: int, message: str = "boom") -> dict[str, Any]:
    """Return the words with which a node tells a worker's failure."""
    outcome = Outcome(
        node_rank=rank, host=f"n{rank}", global_rank=rank, exit_code=1, exception="ValueError", message=message
    )
    return {"kind": "failed", "outcome": outcome.to_json()}


def ended(rank: int, *, exit_code: int = 0) -> dict[str, Any]:
    """Return the words with which a node tells that its one worker has ended."""
    outcome = Outcome(node_rank=rank, host=f"n{rank}", global_rank=rank, exit_code=exit_code)
    return {"kind": "ended", "outcomes": [outcome.to_json()]}


def cancel(signal: str = "SIGTERM") -> dict[str, Any]:
    """Return the words with which a node tells of a signal."""
    return {"kind": "cancel", "signal": signal}


def test_join_says_when_all_are_there() -> None:
    """Only the last node to come completes the run, whatever the order."""
    coordinator = Coordinator(num_nodes=3)
    assert [coordinator.join(rank, f"n{rank}") for rank in (2, 0, 1)] == [False, False, True]


def test_missing_nodes_are_told_by_rank() -> None:
    """Those who have not come are known by rank, in order."""
    coordinator = Coordinator(num_nodes=4)
    coordinator.join(2, "n2")
    assert coordinator.missing == (0, 1, 3)


def test_a_node_is_expected_until_it_has_joined() -> None:
    """A rank that has joined is not let in a second time."""
    coordinator = Coordinator(num_nodes=2)
    assert coordinator.expects(1)
    coordinator.join(1, "n1")
    assert not coordinator.expects(1)


def test_ranks_outside_the_run_are_not_expected() -> None:
    """A run of two nodes has no rank 2 and no rank -1."""
    coordinator = Coordinator(num_nodes=2)
    assert [coordinator.expects(rank) for rank in (-1, 0, 1, 2)] == [False, True, True, False]


def test_start_tells_all_nodes_where_to_meet() -> None:
    """The start carries address, port and attempt."""
    coordinator = make_joined(2)
    assert coordinator.start({"main_address": "n0", "main_port": 1234, "attempt": 3}) == [
        {"kind": "start", "main_address": "n0", "main_port": 1234, "attempt": 3}
    ]


def test_no_workers_run_before_the_start() -> None:
    """Joining alone starts nothing."""
    coordinator = make_joined(2)
    assert not coordinator.has_started
    coordinator.start(START)
    assert coordinator.has_started


def test_a_run_starts_once() -> None:
    """A second start of a run that is running tells nobody anything."""
    assert make_running(2).start(START) == []


def test_a_run_is_not_over_before_it_started() -> None:
    """A run for which nobody has joined is not over."""
    assert not Coordinator(num_nodes=2).is_over


def test_a_run_is_over_when_all_nodes_have_ended() -> None:
    """One node that still works keeps the run open."""
    coordinator = make_running(2)
    coordinator.hear(1, ended(1), now=1.0)
    assert not coordinator.is_over
    coordinator.hear(0, ended(0), now=2.0)
    assert coordinator.is_over


def test_a_node_that_ends_well_stops_nobody() -> None:
    """An early end without a failure says nothing to the others."""
    assert make_running(2).hear(1, ended(1), now=1.0) == []


def test_outcomes_are_kept_by_global_rank() -> None:
    """What a node tells of its workers at its end is there for the report."""
    coordinator = make_running(2)
    coordinator.hear(1, ended(1, exit_code=3), now=1.0)
    assert coordinator.outcomes[1].exit_code == 3


def test_a_failure_stops_all_nodes() -> None:
    """The first failure anywhere is a stop for everybody."""
    assert make_running(3).hear(2, failed(2), now=1.0) == STOPPED_BY_FAILURE


def test_the_run_is_stopped_once() -> None:
    """A second failure, which follows from the first, tells nobody a second time."""
    coordinator = make_running(3)
    coordinator.hear(2, failed(2), now=1.0)
    assert coordinator.hear(1, failed(1), now=1.1) == []


def test_failures_are_kept_in_order_of_arrival() -> None:
    """All failures are there for the choice of the root cause, with the time at which they came."""
    coordinator = make_running(3)
    coordinator.hear(2, failed(2, "first"), now=1.0)
    coordinator.hear(1, failed(1, "second"), now=1.5)
    assert [(now, outcome.message) for now, outcome in coordinator.failures] == [(1.0, "first"), (1.5, "second")]


def test_a_failed_run_is_over_when_its_nodes_have_ended() -> None:
    """A failure stops the run; it is over only when no worker is left anywhere."""
    coordinator = make_running(2)
    coordinator.hear(0, failed(0), now=1.0)
    assert not coordinator.is_over
    coordinator.hear(0, ended(0, exit_code=1), now=1.1)
    coordinator.hear(1, ended(1), now=1.2)
    assert coordinator.is_over


def test_cancel_stops_all_nodes() -> None:
    """A signal to one agent ends the run everywhere."""
    assert make_running(2).hear(0, cancel(), now=1.0) == STOPPED_BY_CANCEL


def test_cancel_on_all_nodes_at_once_stops_them_once() -> None:
    """The signal that srun sends to every task counts as one, and kills nobody at once."""
    coordinator = make_running(3)
    assert [coordinator.hear(rank, cancel(), now=1.0) for rank in (1, 0, 2)] == [STOPPED_BY_CANCEL, [], []]


def test_cancel_twice_on_one_node_kills() -> None:
    """Who asks a second time does not want to wait."""
    coordinator = make_running(2)
    coordinator.hear(1, cancel("SIGINT"), now=1.0)
    assert coordinator.hear(1, cancel("SIGINT"), now=2.0) == KILLED


def test_cancel_is_known_by_its_first_signal() -> None:
    """The run's exit code follows the signal that came first."""
    coordinator = make_running(2)
    coordinator.hear(1, cancel("SIGINT"), now=1.0)
    coordinator.hear(1, cancel("SIGTERM"), now=2.0)
    assert coordinator.cancelled_by == "SIGINT"


def test_cancel_after_a_failure_is_its_consequence() -> None:
    """The SIGTERM that srun sends because a task failed does not make the run a cancelled one."""
    coordinator = make_running(2)
    coordinator.hear(1, failed(1), now=1.0)
    assert coordinator.hear(0, cancel(), now=1.5) == []
    assert coordinator.cancelled_by is None


def test_cancel_twice_after_a_failure_kills() -> None:
    """A person who asks twice while a failed run stops does not want to wait either."""
    coordinator = make_running(2)
    coordinator.hear(1, failed(1), now=1.0)
    coordinator.hear(0, cancel(), now=1.5)
    assert coordinator.hear(0, cancel(), now=2.0) == KILLED


def test_failure_after_a_cancel_leaves_the_run_cancelled() -> None:
    """A worker that fails because it is being stopped does not become the reason of the end."""
    coordinator = make_running(2)
    coordinator.hear(0, cancel(), now=1.0)
    assert coordinator.hear(1, failed(1), now=1.1) == []
    assert coordinator.cancelled_by == "SIGTERM"


def test_cancel_before_the_start_prevents_it() -> None:
    """Nodes that come after a cancel are not started."""
    coordinator = Coordinator(num_nodes=2)
    coordinator.join(0, "n0")
    assert coordinator.hear(0, cancel(), now=1.0) == STOPPED_BY_CANCEL
    coordinator.join(1, "n1")
    assert coordinator.start(START) == []


def test_a_run_stopped_before_all_have_joined_waits_only_for_those_who_have() -> None:
    """A node that never came does not keep the others."""
    coordinator = Coordinator(num_nodes=3)
    coordinator.join(0, "n0")
    coordinator.join(1, "n1")
    coordinator.hear(0, cancel(), now=1.0)
    coordinator.hear(0, {"kind": "ended", "outcomes": []}, now=1.1)
    assert not coordinator.is_over
    coordinator.hear(1, {"kind": "ended", "outcomes": []}, now=1.2)
    assert coordinator.is_over


def test_failure_before_the_start_stops_all_nodes() -> None:
    """A preload that fails while others are still coming stops the run, which then never starts."""
    coordinator = Coordinator(num_nodes=2)
    coordinator.join(0, "n0")
    assert coordinator.hear(0, failed(0), now=1.0) == STOPPED_BY_FAILURE
    coordinator.join(1, "n1")
    assert coordinator.start(START) == []


def test_failure_of_the_run_as_a_whole_stops_all_nodes() -> None:
    """A node that never came is a failure like any other."""
    coordinator = Coordinator(num_nodes=2)
    coordinator.join(0, "n0")
    absent = Outcome(node_rank=1, host="n1", message="did not come", failure_class="rendezvous")
    assert coordinator.fail(absent, now=9.0) == STOPPED_BY_FAILURE
    assert coordinator.failures == [(9.0, absent)]


def test_a_lost_node_stops_the_others() -> None:
    """An agent whose connection closes before its end is a failure of its node."""
    assert make_running(2).lose(1, now=1.0) == STOPPED_BY_FAILURE


def test_a_lost_node_is_named() -> None:
    """The failure of a lost agent carries rank and host, and its own class."""
    coordinator = make_running(2)
    coordinator.lose(1, now=1.0)
    _, lost = coordinator.failures[0]
    assert (lost.node_rank, lost.host, lost.global_rank, lost.failure_class) == (1, "n1", None, "lost_node")


def test_a_lost_node_keeps_nobody_waiting() -> None:
    """Nobody waits for the end of an agent that is gone."""
    coordinator = make_running(2)
    coordinator.lose(1, now=1.0)
    coordinator.hear(0, ended(0), now=1.5)
    assert coordinator.is_over


def test_a_node_that_leaves_after_its_end_is_not_lost() -> None:
    """An agent may hang up once it has told its end."""
    coordinator = make_running(2)
    coordinator.hear(1, ended(1), now=1.0)
    assert coordinator.lose(1, now=1.1) == []
    assert coordinator.failures == []


def test_a_node_is_lost_once() -> None:
    """The same loss told twice is one failure."""
    coordinator = make_running(3)
    coordinator.lose(1, now=1.0)
    coordinator.lose(1, now=1.1)
    assert len(coordinator.failures) == 1


def test_a_node_lost_before_the_start_stops_the_others() -> None:
    """An agent that joins and goes while others are still coming ends the run."""
    coordinator = Coordinator(num_nodes=3)
    coordinator.join(0, "n0")
    coordinator.join(1, "n1")
    assert coordinator.lose(1, now=1.0) == STOPPED_BY_FAILURE


def test_all_remaining_nodes_lost_end_the_run() -> None:
    """Where all others are gone, node 0's own end is the run's."""
    coordinator = make_running(3)
    coordinator.lose(1, now=1.0)
    coordinator.lose(2, now=1.1)
    assert not coordinator.is_over
    coordinator.hear(0, ended(0), now=1.5)
    assert coordinator.is_over


def test_words_that_mean_nothing_change_nothing() -> None:
    """A kind of message that the coordinator does not know is passed over."""
    coordinator = make_running(2)
    assert coordinator.hear(1, {"kind": "hm"}, now=1.0) == []
    assert not coordinator.is_over
