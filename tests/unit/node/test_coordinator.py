"""Scripted histories of the coordinator: what all nodes are told, and when a run is over."""

from __future__ import annotations

from typing import Any

from hpc_multinode.node.coordinator import HOLD_S, TELL_S, Coordinator, Step
from hpc_multinode.report import Outcome
from hpc_multinode.slurm.ends import WARNING

START = {"main_address": "n0", "main_port": 1234, "attempt": 0}
STOPPED_BY_FAILURE, STOPPED_BY_CANCEL, KILLED = ["failure"], ["cancel"], ["kill"]
STOPPED_AT_ONCE, HURRIED = ["cancel_at_once"], ["hurry"]


def reasons(messages: list[dict[str, Any]]) -> list[str]:
    """Return the reasons of stops; nothing else may be among the messages."""
    assert all(message["kind"] == "stop" for message in messages)
    return [message["reason"] for message in messages]


def make_joined(num_nodes: int) -> Coordinator:
    """Return a coordinator whose nodes have all joined, not started."""
    coordinator = Coordinator(num_nodes=num_nodes)
    for rank in range(num_nodes):
        coordinator.join(rank, f"n{rank}")
    return coordinator


def make_running(num_nodes: int) -> Coordinator:
    """Return a coordinator of a run that has started."""
    coordinator = make_joined(num_nodes)
    coordinator.start(START, now=0.0)
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
    return {"kind": "signal", "signal": signal}


def told(*, listens: bool = False) -> dict[str, Any]:
    """Return the words with which a node tells that it has told its workers."""
    return {"kind": "told", "listens": listens}


TELL = [{"kind": "tell"}]


def ask(coordinator: Coordinator, num_nodes: int, signal: str = "SIGTERM", *, listens: bool = False) -> list[str]:
    """Let a signal come to node 0 and all nodes tell their workers; return the reasons of the stops that follow."""
    assert coordinator.hear(0, cancel(signal), now=1.0) == TELL
    messages = [coordinator.hear(rank, told(listens=listens), now=1.0) for rank in range(num_nodes)]
    assert not any(messages[:-1])
    return reasons(messages[-1])


def test_join_says_when_all_are_there() -> None:
    """Only the last node to come completes the run, whatever the order."""
    coordinator = Coordinator(num_nodes=3)
    steps = []
    for rank in (2, 0, 1):
        coordinator.join(rank, f"n{rank}")
        steps.append(coordinator.next_step)
    assert steps == [Step.wait, Step.wait, Step.start]


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
    assert coordinator.start({"main_address": "n0", "main_port": 1234, "attempt": 3}, now=0.0) == [
        {"kind": "start", "main_address": "n0", "main_port": 1234, "attempt": 3}
    ]


def test_no_workers_run_before_the_start() -> None:
    """Joining alone starts nothing."""
    coordinator = make_joined(2)
    assert coordinator.attempt.started is None
    coordinator.start(START, now=0.5)
    assert coordinator.attempt.started == 0.5


def test_a_run_starts_once() -> None:
    """A second start of a run that is running tells nobody anything."""
    assert make_running(2).start(START, now=0.0) == []


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
    assert coordinator.attempt.outcomes[1].exit_code == 3


def test_a_failure_stops_all_nodes() -> None:
    """The first failure anywhere is a stop for everybody."""
    assert reasons(make_running(3).hear(2, failed(2), now=1.0)) == STOPPED_BY_FAILURE


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
    assert [(now, outcome.message) for now, outcome in coordinator.attempt.failures] == [
        (1.0, "first"),
        (1.5, "second"),
    ]


def test_a_failed_run_is_over_when_its_nodes_have_ended() -> None:
    """A failure stops the run; it is over only when no worker is left anywhere."""
    coordinator = make_running(2)
    coordinator.hear(0, failed(0), now=1.0)
    assert not coordinator.is_over
    coordinator.hear(0, ended(0, exit_code=1), now=1.1)
    coordinator.hear(1, ended(1), now=1.2)
    assert coordinator.is_over


def test_cancel_tells_all_workers_first() -> None:
    """A signal to one agent is told to the workers everywhere, before it is known who listens."""
    assert make_running(2).hear(0, cancel(), now=1.0) == TELL


def test_workers_that_listen_get_their_time() -> None:
    """Where one worker anywhere listens, all may end by themselves: it may need the others to save."""
    coordinator = make_running(2)
    coordinator.hear(0, cancel(), now=1.0)
    coordinator.hear(0, told(listens=True), now=1.0)
    assert reasons(coordinator.hear(1, told(), now=1.0)) == STOPPED_BY_CANCEL


def test_workers_that_do_not_listen_are_ended_at_once() -> None:
    """Nobody waits for workers that would not hear anything."""
    assert ask(make_running(2), 2) == STOPPED_AT_ONCE


def test_an_agent_that_does_not_answer_is_not_waited_for() -> None:
    """The decision falls after a second at the latest."""
    coordinator = make_running(2)
    coordinator.hear(0, cancel(), now=1.0)
    coordinator.hear(0, told(listens=True), now=1.0)
    assert coordinator.wake_at == 1.0 + TELL_S
    assert coordinator.tick(1.0) == []
    assert reasons(coordinator.tick(1.0 + TELL_S)) == STOPPED_BY_CANCEL


def test_cancel_on_all_nodes_at_once_stops_them_once() -> None:
    """The signal that srun sends to every task counts as one, and kills nobody at once."""
    coordinator = make_running(3)
    assert [coordinator.hear(rank, cancel(), now=1.0) for rank in (1, 0, 2)] == [TELL, [], []]
    assert [reasons(coordinator.hear(rank, told(), now=1.0)) for rank in range(3)] == [[], [], STOPPED_AT_ONCE]


def test_cancel_twice_on_one_node_kills() -> None:
    """Who asks a second time does not want to wait."""
    coordinator = make_running(2)
    ask(coordinator, 2, "SIGINT")
    assert reasons(coordinator.hear(0, cancel("SIGINT"), now=2.0)) == KILLED


def test_cancel_is_known_by_its_first_signal() -> None:
    """The run's exit code follows the signal that came first."""
    coordinator = make_running(2)
    ask(coordinator, 2, "SIGINT")
    coordinator.hear(1, cancel("SIGTERM"), now=2.0)
    assert coordinator.asked_by == "SIGINT"


def test_cancel_after_a_failure_is_its_consequence() -> None:
    """The SIGTERM that srun sends because a task failed does not make the run a cancelled one."""
    coordinator = make_running(2)
    coordinator.hear(1, failed(1), now=1.0)
    assert coordinator.hear(0, cancel(), now=1.5) == []
    assert coordinator.asked_by is None


def test_cancel_twice_after_a_failure_kills() -> None:
    """A person who asks twice while a failed run stops does not want to wait either."""
    coordinator = make_running(2)
    coordinator.hear(1, failed(1), now=1.0)
    coordinator.hear(0, cancel(), now=1.5)
    assert reasons(coordinator.hear(0, cancel(), now=2.0)) == KILLED


def test_cancel_after_the_end_changes_nothing() -> None:
    """Srun's SIGTERM to a run that is through does not make it a cancelled one."""
    coordinator = make_running(2)
    for rank in range(2):
        coordinator.hear(rank, ended(rank), now=1.0)
    assert coordinator.hear(0, cancel(), now=1.5) == []
    assert coordinator.asked_by is None


def test_failure_after_a_cancel_leaves_the_run_cancelled() -> None:
    """A worker that fails because it is being stopped does not become the reason of the end."""
    coordinator = make_running(2)
    ask(coordinator, 2)
    assert coordinator.hear(1, failed(1), now=1.1) == []
    assert coordinator.asked_by == "SIGTERM"


def test_cancel_before_the_start_prevents_it() -> None:
    """Nodes that come after a cancel are not started; there is nobody to tell anything."""
    coordinator = Coordinator(num_nodes=2)
    coordinator.join(0, "n0")
    assert reasons(coordinator.hear(0, cancel(), now=1.0)) == STOPPED_BY_CANCEL
    coordinator.join(1, "n1")
    assert coordinator.start(START, now=0.0) == []


def test_a_warning_stops_workers_that_listen() -> None:
    """Near the time limit those who listen save and end."""
    assert ask(make_running(2), 2, WARNING, listens=True) == ["warning"]


def test_a_warning_leaves_alone_who_does_not_listen() -> None:
    """A work that cannot save may come to its end in the time that is left."""
    coordinator = make_running(2)
    assert ask(coordinator, 2, WARNING) == []
    assert coordinator.asked_by is None
    assert ask(coordinator, 2) == STOPPED_AT_ONCE


def test_a_warning_stops_all_that_is_to_be_requeued() -> None:
    """Where the job is to come back, it has to end before its limit whoever listens."""
    coordinator = Coordinator(num_nodes=1, stops_at_warning=True)
    coordinator.join(0, "n0")
    coordinator.start(START, now=0.0)
    assert ask(coordinator, 1, WARNING) == ["warning"]


def test_the_end_after_a_warning_hurries() -> None:
    """SIGTERM after a warning says that the time is up: who still saves gets it too."""
    coordinator = make_running(2)
    ask(coordinator, 2, WARNING, listens=True)
    assert reasons(coordinator.hear(0, cancel(), now=9.0)) == HURRIED
    assert coordinator.asked_by == WARNING


def test_a_second_warning_says_nothing_new() -> None:
    """A warning comes to every task, and in a preemption perhaps again."""
    coordinator = make_running(2)
    ask(coordinator, 2, WARNING, listens=True)
    assert coordinator.hear(1, cancel(WARNING), now=9.0) == []


def test_what_workers_have_saved_is_kept() -> None:
    """The furthest step and whether anybody has heard of the stop are there for the report."""
    coordinator = make_running(2)
    coordinator.hear(0, {**ended(0), "step": 7, "has_noticed": False}, now=1.0)
    coordinator.hear(1, {**ended(1), "step": 9, "has_noticed": True}, now=1.0)
    assert (coordinator.attempt.step, coordinator.attempt.has_noticed) == (9, True)


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
    assert reasons(coordinator.hear(0, failed(0), now=1.0)) == STOPPED_BY_FAILURE
    coordinator.join(1, "n1")
    assert coordinator.start(START, now=0.0) == []


def test_failure_of_the_run_as_a_whole_stops_all_nodes() -> None:
    """A node that never came is a failure like any other."""
    coordinator = Coordinator(num_nodes=2)
    coordinator.join(0, "n0")
    absent = Outcome(node_rank=1, host="n1", message="did not come", failure_class="rendezvous")
    assert reasons(coordinator.fail(absent, now=9.0)) == STOPPED_BY_FAILURE
    assert coordinator.attempt.failures == [(9.0, absent)]


def test_a_lost_node_stops_the_others() -> None:
    """An agent whose connection closes before its end is a failure of its node."""
    assert reasons(make_running(2).lose(1, now=1.0)) == STOPPED_BY_FAILURE


def test_a_lost_node_is_named() -> None:
    """The failure of a lost agent carries rank and host, and its own class."""
    coordinator = make_running(2)
    coordinator.lose(1, now=1.0)
    _, lost = coordinator.attempt.failures[0]
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
    assert coordinator.attempt.failures == []


def test_a_node_is_lost_once() -> None:
    """The same loss told twice is one failure."""
    coordinator = make_running(3)
    coordinator.lose(1, now=1.0)
    coordinator.lose(1, now=1.1)
    assert len(coordinator.attempt.failures) == 1


def test_a_node_lost_before_the_start_stops_the_others() -> None:
    """An agent that joins and goes while others are still coming ends the run."""
    coordinator = Coordinator(num_nodes=3)
    coordinator.join(0, "n0")
    coordinator.join(1, "n1")
    assert reasons(coordinator.lose(1, now=1.0)) == STOPPED_BY_FAILURE


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


LOST_PEER = "Connection closed by peer [10.0.0.2]:1234"


def test_a_lost_peer_is_given_time_to_speak_for_itself() -> None:
    """A rank that has lost its peer stops nobody at once: the peer may still be cleaning up before it is heard."""
    coordinator = make_running(2)
    assert coordinator.hear(0, failed(0, LOST_PEER), now=1.0) == []
    assert coordinator.wake_at == 1.0 + HOLD_S


def test_the_peers_own_word_stops_all_at_once() -> None:
    """What the lost peer says of itself ends the waiting, and is the cause."""
    coordinator = make_running(2)
    coordinator.hear(0, failed(0, LOST_PEER), now=1.0)
    (stop,) = coordinator.hear(1, failed(1, "boom"), now=1.2)
    assert stop["reason"] == "failure"
    assert "boom" in stop["why"]


def test_a_lost_peer_that_nobody_explains_stops_all() -> None:
    """When no other word has come in time, the run is stopped."""
    coordinator = make_running(2)
    coordinator.hear(0, failed(0, LOST_PEER), now=1.0)
    assert coordinator.tick(1.0 + HOLD_S / 2) == []
    assert reasons(coordinator.tick(1.0 + HOLD_S)) == STOPPED_BY_FAILURE
    assert coordinator.wake_at is None


def fail_all(coordinator: Coordinator, *, now: float, message: str = "boom") -> None:
    """Let node 1's worker fail and all nodes end."""
    coordinator.hear(1, failed(1, message), now=now)
    for rank in (0, 1):
        coordinator.hear(rank, ended(rank, exit_code=1), now=now)


def make_restartable(max_restarts: int) -> Coordinator:
    """Return a running coordinator of two nodes that may start again."""
    coordinator = Coordinator(num_nodes=2, max_restarts=max_restarts)
    for rank in range(2):
        coordinator.join(rank, f"n{rank}")
    coordinator.start(START, now=0.0)
    return coordinator


def test_a_failed_attempt_is_followed_by_another() -> None:
    """When all workers are gone, the next attempt is to be started, with a clean slate."""
    coordinator = make_restartable(1)
    fail_all(coordinator, now=100.0)
    assert (coordinator.next_step, len(coordinator.attempts)) == (Step.start, 2)
    assert coordinator.start({**START, "attempt": 1}, now=101.0)[0]["attempt"] == 1
    assert (coordinator.attempt.failures, coordinator.next_step) == ([], Step.wait)


def test_restarts_are_counted() -> None:
    """A run is started again restart.max times and no more, and says so."""
    coordinator = make_restartable(1)
    fail_all(coordinator, now=100.0)
    coordinator.start(START, now=101.0)
    fail_all(coordinator, now=200.0)
    assert coordinator.next_step is Step.finish
    assert coordinator.gave_up == "restart.max=1 is used up"


def test_a_failure_that_comes_back_at_once_ends_the_run() -> None:
    """The same failure within seconds of the start, twice, would come in every attempt."""
    coordinator = make_restartable(5)
    fail_all(coordinator, now=2.0)
    coordinator.start(START, now=3.0)
    fail_all(coordinator, now=5.0)
    assert coordinator.next_step is Step.finish
    assert coordinator.gave_up is not None
    assert "same failure" in coordinator.gave_up


def test_another_failure_at_once_is_tried_again() -> None:
    """Two different failures soon after the start say nothing about the next attempt."""
    coordinator = make_restartable(5)
    fail_all(coordinator, now=2.0, message="one")
    coordinator.start(START, now=3.0)
    fail_all(coordinator, now=5.0, message="other")
    assert coordinator.next_step is Step.start


def test_the_same_failure_late_is_tried_again() -> None:
    """What comes after minutes of work is not what comes at once."""
    coordinator = make_restartable(5)
    fail_all(coordinator, now=200.0)
    coordinator.start(START, now=201.0)
    fail_all(coordinator, now=400.0)
    assert coordinator.next_step is Step.start


def test_a_lost_node_is_not_started_again() -> None:
    """Without one of its nodes the run cannot go on in this allocation."""
    coordinator = make_restartable(5)
    coordinator.lose(1, now=100.0)
    coordinator.hear(0, ended(0), now=100.1)
    assert coordinator.next_step is Step.finish


def test_a_cancelled_run_is_not_started_again() -> None:
    """Who cancels does not want another attempt."""
    coordinator = make_restartable(5)
    ask(coordinator, 2)
    for rank in (0, 1):
        coordinator.hear(rank, ended(rank, exit_code=1), now=101.0)
    assert coordinator.next_step is Step.finish


def test_a_cancel_between_attempts_ends_the_run() -> None:
    """No worker runs then, so nobody is waited for."""
    coordinator = make_restartable(5)
    fail_all(coordinator, now=100.0)
    assert reasons(coordinator.hear(0, cancel(), now=100.5)) == STOPPED_BY_CANCEL
    assert coordinator.next_step is Step.finish
    assert coordinator.start(START, now=101.0) == []


def test_the_slowest_node_gives_a_phase() -> None:
    """A phase is reached when the last node has reached it."""
    coordinator = make_running(2)
    for rank, seconds in ((0, 1.5), (1, 0.5)):
        coordinator.hear(rank, {"kind": "phase", "name": "preloaded", "seconds": seconds}, now=2.0)
    assert coordinator.attempt.phases == {"preloaded": 1.5}
