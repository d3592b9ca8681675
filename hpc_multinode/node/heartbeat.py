"""Who has been silent for too long. Pure: the clock is handed in."""

from __future__ import annotations

from typing import Generic, TypeVar

_Peer = TypeVar("_Peer")
_MAX_INTERVAL_S = 5.0
_BEATS_A_TIMEOUT = 6
# Our own loop was stopped, not delayed, when a tick comes later than this many intervals.
_STOPPED_INTERVALS = 3


def make_interval_s(timeout_s: float) -> float:
    """Return how often to say that we are there, in seconds, so that several beats fit into the timeout."""
    return min(_MAX_INTERVAL_S, timeout_s / _BEATS_A_TIMEOUT)


def make_silence(timeout_s: float) -> str:
    """Say why a peer counts as lost."""
    return f"no heartbeat for {timeout_s:.0f} s: its node or the network to it is down"


class Heartbeat(Generic[_Peer]):
    """Remembers when each peer was last heard.

    Args:
        timeout_s: Silence after which a peer counts as lost, in seconds.
        now: The caller's monotonic clock, in seconds.
    """

    def __init__(self, *, timeout_s: float, now: float) -> None:
        self.interval_s = make_interval_s(timeout_s)
        self.timeout_s = timeout_s
        self._heard: dict[_Peer, float] = {}
        self._ticked = now

    def hear(self, peer: _Peer, *, now: float) -> None:
        """Note that a peer has said something."""
        self._heard[peer] = now

    def forget(self, peer: _Peer) -> None:
        """Wait for this peer no longer."""
        self._heard.pop(peer, None)

    def tick(self, now: float) -> list[_Peer]:
        """Return the peers whose time is up; to be called every ``interval_s``.

        Where this call comes much too late, we ourselves were stopped (a suspended machine, a debugger) and have heard
        nobody: all clocks start anew.
        """
        gap, self._ticked = now - self._ticked, now
        if gap > _STOPPED_INTERVALS * self.interval_s:
            self._heard = dict.fromkeys(self._heard, now)
        return [peer for peer, heard in self._heard.items() if now - heard > self.timeout_s]
