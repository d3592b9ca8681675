"""Show the logs of a run: what is there, or as they grow, through all its attempts."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.detaching import EXIT_DETACHED, Detached, detachable
from hpc_multinode.life.history import find_line_ends, find_windows, read_window
from hpc_multinode.life.looking import POLL_S, Watcher, make_pause
from hpc_multinode.life.printing import LogPrinter
from hpc_multinode.life.waiting import Teller
from hpc_multinode.logs import LogFollower

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
    watcher = Watcher(entry)
    while True:
        view = watcher.look()
        has_logs = any(entry.path.glob("attempt-*/rank*.log"))
        if has_logs or (view.is_over and view.report is not None):
            return view
        tell(view)
        sleep(POLL_S)


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
    windows = find_windows(run_dir / f"attempt-{attempt}", ranks=ranks)
    for window in windows:
        moment = window.time
        told = None if moment is None else datetime.fromtimestamp(moment, timezone.utc).astimezone().isoformat()
        printer.show(read_window(window, is_last=is_last), attempt=attempt, time=told)
    return find_line_ends(windows)


def show_last(
    run_dir: Path, attempts: tuple[int, ...], printer: LogPrinter, *, ranks: Container[int] | None, num_lines: int
) -> dict[Path, int]:
    """Show the last lines of a run.

    Args:
        run_dir: The run folder.
        attempts: Which attempts, in order.
        printer: Shows lines.
        ranks: Global ranks; None: all.
        num_lines: How many lines, as they are shown.

    Returns:
        How far each log was read, in bytes.
    """
    found: list[tuple[int, str]] = []
    ends: dict[Path, int] = {}
    for attempt in reversed(attempts):
        windows = find_windows(run_dir / f"attempt-{attempt}", ranks=ranks)
        ends.update(find_line_ends(windows))
        for window in reversed(windows):
            if len(found) >= num_lines:
                break
            lines = printer.render(read_window(window), attempt=attempt)
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
    watcher, current = Watcher(entry), attempt or 0
    follower = LogFollower(
        entry.path, ranks=ranks, first_attempt=current, last_attempt=current, offsets=offsets, shows_traceback=True
    )
    while True:
        began = time.monotonic()
        view = watcher.look()
        printer.show(list(follower.read_new()), attempt=current)
        took_s = time.monotonic() - began
        if view.files.attempt is not None and view.files.attempt > current:
            printer.show(list(follower.read_rest()), attempt=current)
            current += 1
            follower = LogFollower(
                entry.path, ranks=ranks, first_attempt=current, last_attempt=current, offsets=offsets,
                shows_traceback=True,
            )  # fmt: skip
            continue
        tell(view)
        if watcher.is_end(view):
            printer.show(list(follower.read_rest()), attempt=current)
            return view
        sleep(make_pause(took_s, POLL_S))


def follow_to_end(entry: Entry, *, out: TextIO) -> int:
    """Follow a run that was just submitted and return its exit code; Ctrl-C leaves the run alone.

    Args:
        entry: Which run.
        out: Where the ranks' lines and the closing text go.
    """
    printer = LogPrinter(out, local_world_size=entry.local_world_size, is_terminal=out.isatty())
    teller = Teller(lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    try:
        with detachable(entry):
            view = follow(entry, printer, tell=teller)
    except Detached:
        return EXIT_DETACHED
    return print_closing(view, has_shown_logs=True, out=out)
