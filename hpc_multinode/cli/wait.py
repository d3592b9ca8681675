"""``wait``: until a run is over for good, and end with its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.cli.options import Parser
from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.detaching import detachable
from hpc_multinode.life.finding import find_run
from hpc_multinode.life.waiting import Teller, wait_for_end

if TYPE_CHECKING:
    from hpc_multinode.cli.command_line import CommandLine


def make_parser() -> Parser:
    """Return the parser of this verb's words."""
    return Parser("wait", "Wait until a run is over, through all its attempts, and end with its exit code.")


def run(line: CommandLine) -> int:
    """Wait and return the run's exit code; Ctrl-C leaves the run alone."""
    options = make_parser().parse_args(line.words)
    entry = find_run(options.run)
    with detachable(entry):
        view = wait_for_end(entry, tell=Teller())
    return print_closing(view, wants_json=options.json)
