"""The signals by which a run is told to stop, and how they wait until an agent can take them."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)


def hold_stop_signals() -> None:
    """Let stop signals wait, also in the processes that are started from here on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def release_stop_signals() -> None:
    """Take the stop signals that wait, and those that come."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
