"""``list``: all runs of this person, newest first."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from hpc_multinode.cli.options import Parser, parse_count, parse_since, read_now
from hpc_multinode.errors import ConfigError
from hpc_multinode.life.looking import look_at_all
from hpc_multinode.life.table import colour, colour_state, find_width, format_span, render_table, wants_colour
from hpc_multinode.registry import read_entries
from hpc_multinode.slurm.jobs import STATES, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.life.view import RunView

# As many as a person looks at; a pipe gets all.
_SHOWN = 40
_HEADER = ("RUN", "JOB", "STATE", "SIZE", "ATTEMPT", "WAITED", "RAN", "WHY")


def make_parser() -> Parser:
    """Return the parser of this verb's words."""
    parser = Parser("list", "Show your runs, newest first.", has_run=False)
    parser.add_argument("--state", metavar="STATE[,STATE]", help="only these, such as RUNNING,PENDING or FAILED")
    parser.add_argument("--since", metavar="TIME", help="only those submitted since, such as 12h, 2d or 2026-12-01")
    parser.add_argument("--name", metavar="NAME", help="only those whose name or id begins so")
    parser.add_argument(
        "-n", "--lines", metavar="N", type=parse_count, help=f"the newest N (terminal: {_SHOWN}; 0: all)"
    )
    return parser


def run(line: CommandLine) -> int:
    """Print the runs and return 0."""
    options = make_parser().parse_args(line.words)
    states = _parse_states(options.state)
    since = parse_since(options.since, now=read_now()) if options.since else None
    entries = [
        entry
        for entry in read_entries()
        if (since is None or datetime.fromisoformat(entry.submitted) >= since)
        and (not options.name or entry.name == options.name or entry.run.startswith(options.name))
    ]
    views = [view for view in look_at_all(entries) if not states or view.state in states]
    if options.json:
        print(json.dumps([view.to_json() for view in views]))  # noqa: T201
        return 0
    if not views:
        is_chosen = bool(states or since or options.name)
        print("no runs like that; list alone shows all" if is_chosen else "no runs yet")  # noqa: T201
        return 0
    all_wanted = options.lines is not None or not sys.stdout.isatty()
    shown = views[: options.lines or None] if all_wanted else views[:_SHOWN]
    rows = _make_rows(shown, is_coloured=wants_colour(sys.stdout))
    print(render_table(rows, width=find_width(sys.stdout)))  # noqa: T201
    if len(shown) < len(views):
        print(f"and {len(views) - len(shown)} older ones: list -n 0 shows all", file=sys.stderr)  # noqa: T201
    if any(view.word.age_s is not None for view in views):
        age = max(view.word.age_s or 0.0 for view in views)
        print(f"note: Slurm does not answer; its last word is {format_span(age)} old", file=sys.stderr)  # noqa: T201
    return 0


def _make_rows(views: Sequence[RunView], *, is_coloured: bool) -> list[tuple[str, ...]]:
    header = tuple(colour(name, "dim", is_coloured=is_coloured) for name in _HEADER)
    return [header, *(_make_row(view, is_coloured=is_coloured) for view in views)]


def _make_row(view: RunView, *, is_coloured: bool) -> tuple[str, ...]:
    return (
        view.entry.run,
        view.entry.job_id or "-",
        colour_state(view.state, is_coloured=is_coloured),
        f"{view.entry.num_nodes} x {view.entry.local_world_size}",
        "-" if view.files.attempt is None else str(view.files.attempt),
        format_span(view.queued_s),
        format_span(view.running_s),
        " ".join(view.reason.split()),
    )


def _parse_states(text: str | None) -> frozenset[str]:
    states = frozenset(word.strip().upper() for word in (text or "").split(",") if word.strip())
    unknown = sorted(states - STATES - {UNKNOWN})
    if unknown:
        raise ConfigError(
            what="--state names a state that Slurm does not have",
            found=f"--state {text}: {', '.join(unknown)}",
            fix="one or more of PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, ...",
        )
    return states
