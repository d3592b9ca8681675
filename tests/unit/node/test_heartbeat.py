"""Who is silent for too long, with a clock that the test turns."""

from __future__ import annotations

import pytest

from hpc_multinode.node.heartbeat import Heartbeat, make_interval_s


def run_until(heartbeat: Heartbeat[str], begin: float, end: float) -> list[str]:
    """Tick as an agent does; return those that are lost at the end."""
    now, lost = begin, []
    while now < end:
        now += heartbeat.interval_s
        lost = heartbeat.tick(now)
    return lost


def test_a_silent_peer_is_lost() -> None:
    """Whoever says nothing for longer than the timeout is lost."""
    heartbeat: Heartbeat[str] = Heartbeat(timeout_s=60.0, now=0.0)
    heartbeat.hear("n1", now=0.0)
    assert run_until(heartbeat, 0.0, 60.0) == []
    assert run_until(heartbeat, 60.0, 66.0) == ["n1"]


def test_a_peer_that_speaks_is_not_lost() -> None:
    """Any word counts, whenever it comes."""
    heartbeat: Heartbeat[str] = Heartbeat(timeout_s=60.0, now=0.0)
    heartbeat.hear("n1", now=0.0)
    run_until(heartbeat, 0.0, 50.0)
    heartbeat.hear("n1", now=50.0)
    assert run_until(heartbeat, 50.0, 100.0) == []


def test_whoever_was_stopped_starts_all_clocks_anew() -> None:
    """A machine that was suspended has heard nobody, and must not call the others lost for it."""
    heartbeat: Heartbeat[str] = Heartbeat(timeout_s=60.0, now=0.0)
    heartbeat.hear("n1", now=0.0)
    assert heartbeat.tick(1000.0) == []
    assert run_until(heartbeat, 1000.0, 1059.0) == []
    assert run_until(heartbeat, 1059.0, 1070.0) == ["n1"]


def test_a_forgotten_peer_is_not_waited_for() -> None:
    """Who has left is told as lost no more."""
    heartbeat: Heartbeat[str] = Heartbeat(timeout_s=60.0, now=0.0)
    heartbeat.hear("n1", now=0.0)
    heartbeat.forget("n1")
    assert run_until(heartbeat, 0.0, 100.0) == []


@pytest.mark.parametrize("timeout_s", [1.0, 10.0, 60.0, 3600.0])
def test_several_beats_fit_into_a_timeout(timeout_s: float) -> None:
    """One beat that is late loses nobody."""
    assert make_interval_s(timeout_s) * 6 <= timeout_s
