"""``status``: how one run stands, once or for as long as it goes on."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from hpc_multinode.cli.options import Parser
from hpc_multinode.errors import ConfigError
from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.detaching import detachable
from hpc_multinode.life.finding import find_run
from hpc_multinode.life.looking import Watcher, look_at, make_pause, settle_later_word
from hpc_multinode.life.queue import Queue
from hpc_multinode.life.ranks import read_ranks
from hpc_multinode.life.status import render_status
from hpc_multinode.life.table import find_width, wants_colour
from hpc_multinode.life.waiting import Teller, wait_for_end

if TYPE_CHECKING:
    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.life.view import RunView
    from hpc_multinode.registry import Entry

_REFRESH_S = 2.0


def make_parser() -> Parser:
    """Return the parser of this verb's words."""
    parser = Parser("status", "Show how a run stands: state, ranks, attempts, paths.")
    parser.add_argument("--watch", "-w", action="store_true", help="go on until the run is over")
    return parser


def run(line: CommandLine) -> int:
    """Show the run and return 0; with --watch its exit code."""
    options = make_parser().parse_args(line.words)
    entry = find_run(options.run)
    if options.watch and options.json:
        raise ConfigError(what="--watch is for people", found="--watch --json", fix="wait RUN, then status --json RUN")
    if options.watch:
        with detachable(entry):
            return print_closing(_watch(entry))
    queue = Queue()
    view = settle_later_word(look_at(entry, queue=queue), queue=queue)
    if options.json:
        print(json.dumps({**view.to_json(), "ranks": [rank.to_json() for rank in read_ranks(view)]}))  # noqa: T201
        return 0
    print(_render(view))  # noqa: T201
    if entry.mode == "slurm" and view.is_over and queue.lacks_accounting:
        print("note: this cluster keeps no accounting; this is from the run folder and the queue", file=sys.stderr)  # noqa: T201
    return 0


def _render(view: RunView) -> str:
    return render_status(view, is_coloured=wants_colour(sys.stdout), width=find_width(sys.stdout))


def _watch(entry: Entry) -> RunView:
    """Show the page anew every two seconds until the run is over; where there is no terminal, each change of state."""
    if not sys.stdout.isatty():
        return wait_for_end(entry, tell=Teller(lambda text: print(text, flush=True)))  # noqa: T201
    from rich.console import Console  # noqa: PLC0415 - 100 ms, only for this view
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    watcher = Watcher(entry)
    with Live(console=Console(), auto_refresh=False, transient=True) as live:
        while True:
            began = time.monotonic()
            view = watcher.look()
            live.update(Text.from_ansi(_render(view)), refresh=True)
            if watcher.is_end(view):
                return view
            time.sleep(make_pause(time.monotonic() - began, _REFRESH_S))
