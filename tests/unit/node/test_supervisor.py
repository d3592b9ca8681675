"""Scripted histories of the supervisor, with a clock that the test turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.context import WorkerContext
from hpc_multinode.node.spec import WorkerSpec
from hpc_multinode.node.supervisor import Supervisor

if TYPE_CHECKING:
    from hpc_multinode.report import Outcome


class History:
    """A supervisor of two workers on node 1, and the signals that it has sent.

    Args:
        num_workers: Workers that are started; none where 0.
    """

    def __init__(self, num_workers: int = 2) -> None:
        self.signals: list[str] = []
        self.supervisor = Supervisor(node_rank=1, host="n1", signal_workers=self.signals.append)
        if num_workers:
            self.supervisor.start([make_spec(rank) for rank in range(num_workers)])
            self.supervisor.note_pids({rank: 100 + rank for rank in range(num_workers)})

    def exit(self, rank: int, *, code: int | None = None, signal: str | None = None) -> Outcome | None:
        """Tell that a worker's process has ended."""
        tail = (f"tail of {self.supervisor.log_of(rank)}",)
        return self.supervisor.note_exit(rank, exit_code=code, signal=signal, tail=tail)

    def stop(self, now: float, grace_s: float) -> None:
        """Stop the workers as the agent does, which looks at the clock at once."""
        self.supervisor.stop(now=now, grace_s=grace_s)
        self.supervisor.tick(now)


def make_spec(local_rank: int) -> WorkerSpec:
    """Return the spec of a worker of node 1 with two workers a node."""
    place = WorkerContext(
        world_size=4,
        node_rank=1,
        global_rank=2 + local_rank,
        local_rank=local_rank,
        local_world_size=2,
        num_nodes=2,
        main_address="n0",
        main_port=1234,
        attempt=0,
        run_dir="/run",
        devices=(),
    )
    return WorkerSpec(place=place, cpus=(), title="rank", log=f"/run/rank{2 + local_rank}.log")


def failed(exception: str = "ValueError", message: str = "boom", code: int = 1) -> dict[str, Any]:
    """Return the words with which a worker tells its failure."""
    told = {"exception": exception, "message": message, "traceback": ["Traceback", "  boom"]}
    return {"kind": "failed", **told, "exit_code": code}


def test_without_workers_it_is_over() -> None:
    """A node on which nothing was started has nothing to wait for."""
    history = History(num_workers=0)
    assert history.supervisor.is_over
    assert history.supervisor.outcomes == ()


def test_it_is_over_when_all_have_ended() -> None:
    """One worker that still runs keeps the node."""
    history = History()
    history.exit(1, code=0)
    assert not history.supervisor.is_over
    history.exit(0, code=0)
    assert history.supervisor.is_over


def test_exit_0_is_no_failure() -> None:
    """An early end with code 0 is fine and is told to nobody."""
    assert History().exit(0, code=0) is None


def test_the_outcome_says_who_it_was() -> None:
    """An outcome carries node, ranks, pid, host and log of its worker."""
    history = History()
    history.exit(1, code=0)
    outcome = history.supervisor.outcomes[0]
    assert (outcome.node_rank, outcome.local_rank, outcome.global_rank) == (1, 1, 3)
    assert (outcome.pid, outcome.host, outcome.log) == (101, "n1", "/run/rank3.log")


def test_a_bad_exit_code_is_a_failure() -> None:
    """A process that ends with a code of its own, and says nothing before, has failed with that code."""
    outcome = History().exit(0, code=7)
    assert outcome is not None
    assert (outcome.exit_code, outcome.signal, outcome.exception, outcome.is_failure) == (7, None, None, True)


def test_a_signal_is_a_failure_by_name() -> None:
    """A worker that is killed by somebody else has failed."""
    outcome = History().exit(0, signal="SIGKILL")
    assert outcome is not None
    assert (outcome.exit_code, outcome.signal, outcome.is_failure, outcome.is_stopped) == (None, "SIGKILL", True, False)


def test_sigterm_from_outside_is_a_failure() -> None:
    """A SIGTERM that we did not send counts as any other signal."""
    outcome = History().exit(0, signal="SIGTERM")
    assert outcome is not None
    assert outcome.is_failure


def test_a_silent_death_shows_the_end_of_the_log() -> None:
    """Where the worker told nothing, its log is what there is."""
    outcome = History().exit(0, signal="SIGSEGV")
    assert outcome is not None
    assert outcome.last_lines == ("tail of /run/rank2.log",)


def test_the_end_of_a_log_is_cut_to_its_last_lines() -> None:
    """A long log gives its last 20 lines."""
    supervisor = Supervisor(
        node_rank=1,
        host="n1",
        signal_workers=lambda _: None,
    )
    supervisor.start([make_spec(0)])
    tail = tuple(str(number) for number in range(100))
    outcome = supervisor.note_exit(0, exit_code=1, signal=None, tail=tail)
    assert outcome is not None
    assert outcome.last_lines == tuple(str(number) for number in range(80, 100))


def test_a_good_end_reads_no_log() -> None:
    """Nothing of the log is told of a worker that ended well."""
    history = History()
    history.exit(0, code=0)
    assert history.supervisor.outcomes[0].last_lines == ()


def test_a_told_failure_counts_before_the_exit() -> None:
    """A worker that says that it failed is not waited for: its atexit handlers may take minutes."""
    outcome = History().supervisor.hear(0, failed())
    assert outcome is not None
    assert (outcome.exception, outcome.message, outcome.exit_code) == ("ValueError", "boom", 1)
    assert outcome.last_lines == ("Traceback", "  boom")


def test_other_words_are_no_failure() -> None:
    """A phase that a worker tells is none."""
    assert History().supervisor.hear(0, {"kind": "phase", "name": "process_group"}) is None


def test_a_told_failure_does_not_end_the_worker() -> None:
    """Until its process has ended, a worker that failed is still there."""
    history = History(num_workers=1)
    history.supervisor.hear(0, failed())
    assert not history.supervisor.is_over


def test_a_failure_is_told_once() -> None:
    """The exit of a worker that has told its failure is no second one."""
    history = History()
    history.supervisor.hear(0, failed())
    assert history.exit(0, code=1) is None


def test_a_failure_is_told_once_when_the_stop_comes_between() -> None:
    """The stop that a told failure brings about does not make the exit a second failure."""
    history = History()
    history.supervisor.hear(0, failed())
    history.stop(10.0, grace_s=5.0)
    assert history.exit(0, code=1) is None


def test_only_the_first_words_of_failure_count() -> None:
    """A worker fails once."""
    history = History()
    history.supervisor.hear(0, failed())
    assert history.supervisor.hear(0, failed("KeyError", "again")) is None
    history.exit(0, code=1)
    assert history.supervisor.outcomes[0].exception == "ValueError"


def test_words_stay_with_the_outcome() -> None:
    """How a worker ended is its exit code and what it said of it."""
    history = History()
    history.supervisor.hear(0, failed())
    history.exit(0, code=1)
    outcome = history.supervisor.outcomes[0]
    assert (outcome.exit_code, outcome.exception, outcome.message) == (1, "ValueError", "boom")


@pytest.mark.parametrize(("said", "code"), [("3", 3), ("3", 1), ("-1", 255)])
def test_sys_exit_is_told_with_its_code(said: str, code: int) -> None:
    """The code is the one that the worker says the process will end with, whatever the text looks like."""
    outcome = History().supervisor.hear(0, failed("SystemExit", said, code))
    assert outcome is not None
    assert outcome.exit_code == code


def test_nothing_is_killed_while_nothing_is_stopped() -> None:
    """Without a stop there is no time at which workers are killed."""
    history = History()
    history.supervisor.tick(1e9)
    assert history.supervisor.wake_at is None
    assert history.signals == []


def test_stop_asks_first() -> None:
    """A stop is SIGTERM at once and SIGKILL later."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    assert history.signals == ["SIGTERM"]
    assert history.supervisor.wake_at == 15.0


def test_whoever_ignores_sigterm_is_killed_when_the_time_is_up() -> None:
    """A worker that traps SIGTERM goes at the end of the grace and not before."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    history.supervisor.tick(14.9)
    assert history.signals == ["SIGTERM"]
    history.supervisor.tick(15.0)
    assert history.signals == ["SIGTERM", "SIGKILL"]


def test_killing_is_done_once() -> None:
    """After SIGKILL there is nothing more to wait for."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    history.supervisor.tick(15.0)
    history.supervisor.tick(16.0)
    assert history.supervisor.wake_at is None
    assert history.signals == ["SIGTERM", "SIGKILL"]


def test_nobody_is_killed_when_all_obey() -> None:
    """Workers that end in time are not killed."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    history.exit(0, signal="SIGTERM")
    history.exit(1, signal="SIGTERM")
    assert history.supervisor.wake_at is None
    history.supervisor.tick(15.0)
    assert history.signals == ["SIGTERM"]


def test_one_who_obeys_does_not_save_the_other() -> None:
    """The worker that is left is killed though its sibling has ended."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    history.exit(0, signal="SIGTERM")
    history.supervisor.tick(15.0)
    assert history.signals == ["SIGTERM", "SIGKILL"]


def test_a_stop_without_grace_kills_at_once() -> None:
    """No grace at all is SIGKILL in the same moment."""
    history = History()
    history.stop(10.0, grace_s=0.0)
    assert history.signals == ["SIGTERM", "SIGKILL"]


def test_a_shorter_stop_shortens_the_first() -> None:
    """Who cancels twice does not wait for the grace of the first; SIGTERM is not repeated."""
    history = History()
    history.stop(10.0, grace_s=60.0)
    history.stop(12.0, grace_s=0.0)
    assert history.signals == ["SIGTERM", "SIGKILL"]


def test_a_longer_stop_does_not_lengthen_the_first() -> None:
    """A cancel that follows a failure gives nobody more time."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    history.stop(11.0, grace_s=60.0)
    assert history.supervisor.wake_at == 15.0


def test_stop_before_the_start_signals_nobody() -> None:
    """Where no worker was started there is nobody to ask and nothing to wait for."""
    history = History(num_workers=0)
    history.stop(10.0, grace_s=5.0)
    assert history.signals == []
    assert history.supervisor.wake_at is None
    assert history.supervisor.is_over


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
def test_whoever_ends_by_our_signal_is_stopped_not_failed(signal: str) -> None:
    """A worker that ends because we stopped it is no failure."""
    history = History()
    history.stop(10.0, grace_s=0.0)
    assert history.exit(0, signal=signal) is None
    outcome = history.supervisor.outcomes[0]
    assert (outcome.is_stopped, outcome.is_failure, outcome.signal) == (True, False, signal)


def test_a_worker_that_ends_well_on_sigterm_has_not_failed() -> None:
    """A handler that saves and exits with 0 ended well."""
    history = History()
    history.stop(10.0, grace_s=60.0)
    assert history.exit(0, code=0) is None
    assert not history.supervisor.outcomes[0].is_failure


def test_an_error_during_the_stop_is_a_failure_of_its_own() -> None:
    """A worker that raises while it is stopped, as when its peer vanished, is told as failed at once."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    outcome = history.supervisor.hear(1, failed("RuntimeError", "Connection reset by peer"))
    assert history.exit(1, code=1) is None
    assert outcome is not None
    assert (outcome.exception, outcome.is_failure) == ("RuntimeError", True)


def test_another_signal_during_the_stop_is_a_failure() -> None:
    """A worker that crashes while it is stopped was not ended by us."""
    history = History()
    history.stop(10.0, grace_s=5.0)
    outcome = history.exit(0, signal="SIGSEGV")
    assert outcome is not None
    assert outcome.is_failure


def test_the_loss_of_the_forkserver_ends_all_workers() -> None:
    """Whoever ran when the forkserver died is gone with it, and did not fail by itself."""
    history = History()
    history.exit(0, code=0)
    failure = history.supervisor.lose_all("it was killed")
    assert (failure.node_rank, failure.host, failure.message) == (1, "n1", "it was killed")
    assert history.supervisor.is_over
    assert [(one.local_rank, one.signal, one.is_stopped) for one in history.supervisor.outcomes] == [
        (0, None, False),
        (1, "SIGKILL", True),
    ]


def test_the_loss_of_the_forkserver_is_a_failure() -> None:
    """A node whose workers were all taken away has failed."""
    assert History().supervisor.lose_all("it was killed").is_failure
