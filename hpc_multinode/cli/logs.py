"""``logs``: all ranks' lines as one, as they were written or as they come."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from hpc_multinode.cli.options import Parser, parse_count, parse_ranks
from hpc_multinode.context import list_ranks
from hpc_multinode.errors import ConfigError
from hpc_multinode.layout import has_rank_logs
from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.detaching import detachable
from hpc_multinode.life.files import read_files
from hpc_multinode.life.finding import find_run
from hpc_multinode.life.following import follow, show_attempt, show_last, wait_for_logs
from hpc_multinode.life.printing import LogPrinter
from hpc_multinode.life.settling import read_output
from hpc_multinode.life.table import wants_colour
from hpc_multinode.life.waiting import Teller

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.life.view import RunView
    from hpc_multinode.registry import Entry


def make_parser() -> Parser:
    """Return the parser of this verb's words."""
    parser = Parser("logs", "Show the ranks' lines, merged in order of time. Waits for a run that has not started.")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run is over")
    parser.add_argument("--rank", metavar="N", help="only these global ranks, such as 3,8-11")
    parser.add_argument("--node", metavar="N", help="only the ranks of these nodes, such as 0,2-3")
    parser.add_argument("--attempt", metavar="N", type=int, help="only this attempt (default: all)")
    parser.add_argument("--grep", metavar="REGEX", help="only lines in which this is found")
    parser.add_argument("-n", "--lines", metavar="N", type=parse_count, help="only the last N lines, then what comes")
    parser.add_argument("--no-collapse", action="store_true", help="show the same line of many ranks many times")
    return parser


def run(line: CommandLine) -> int:
    """Show the logs and return 0; with -f the run's exit code."""
    options = make_parser().parse_args(line.words)
    entry = find_run(options.run)
    ranks = _choose_ranks(options, entry)
    printer = LogPrinter(
        sys.stdout,
        local_world_size=entry.local_world_size,
        is_coloured=wants_colour(sys.stdout),
        pattern=_compile(options.grep),
        collapses=not options.no_collapse,
        wants_json=options.json,
    )
    teller = Teller(lambda text: print(f"{text}; Ctrl-C leaves it alone", file=sys.stderr, flush=True))  # noqa: T201
    try:
        with detachable(entry):
            return _show(entry, options, printer, ranks, teller)
    except PermissionError as error:  # somebody else's run, whose folder may be looked into
        raise ConfigError(
            what=f"a log cannot be read: {error.strerror}",
            found=error.filename,
            fix="ask its owner to submit with private=false",
        ) from None


def _show(
    entry: Entry, options: argparse.Namespace, printer: LogPrinter, ranks: frozenset[int] | None, teller: Teller
) -> int:
    view = wait_for_logs(entry, tell=teller)
    attempts = _choose_attempts(options, entry, view)
    ends: dict[Path, int] = {}
    if options.lines is not None:
        ends = show_last(
            entry.path, attempts, printer, ranks=ranks, num_lines=options.lines, is_last=not options.follow
        )
    else:
        for attempt in attempts:
            is_last = not options.follow or attempt != view.files.attempt
            ends.update(show_attempt(entry.path, attempt, printer, ranks=ranks, is_last=is_last))
    if not options.follow or (options.attempt is not None and options.attempt != view.files.attempt):
        if view.is_over and not has_rank_logs(entry.path):
            print("\n".join(read_output(entry.path)), file=sys.stderr)  # noqa: T201
        elif not printer.has_written:
            what = "no such line" if _narrows(options) else "the ranks have printed nothing"
            print(f"{entry.run}: {what}{'' if view.is_over else ' yet'}", file=sys.stderr)  # noqa: T201
        return 0
    if not view.is_over:
        view = follow(
            entry, printer, tell=lambda _: None, ranks=ranks, attempt=attempts[-1] if attempts else None, offsets=ends
        )
    return print_closing(view, has_shown_logs=True, out=sys.stderr if options.json else None)


def _narrows(options: argparse.Namespace) -> bool:
    return any(value is not None for value in (options.rank, options.node, options.attempt, options.grep))


def _choose_attempts(options: argparse.Namespace, entry: Entry, view: RunView) -> tuple[int, ...]:
    attempts = view.files.attempts or read_files(entry.path).attempts
    if options.attempt is None:
        return attempts
    if options.attempt not in attempts:
        raise ConfigError(
            what="the run has no such attempt",
            found=f"--attempt {options.attempt}, there are {', '.join(map(str, attempts)) or 'none'}",
            fix="leave --attempt out for all",
        )
    return (options.attempt,)


def _choose_ranks(options: argparse.Namespace, entry: Entry) -> frozenset[int] | None:
    """Return the global ranks that are meant; None: all.

    Raises:
        ConfigError: The run has no such rank or node.
    """
    ranks = None if options.rank is None else parse_ranks(options.rank, option="--rank")
    if ranks is not None and max(ranks) >= entry.world_size:
        raise ConfigError(
            what="the run has no such rank",
            found=f"--rank {options.rank}",
            fix=f"ranks are 0 to {entry.world_size - 1}",
        )
    if options.node is None:
        return ranks
    nodes = parse_ranks(options.node, option="--node")
    if max(nodes) >= entry.num_nodes:
        raise ConfigError(
            what="the run has no such node", found=f"--node {options.node}", fix=f"nodes are 0 to {entry.num_nodes - 1}"
        )
    on_nodes = frozenset(rank for node in nodes for rank in list_ranks(node, entry.local_world_size))
    return on_nodes if ranks is None else ranks & on_nodes


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            what="--grep is no regular expression", found=f"{pattern}: {error}", fix="put a \\ before . * + ? ( ) [ ]"
        ) from None
