"""What the agent writes while a run goes on: its own log, and on node 0 the events. Few lines, each with the time.

Written by a thread of its own: a file system that hangs holds up neither heartbeats nor a stop.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.runs import RunFolder

_TAIL_BYTES = 16_384
_MAX_LINE = 400
_CLOSE_S = 5.0


class Journal:
    """Keeps lines until ``open`` says where they go, then writes each as it comes."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._log: int | None = None
        self._events: int | None = None
        self._actions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def open(self, folder: RunFolder, attempt: int, node_rank: int, *, has_events: bool = False) -> None:
        """Write to this node's log of this attempt from now on.

        Args:
            folder: The run's folder.
            attempt: Number of the attempt, whose folder is there.
            node_rank: This node.
            has_events: Write the attempt's events too.
        """

        def act() -> None:
            for descriptor in (self._log, self._events):
                if descriptor is not None:
                    os.close(descriptor)
            self._log = folder.open_append(folder.node_log(attempt, node_rank))
            self._events = folder.open_append(folder.events(attempt)) if has_events else None
            _append(self._log, "".join(self._kept))
            self._kept.clear()

        self._actions.put(act)

    def write(self, text: str) -> None:
        """Add a line to the log."""
        # A line of a journal begins with its time; what belongs to it is set in.
        line = f"{make_time()} {text.rstrip()}".replace("\n", "\n    ") + "\n"
        self._actions.put(lambda: self._put(line))

    def tell(self, text: str) -> None:
        """Add a line to the log and to stderr: something that people wait for or have to know now."""
        self.write(text)
        self._actions.put(lambda: print(text, file=sys.stderr, flush=True))  # noqa: T201

    def record(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        """Add an event."""
        line = json.dumps({"time": make_time(), "kind": kind, **fields}) + "\n"
        self._actions.put(lambda: _append(self._events, line))

    def close(self) -> None:
        """Wait until all is written; for a few seconds at most."""
        self._actions.put(None)
        self._thread.join(_CLOSE_S)

    def _put(self, line: str) -> None:
        if self._log is None:
            self._kept.append(line)
        else:
            _append(self._log, line)

    def _write_all(self) -> None:
        while (action := self._actions.get()) is not None:
            with contextlib.suppress(OSError):  # a full disk: a run goes on without its journal
                action()


def make_time() -> str:
    """Return the time, with its zone, to the millisecond."""
    return datetime.now(timezone.utc).astimezone().isoformat(timespec="milliseconds")


def _append(descriptor: int | None, text: str) -> None:
    if descriptor is not None:
        os.write(descriptor, text.encode(errors="backslashreplace"))


def read_tail(log: str) -> tuple[str, ...]:
    """Return the last lines of a log; none where there is no log."""
    try:
        with Path(log).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(line[:_MAX_LINE] for line in text.splitlines())
