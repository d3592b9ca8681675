"""``cancel``: end runs, wherever they are, and wait until they are gone."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from hpc_multinode.cli.options import RUN_HELP, Parser
from hpc_multinode.errors import EXIT_FAILED, ConfigError
from hpc_multinode.life.cancelling import ask_to_end, wait_until_gone
from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.detaching import detachable
from hpc_multinode.life.finding import find_runs
from hpc_multinode.life.looking import look_at_all
from hpc_multinode.life.waiting import Teller, describe_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.life.view import RunView


def make_parser() -> Parser:
    """Return the parser of this verb's words."""
    parser = Parser(
        "cancel", "End runs, wherever they are, and wait until they are gone. A name or an array means all its runs.",
        has_run=False,
    )  # fmt: skip
    parser.add_argument("runs", nargs="*", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask before more than one run is ended")
    return parser


def run(line: CommandLine) -> int:
    """Cancel and return 0, or 1 where a person said no."""
    options = make_parser().parse_args(line.words)
    found = [find_runs(word) for word in options.runs or [None]]
    entries = {entry.run_dir: entry for some in found for entry in some}
    named = {some[0].run_dir for some in found if len(some) == 1}
    views = look_at_all(list(entries.values()))
    active = [view for view in views if not view.is_over]
    if len(active) > 1 and not options.yes and not _is_confirmed(active):
        print("nothing was cancelled", file=sys.stderr)  # noqa: T201
        return EXIT_FAILED
    for view in active:  # all at once, and then wait for each
        ask_to_end(view.entry)
    ended = [view if view.is_over else _wait_until_gone(view) for view in views]
    if options.json:
        print(json.dumps([view.to_json() for view in ended]))  # noqa: T201
        return 0
    for before, after in zip(views, ended, strict=True):
        if before.is_over:
            if active and before.entry.run_dir not in named:
                continue  # an old run that only has the name of the one that was meant
            print(f"{describe_view(before)}: it was over before")  # noqa: T201
        else:
            print_closing(after)
    return 0


def _wait_until_gone(view: RunView) -> RunView:
    with detachable(view.entry):
        return wait_until_gone(view.entry, tell=Teller())


def _is_confirmed(views: Sequence[RunView]) -> bool:
    """Ask the person.

    Raises:
        ConfigError: Nobody is there to answer.
    """
    for view in views:
        print(f"{view.entry.run}  {view.entry.job_id or '-'}  {view.state}", file=sys.stderr)  # noqa: T201
    if not sys.stdin.isatty():
        raise ConfigError(
            what="more than one run would be ended",
            found=f"{len(views)} runs, and no terminal to ask at",
            fix="--yes ends them all; or name one run",
        )
    print(f"End these {len(views)} runs? [y/N] ", end="", file=sys.stderr, flush=True)  # noqa: T201
    return sys.stdin.readline().strip().lower() in ("y", "yes")
