"""The closing text of a run that is over, for the verbs that wait for it or are asked for it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.person import shorten
from hpc_multinode.report import render_report

if TYPE_CHECKING:
    from hpc_multinode.life.view import RunView


def print_closing(
    view: RunView, *, wants_json: bool = False, has_shown_logs: bool = False, out: TextIO | None = None
) -> int:
    """Print how a run ended and return its exit code.

    Args:
        view: The run, which is over.
        wants_json: Print ``report.json`` instead.
        has_shown_logs: The reader has just seen the logs.
        out: Where to; None: stdout.
    """
    out = out or sys.stdout
    if view.report is None:
        print(f"{view.state}  {view.entry.run}", file=out)
        return EXIT_FAILED
    if wants_json:
        print(view.report.to_json(), file=out)
    else:
        text = render_report(view.report, duration_s=view.running_s, has_shown_logs=has_shown_logs, shorten=shorten)
        print(text, file=out, flush=True)
    return view.report.exit_code
