"""Look at runs: their folders, their processes and one answer of Slurm's, judged together."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from hpc_multinode.life.files import read_files
from hpc_multinode.life.queue import FIRST_S, Queue, make_interval
from hpc_multinode.life.settling import can_settle, rewrite, settle
from hpc_multinode.life.slurm_word import SlurmWord, is_own_job, merge_word
from hpc_multinode.life.view import RunView, explain, judge
from hpc_multinode.registry import Entry, follow_job, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# An answer this old is new enough for a command that looks once. Seconds.
_ONCE_S = 2.0
# How often a watched run's files are looked at. Seconds.
POLL_S = 0.5
# How long Slurm's own word on the end is waited for once there is a report. Seconds.
_SLURMS_WORD_S = 15.0
# After a look at files, rest so many times as long as it took, but no longer than these seconds.
_REST = 10.0
_LONGEST_PAUSE_S = 10.0


def look_at_all(entries: Sequence[Entry], *, queue: Queue | None = None) -> list[RunView]:
    """Look at many runs, with at most one call to squeue, and one to the accounting for those that left no report.

    Args:
        entries: Which runs.
        queue: Asks Slurm.
    """
    queue = queue or Queue()
    # Those that have their report too: a person may have requeued one by hand.
    return _settle_lost([_look(entry, queue.read_word(entry, max_age_s=_ONCE_S)) for entry in entries], queue)


def look_at(entry: Entry, *, queue: Queue | None = None, max_age_s: float = _ONCE_S) -> RunView:
    """Look at one run.

    Args:
        entry: Which run.
        queue: Asks Slurm.
        max_age_s: Ask Slurm if its last answer is older. Seconds.
    """
    queue = queue or Queue()
    (view,) = _settle_lost([_look(entry, queue.read_word(entry, max_age_s=max_age_s))], queue)
    return view


def settle_later_word(view: RunView, *, queue: Queue) -> RunView:
    """Ask the accounting about a run that is over, and let its later word stand in the report."""
    if view.report is None or view.entry.mode != "slurm":
        return view
    return _take_later_word(view, replace(view.word, account=queue.read_accounts([view.entry]).get(view.entry.run)))


def _take_later_word(view: RunView, word: SlurmWord) -> RunView:
    before = view.files.report or view.report
    report = before if before is None else merge_word(before, word, is_own=is_own_job(view.entry, before))
    if report is None:
        return view
    if report != view.files.report:
        rewrite(report)
    return replace(view, word=word, report=report, state=report.state, reason=explain(report))


class Watcher:
    """Looks at one run again and again: at its files each time, at Slurm less and less often.

    Args:
        entry: Which run.
        queue: Asks Slurm.
        clock: Tells seconds.
    """

    def __init__(
        self, entry: Entry, *, queue: Queue | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._entry, self._queue, self._clock = entry, queue or Queue(), clock
        self._interval_s = FIRST_S
        self._state: tuple[str, int | None] | None = None
        self._reported_at: float | None = None

    def look(self) -> RunView:
        """Look once more."""
        # Between the report and the end of the job Slurm is asked often, for a short while.
        max_age_s = self._interval_s if self._reported_at is None else POLL_S
        self._entry = follow_job(self._entry)
        view = look_at(self._entry, queue=self._queue, max_age_s=max_age_s)
        state = (view.state, view.files.attempt)
        if state != self._state:
            self._state, self._interval_s = state, FIRST_S
        elif view.word.taken is not None and (_now() - view.word.taken).total_seconds() < POLL_S:
            self._interval_s = make_interval(self._interval_s)  # it was just asked, and nothing is new
        if view.report is None:
            self._reported_at = None
        elif self._reported_at is None:
            self._reported_at = self._clock()
        return view

    def is_end(self, view: RunView) -> bool:
        """Say whether a run is over, and Slurm too has done with it: its word on the end may be better than ours."""
        if view.report is None or self._reported_at is None:
            return False
        is_heard = view.word.taken is not None and view.word.age_s is None
        if view.entry.mode != "slurm" or not is_heard or view.word.is_over:
            return True
        return self._clock() - self._reported_at > _SLURMS_WORD_S


def make_pause(took_s: float, least_s: float) -> float:
    """Return how long to pause after a look at files, so that thousands of logs on a slow file system are not a load.

    Args:
        took_s: How long the look took, in seconds.
        least_s: The shortest pause, in seconds.
    """
    return min(_LONGEST_PAUSE_S, max(least_s, _REST * took_s))


def _look(entry: Entry, word: SlurmWord) -> RunView:
    return judge(entry, read_files(entry.path), word, is_alive=is_alive(entry), now=_now())


def _settle_lost(views: list[RunView], queue: Queue) -> list[RunView]:
    """Complete the reports of runs that left none, and those of which Slurm says that they ended otherwise."""
    lost = [view for view in views if view.is_lost]
    contested = [view for view in views if view.is_contested]
    if not lost and not contested:
        return views
    accounts = queue.read_accounts([view.entry for view in (*lost, *contested)])
    settled = {
        view.entry.run: _take_later_word(view, replace(view.word, account=accounts.get(view.entry.run)))
        for view in contested
    }
    for view in lost:
        word = replace(view.word, account=accounts.get(view.entry.run))
        again = judge(view.entry, view.files, word, is_alive=is_alive(view.entry), now=_now())
        if can_settle(again, now=_now()):
            report = settle(again)
            files = replace(again.files, report=report)
            again = replace(
                judge(view.entry, files, word, is_alive=False, now=_now()),
                state=report.state, is_over=True, report=report, reason=explain(report),
            )  # fmt: skip
        settled[view.entry.run] = again
    return [settled.get(view.entry.run, view) for view in views]


def _now() -> datetime:
    return datetime.now(timezone.utc).astimezone()
