"""All ranks' logs as one, after the fact."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.life.following import show_attempt, show_last
from hpc_multinode.life.history import collapse, find_windows, read_window
from hpc_multinode.life.printing import LogPrinter

if TYPE_CHECKING:
    from pathlib import Path


class _Run:
    """A run folder whose logs and marks a test writes in the order of time."""

    def __init__(self, path: Path, *, attempt: int = 0) -> None:
        self.path, self.folder = path, path / f"attempt-{attempt}"
        self.folder.mkdir()
        self.out = io.StringIO()

    def write(self, time: float | None, rank: int, text: str) -> None:
        """Write what a rank printed, and note its log's size where a time is given."""
        log = self.folder / f"rank{rank}.log"
        with log.open("a") as file:
            file.write(text)
        if time is not None:
            with (self.folder / f"node{rank // 2}.sizes").open("a") as file:
                file.write(f"{time:.2f} {rank}={log.stat().st_size}\n")

    def merged(self, *, is_last: bool = True, **options: object) -> list[str]:
        """Return what ``logs`` shows."""
        printer = LogPrinter(self.out, local_world_size=2, **options)  # type: ignore[arg-type]
        show_attempt(self.path, 0, printer, ranks=None, is_last=is_last)
        return self.out.getvalue().splitlines()


def test_lines_are_merged_in_order_of_time(tmp_path: Path) -> None:
    """A line of one rank stands between those of another that came before and after it."""
    run = _Run(tmp_path)
    run.write(10.1, 0, "a\n")
    run.write(10.7, 3, "b\n")
    run.write(11.2, 0, "c\n")
    assert run.merged() == ["[0] a", "[3] b", "[0] c"]


def test_line_that_was_cut_by_a_mark_comes_when_it_ends(tmp_path: Path) -> None:
    """Half a line at the time of a mark is shown whole, once, with its end."""
    run = _Run(tmp_path)
    run.write(10.1, 0, "hal")
    run.write(10.7, 1, "x\n")
    run.write(11.2, 0, "f\nnext\nno end")
    assert run.merged() == ["[1] x", "[0] half", "[0] next", "[0] no end"]
    run.out.truncate(0)
    run.out.seek(0)
    assert run.merged(is_last=False) == ["[1] x", "[0] half", "[0] next"]


def test_same_lines_of_many_ranks_collapse(tmp_path: Path) -> None:
    """What all ranks print within half a second is one line, and each rank's own order stays."""
    run = _Run(tmp_path)
    for rank in range(4):
        run.write(10.1, rank, f"loading\nrank {rank}\ndone\n")
    assert run.merged() == ["[0-3] loading", *(f"[{rank}] rank {rank}" for rank in range(4)), "[0-3] done"]


def test_logs_without_marks_are_shown(tmp_path: Path) -> None:
    """Where no agent has noted sizes nothing is lost."""
    run = _Run(tmp_path)
    run.write(None, 0, "a\nb\n")
    run.write(None, 1, "c\n")
    assert sorted(run.merged()) == ["[0] a", "[0] b", "[1] c"]


def test_what_came_after_the_last_mark_is_shown(tmp_path: Path) -> None:
    """An agent that was killed has not noted the end; it is shown all the same, last."""
    run = _Run(tmp_path)
    run.write(10.1, 0, "a\n")
    run.write(11.0, 1, "b\n")
    run.write(None, 0, "last words\n")
    assert run.merged() == ["[0] a", "[1] b", "[0] last words"]


def test_pattern_and_progress_bars(tmp_path: Path) -> None:
    """A pattern chooses lines, and a bar that was written over is shown as it ended."""
    run = _Run(tmp_path)
    run.write(10.1, 0, "x\n  1%\r 50%\r100%\nloss 3\n")
    assert run.merged(pattern=re.compile(r"loss|%")) == ["[0] 100%", "[0] loss 3"]


def test_last_lines_come_from_the_end_through_attempts(tmp_path: Path) -> None:
    """``-n`` takes the last lines as they are shown, from the attempt before where the last has too few."""
    first, second = _Run(tmp_path), _Run(tmp_path, attempt=1)
    first.write(10.1, 0, "a\nb\n")
    second.write(20.1, 0, "c\n")
    second.write(20.1, 1, "c\n")
    printer = LogPrinter(first.out, local_world_size=2)
    show_last(tmp_path, (0, 1), printer, ranks=None, num_lines=2, is_last=True)
    assert first.out.getvalue().splitlines() == ["[0] b", "--- attempt 1 ---", "[0-1] c"]


def test_ranks_are_chosen(tmp_path: Path) -> None:
    """Only the logs of the ranks that are asked for are read."""
    run = _Run(tmp_path)
    for rank in range(3):
        run.write(10.1, rank, f"{rank}\n")
    (window,) = find_windows(run.folder, ranks={1})
    assert read_window(window) == [(1, "1")]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"))))
def test_collapsing_keeps_every_ranks_own_lines(lines: list[tuple[int, str]]) -> None:
    """Whatever is merged, each rank's lines are all there, in its own order."""
    shown = list(collapse(lines))
    for rank in range(4):
        assert [text for ranks, text in shown if rank in ranks] == [text for who, text in lines if who == rank]


def test_terminal_is_coloured_and_a_pipe_is_not(tmp_path: Path) -> None:
    """Escape codes go to terminals alone."""
    run = _Run(tmp_path)
    run.write(10.1, 0, "a\n")
    assert run.merged() == ["[0] a"]
    assert run.merged(is_coloured=True)[1] == "\x1b[36m[0]\x1b[0m a"
