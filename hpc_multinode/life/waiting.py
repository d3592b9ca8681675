"""Wait for the end of a run, across its attempts."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from hpc_multinode.life.looking import POLL_S, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.life.view import RunView
    from hpc_multinode.registry import Entry


def wait_for_end(
    entry: Entry,
    *,
    tell: Callable[[RunView], None],
    sleep: Callable[[float], None] = time.sleep,
    watcher: Watcher | None = None,
) -> RunView:
    """Return how a run stands once it is over for good.

    Args:
        entry: Which run.
        tell: Is told how it stands after each look.
        sleep: Waits so many seconds.
        watcher: Looks at the run.
    """
    watcher = watcher or Watcher(entry)
    while True:
        view = watcher.look()
        tell(view)
        if watcher.is_end(view):
            return view
        sleep(POLL_S)


def _write_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


class Teller:
    """Says in one line how a run stands, whenever that has changed.

    Args:
        write: Takes a line; by itself it goes to stderr.
    """

    def __init__(self, write: Callable[[str], None] = _write_to_stderr) -> None:
        self._write = write
        self._said = ""

    def __call__(self, view: RunView) -> None:
        """Say how it stands if that is new."""
        line = describe_view(view)
        key = line.partition(", expected start")[0]
        if key != self._said and not view.is_over:
            self._said = key
            self._write(line)


def describe_view(view: RunView) -> str:
    """Return one line on how a run stands."""
    name = f"job {view.entry.job_id}" if view.entry.job_id is not None else view.entry.run
    attempt = f", attempt {view.files.attempt}" if view.files.attempt else ""
    reason = f" ({view.reason})" if view.reason and view.reason != view.state.lower() else ""
    age = "" if view.word.age_s is None else ", Slurm does not answer, this is its last word"
    return f"{name} is {view.state}{reason}{attempt}{age}"
