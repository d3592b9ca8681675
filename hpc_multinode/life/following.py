"""Show the logs of a run: what is there, or as they grow, through all its attempts."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.layout import has_rank_logs, name_attempt
from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.detaching import detachable
from hpc_multinode.life.history import find_line_ends, find_windows, read_window
from hpc_multinode.life.looking import POLL_S, Watcher, make_pause
from hpc_multinode.life.printing import LogPrinter
from hpc_multinode.life.table import wants_colour
from hpc_multinode.life.waiting import Teller
from hpc_multinode.logs import RunFollower, WaitingFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from pathlib import Path

    from hpc_multinode.life.view import RunView
    from hpc_multinode.registry import Entry


def wait_for_logs(
    entry: Entry, *, tell: Callable[[RunView], None], sleep: Callable[[float], None] = time.sleep
) -> RunView:
    """Wait until a run has logs, or is over without any.

    Args:
        entry: Which run.
        tell: Is told how it stands after each look.
        sleep: Waits so many seconds.
    """
    watcher, waiting = Watcher(entry), WaitingFollower(entry.path)
    while True:
        view = watcher.look()
        has_logs = has_rank_logs(entry.path)
        if has_logs or (view.is_over and view.report is not None):
            return view
        tell(view)
        tell_waiting(waiting)
        sleep(POLL_S)


def tell_waiting(waiting: WaitingFollower) -> None:
    """Say for whom the agents wait, where they have just said it."""
    line = waiting.read_new()
    if line is not None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def show_attempt(
    run_dir: Path, attempt: int, printer: LogPrinter, *, ranks: Container[int] | None, is_last: bool
) -> dict[Path, int]:
    """Show what one attempt's logs hold now, in order of time.

    Args:
        run_dir: The run folder.
        attempt: Which attempt.
        printer: Shows lines.
        ranks: Global ranks; None: all.
        is_last: Show last lines without an end as well.

    Returns:
        How far each log was read, in bytes.
    """
    windows = find_windows(name_attempt(run_dir, attempt), ranks=ranks)
    for window in windows:
        told = None if window.time is None else _write_time(window.time)
        printer.show(read_window(window, is_last=is_last), attempt=attempt, time=told)
    return find_line_ends(windows)


def show_last(
    run_dir: Path,
    attempts: tuple[int, ...],
    printer: LogPrinter,
    *,
    ranks: Container[int] | None,
    num_lines: int,
    is_last: bool,
) -> dict[Path, int]:
    """Show the last lines of a run.

    Args:
        run_dir: The run folder.
        attempts: Which attempts, in order.
        printer: Shows lines.
        ranks: Global ranks; None: all.
        num_lines: How many lines, as they are shown.
        is_last: Show last lines without an end as well.

    Returns:
        How far each log was read, in bytes.
    """
    found: list[tuple[int, str]] = []
    ends: dict[Path, int] = {}
    for attempt in reversed(attempts):
        windows = find_windows(name_attempt(run_dir, attempt), ranks=ranks)
        ends.update(find_line_ends(windows))
        for window in reversed(windows):
            if len(found) >= num_lines:
                break
            lines = printer.render(read_window(window, is_last=is_last or attempt != attempts[-1]), attempt=attempt)
            found = [*((attempt, line) for line in lines), *found]
    for attempt, line in found[-num_lines:] if num_lines else ():
        printer.write(line, attempt=attempt)
    return ends


def follow(
    entry: Entry,
    printer: LogPrinter,
    *,
    tell: Callable[[RunView], None],
    ranks: Container[int] | None = None,
    attempt: int | None = None,
    offsets: dict[Path, int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> RunView:
    """Show logs as they grow until the run is over, through all attempts that come.

    Args:
        entry: Which run.
        printer: Shows lines.
        tell: Is told how the run stands after each look.
        ranks: Global ranks; None: all.
        attempt: Begin with this one; None: the first.
        offsets: How far logs were shown already, in bytes.
        sleep: Waits so many seconds.

    Returns:
        How it stands at the end.
    """
    watcher, waiting = Watcher(entry), WaitingFollower(entry.path)
    follower = RunFollower(
        entry.path, ranks=ranks, first_attempt=attempt or 0, offsets=offsets, shows_traceback=True
    )  # fmt: skip
    while True:
        began = time.monotonic()
        view = watcher.look()
        is_end = watcher.is_end(view)
        for number, lines in follower.read_rest() if is_end else follower.read_new():
            printer.show(lines, attempt=number, time=_write_time(time.time()))
        if is_end:
            return view
        took_s = time.monotonic() - began
        tell(view)
        tell_waiting(waiting)
        sleep(make_pause(took_s, POLL_S))


def follow_to_end(entry: Entry, *, out: TextIO) -> int:
    """Follow a run that was just submitted and return its exit code.

    Args:
        entry: Which run.
        out: Where the ranks' lines and the closing text go.

    Raises:
        Detached: Ctrl-C, which leaves the run alone.
    """
    printer = LogPrinter(out, local_world_size=entry.local_world_size, is_coloured=wants_colour(out))
    with detachable(entry):
        view = follow(entry, printer, tell=Teller())
    return print_closing(view, has_shown_logs=True, out=out)


def _write_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(timespec="milliseconds")
