"""All ranks' logs of an attempt as one, after the fact: in the order in which their lines came, to half a second.

Each agent notes how long its ranks' logs are, every half second in which one has grown (``node/sampling.py``). So of
every byte it is known in which half second it was written. Lines carry no time of their own, and need none.
"""

from __future__ import annotations

import heapq
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from hpc_multinode.layout import find_node_files, find_rank_logs
from hpc_multinode.life.files import read_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

    from hpc_multinode.logs import Line

# Marks within the same so many seconds belong together.
WINDOW_S = 0.5
_BACK_BYTES = 1 << 16
# A log without marks is one window; more of it than this at once would fill the memory.
_MAX_WINDOW = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What one rank wrote in one window.

    Attributes:
        rank: Global rank.
        path: Its log.
        start: Where it begins, in bytes.
        end: Where it ends, in bytes.
    """

    rank: int
    path: Path
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What all ranks wrote within half a second.

    Attributes:
        time: Seconds since 1970; None where it is not known.
        segments: Of each rank that wrote, by rank.
    """

    time: float | None
    segments: tuple[Segment, ...]


def find_windows(folder: Path, *, ranks: Container[int] | None = None) -> list[Window]:
    """Cut the logs of an attempt, as long as they are now, into windows in order of time.

    Args:
        folder: The attempt's folder.
        ranks: Global ranks; None: all.
    """
    logs = {
        rank: path
        for rank, path in find_rank_logs(folder).items()
        if (ranks is None or rank in ranks) and path.is_file()
    }
    marks = _read_marks(folder)
    found: dict[float, list[Segment]] = {}
    for rank, path in logs.items():
        size, start = path.stat().st_size, 0
        for bucket, end in (*marks.get(rank, ()), (float("inf"), size)):
            bounded = min(end, size)
            while bounded > start:
                stop = min(bounded, start + _MAX_WINDOW)
                found.setdefault(bucket, []).append(Segment(rank=rank, path=path, start=start, end=stop))
                start = stop
    return [
        Window(time=None if bucket == float("inf") else bucket * WINDOW_S, segments=tuple(found[bucket]))
        for bucket in sorted(found)
    ]


def read_window(window: Window, *, is_last: bool = False) -> list[Line]:
    """Return the lines that ended in a window, by rank.

    Args:
        window: Which.
        is_last: Add last lines that never got an end.
    """
    return [line for segment in window.segments for line in _read_segment(segment, is_last=is_last)]


def collapse(lines: Iterable[Line]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Make one line of the same line of many ranks; the order of each rank's own lines stays.

    Args:
        lines: Global rank and line, which came together.

    Yields:
        The ranks that wrote it, ascending, and the line.
    """
    waiting: dict[int, list[str]] = {}
    for rank, text in lines:
        waiting.setdefault(rank, []).append(text)
    # Who has been heard least is heard next, so that ranks which say the same stay side by side.
    places = dict.fromkeys(waiting, 0)
    turns = [(0, rank) for rank in sorted(waiting)]
    heads: dict[str, set[int]] = {}
    for rank, texts in waiting.items():
        heads.setdefault(texts[0], set()).add(rank)
    while turns:
        place, rank = heapq.heappop(turns)
        if place != places[rank]:  # said together with another's
            continue
        text = waiting[rank][place]
        same = tuple(sorted(heads.pop(text)))
        yield same, text
        for one in same:
            places[one] += 1
            if places[one] < len(waiting[one]):
                heads.setdefault(waiting[one][places[one]], set()).add(one)
                heapq.heappush(turns, (places[one], one))


def find_line_ends(windows: Iterable[Window]) -> dict[Path, int]:
    """Return for each log where the last line begins that had no end yet: what follows has not been read.

    Args:
        windows: As ``find_windows`` cut the logs.
    """
    ends: dict[Path, int] = {}
    for window in windows:
        for segment in window.segments:
            ends[segment.path] = max(segment.end, ends.get(segment.path, 0))
    for path, end in ends.items():
        with path.open("rb") as file:
            ends[path] = _find_line_start(file, end)
    return ends


def _read_marks(folder: Path) -> dict[int, list[tuple[float, int]]]:
    """Return for each rank the ends of what it wrote, by the number of the half second."""
    marks: dict[int, list[tuple[float, int]]] = {}
    for path in find_node_files(folder, "sizes").values():
        for line in read_text(path).splitlines():
            try:
                time, *sizes = line.split()
                bucket = float(int(float(time) / WINDOW_S))
                for size in sizes:
                    rank, _, end = size.partition("=")
                    marks.setdefault(int(rank), []).append((bucket, int(end)))
            except (ValueError, OverflowError):  # a line that is being written
                continue
    return marks


def _read_segment(segment: Segment, *, is_last: bool) -> Iterator[Line]:
    with segment.path.open("rb") as file:
        start = _find_line_start(file, segment.start)
        file.seek(start)
        data = file.read(segment.end - start)
        is_at_end = is_last and segment.end >= file.seek(0, os.SEEK_END)
    whole, newline, rest = data.rpartition(b"\n")
    if newline:
        for line in whole.split(b"\n"):
            yield segment.rank, line.decode(errors="replace").rstrip("\r")
    if rest and is_at_end:
        yield segment.rank, rest.decode(errors="replace")


def _find_line_start(file: BinaryIO, offset: int) -> int:
    """Return where the line begins in which a log was cut."""
    end = offset
    while end > 0:
        begin = max(0, end - _BACK_BYTES)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
