"""Texts for people: columns, colours on a terminal, spans of time. Pure but for what is asked of the terminal."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.slurm.jobs import FINAL, QUEUED

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "dim": 2, "bold": 1}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_MAX_SPANS = 6
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def wants_colour(out: TextIO) -> bool:
    """Say whether texts that go there are coloured: a terminal that knows colours, of a person who wants them.

    Source:
        https://no-color.org
    """
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def find_width(out: TextIO) -> int | None:
    """Return after how many characters lines are cut: those of a terminal; None elsewhere."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def colour(text: str, name: str, *, is_coloured: bool) -> str:
    """Colour a text where it goes to a terminal."""
    return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m" if is_coloured else text


def colour_state(state: str, *, is_coloured: bool) -> str:
    """Colour a state: green for what goes or went well, yellow for what waits, red for what failed."""
    if state in QUEUED or state in ("UNKNOWN", "CANCELLED", "PREEMPTED", "SUSPENDED"):
        name = "yellow"
    else:
        name = "red" if state in FINAL - {"COMPLETED"} else "green"
    return colour(state, name, is_coloured=is_coloured)


def format_span(seconds: float | None) -> str:
    """Write a span of time in the fewest characters: ``42 s``, ``3 min``, ``5 h 10 min``, ``2 d 3 h``."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min" + (f" {whole % _MINUTE} s" if whole < 10 * _MINUTE else "")
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def render_table(rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Align columns; the first row is the header.

    Args:
        rows: Cells, which may hold colours.
        width: Cut lines after so many characters; None: never.
    """
    widths = [max(len(_bare(row[column])) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell + " " * (size - len(_bare(cell))) for cell, size in zip(row, widths, strict=True)]
        lines.append(cut("  ".join(cells).rstrip(), width))
    return "\n".join(lines)


def cut(text: str, width: int | None) -> str:
    """Cut a line to a number of characters, colours not counted."""
    if width is None or len(_bare(text)) <= width:
        return text
    kept, seen = [], 0
    for part in re.split(f"({_ESCAPE.pattern})", text):
        if _ESCAPE.fullmatch(part):
            kept.append(part)
        elif seen < width - 1:
            kept.append(part[: width - 1 - seen])
            seen += len(kept[-1])
    return "".join(kept).rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def name_ranks(ranks: Sequence[int]) -> str:
    """Write numbers in the shortest form: ``0-3,7``; of many spans the first, and how many there are in all."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    names = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    if len(names) <= _MAX_SPANS:
        return ",".join(names)
    return f"{','.join(names[:_MAX_SPANS])},... {len(ranks)} ranks"


def _bare(text: str) -> str:
    return _ESCAPE.sub("", text)
