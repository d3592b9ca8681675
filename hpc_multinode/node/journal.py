"""The agent's own log: few lines, each with the time, in the attempt's folder once that is known."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_multinode.runs import RunFolder

_TAIL_BYTES = 16_384
_MAX_LINE = 400


class Journal:
    """Keeps lines until ``open`` says where they go, then writes each at once."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._descriptor: int | None = None

    def open(self, folder: RunFolder, attempt: int, node_rank: int) -> None:
        """Write to this node's log of this attempt from now on."""
        self._descriptor = folder.open_append(folder.node_log(attempt, node_rank))
        self._put("".join(self._kept))
        self._kept.clear()

    def write(self, text: str) -> None:
        """Add a line."""
        line = f"{datetime.now(timezone.utc).astimezone().isoformat(timespec='milliseconds')} {_indent(text)}\n"
        if self._descriptor is None:
            self._kept.append(line)
        else:
            self._put(line)

    def _put(self, text: str) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a full disk: a run goes on without its journal
                os.write(self._descriptor, text.encode(errors="backslashreplace"))


def _indent(text: str) -> str:
    # A line of a journal begins with its time; what belongs to it is set in.
    return text.rstrip().replace("\n", "\n    ")


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
