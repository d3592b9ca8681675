"""Shows ranks' lines: each with who wrote it, the same line of many ranks once, coloured on a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from hpc_multinode.context import find_node
from hpc_multinode.life.history import collapse
from hpc_multinode.life.table import name_ranks

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from hpc_multinode.logs import Line

# Cyan, green, yellow, magenta, blue, and their bright forms: red is for what went wrong.
_RANK_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)


class LogPrinter:
    """Writes lines as they come.

    Args:
        out: Where to.
        is_coloured: Colour the ranks.
        pattern: Show only lines in which this is found; None: all.
        collapses: The same line of many ranks that came together is one.
        local_world_size: Workers a node, to tell a line's node; for JSON.
        wants_json: One mapping a line and rank instead of text.
    """

    def __init__(
        self,
        out: TextIO,
        *,
        local_world_size: int,
        is_coloured: bool = False,
        pattern: re.Pattern[str] | None = None,
        collapses: bool = True,
        wants_json: bool = False,
    ) -> None:
        self._out, self._is_coloured, self._pattern = out, is_coloured, pattern
        self._collapses, self._local_world_size, self._wants_json = collapses, local_world_size, wants_json
        self._attempt: int | None = None

    @property
    def has_written(self) -> bool:
        """Say whether there was any line."""
        return self._attempt is not None

    def show(self, lines: Sequence[Line], *, attempt: int, time: str | None = None) -> None:
        """Write lines that came together.

        Args:
            lines: Global rank and line.
            attempt: Whose.
            time: When they came, as ISO 8601; None where it is not known.
        """
        for text in self.render(lines, attempt=attempt, time=time):
            self.write(text, attempt=attempt)
        self._out.flush()

    def write(self, text: str, *, attempt: int) -> None:
        """Write a line that ``render`` made, behind a line that says where another attempt begins."""
        if self._attempt not in (None, attempt) and not self._wants_json:
            self._out.write(f"--- attempt {attempt} ---\n")
        self._attempt = attempt
        self._out.write(text + "\n")

    def render(self, lines: Sequence[Line], *, attempt: int, time: str | None = None) -> list[str]:
        """Compose the text of lines that came together; only what matches."""
        wanted = [
            (rank, text)
            for rank, text in ((rank, _shown(text)) for rank, text in lines)
            if self._pattern is None or self._pattern.search(text)
        ]
        if self._wants_json:
            return [self._make_json(rank, text, attempt, time) for rank, text in wanted]
        merged = collapse(wanted) if self._collapses else (((rank,), text) for rank, text in wanted)
        return [f"{self._name(ranks)} {text}" for ranks, text in merged]

    def _name(self, ranks: tuple[int, ...]) -> str:
        name = f"[{name_ranks(ranks)}]"
        if not self._is_coloured:
            return name
        return f"\x1b[{_RANK_COLOURS[ranks[0] % len(_RANK_COLOURS)] if len(ranks) == 1 else 1}m{name}\x1b[0m"

    def _make_json(self, rank: int, text: str, attempt: int, time: str | None) -> str:
        told: dict[str, Any] = {
            "attempt": attempt,
            "global_rank": rank,
            "node_rank": find_node(rank, self._local_world_size),
            "time": time,
            "line": text,
        }
        return json.dumps(told)


def _shown(text: str) -> str:
    # A progress bar writes its line over and over; the last state is what a terminal would show.
    return text.rpartition("\r")[2]
