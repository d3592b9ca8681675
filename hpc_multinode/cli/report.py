"""``report``: the closing text of a run again, or a page on it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode import __version__
from hpc_multinode.cli.options import Parser, read_now
from hpc_multinode.errors import ConfigError
from hpc_multinode.life.closing import print_closing
from hpc_multinode.life.files import read_text
from hpc_multinode.life.finding import find_run
from hpc_multinode.life.looking import look_at, settle_later_word
from hpc_multinode.life.queue import Queue
from hpc_multinode.life.waiting import describe_view

if TYPE_CHECKING:
    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.life.view import RunView


def make_parser() -> Parser:
    """Return the parser of this verb's words."""
    parser = Parser("report", "Print how a run ended, as it was said when it did.")
    parser.add_argument("--html", metavar="FILE", help="write a page with a time line instead, complete in one file")
    return parser


def run(line: CommandLine) -> int:
    """Print the closing text, or write the page, and return 0, also for a run that failed."""
    options = make_parser().parse_args(line.words)
    queue = Queue()
    view = settle_later_word(look_at(find_run(options.run), queue=queue), queue=queue)
    if options.html is not None:
        _write_page(view, Path(options.html), queue=queue)
    elif view.report is not None:
        print_closing(view, wants_json=options.json)
    elif options.json:
        print(json.dumps(view.to_json()))  # noqa: T201
    else:
        print(f"{describe_view(view)}: there is no report yet")  # noqa: T201
    return 0


def _write_page(view: RunView, path: Path, *, queue: Queue) -> None:
    """Write the page all at once.

    Raises:
        ConfigError: The file cannot be written.
    """
    from hpc_multinode.life.page import PageFacts, render_page  # noqa: PLC0415 - only for this
    from hpc_multinode.life.timeline import read_samples, read_timeline  # noqa: PLC0415

    now, entry = read_now(), view.entry
    job_ids = [entry.job_id] if entry.job_id is not None else []
    accounting = queue.read_accounting(job_ids, cluster=entry.named_cluster) if job_ids else {}
    facts = PageFacts(
        view=view,
        timeline=read_timeline(view, now=now),
        samples=read_samples(view),
        accounting=accounting,
        plan=_read_plan(entry.path),
        config_text=read_text(entry.path / "config.yaml"),
        now=now,
        version=__version__,
    )
    if not path.name or path.is_dir():
        raise ConfigError(what="--html takes a file", found=f"--html {path}", fix="--html page.html")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(render_page(facts), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(
            what="the page cannot be written", found=f"{path}: {error.strerror}", fix="--html FILE in a folder of yours"
        ) from None
    print(f"{path}")  # noqa: T201


def _read_plan(run_dir: Path) -> dict[str, Any]:
    try:
        plan = json.loads(read_text(run_dir / "plan.json") or "{}")
    except ValueError:  # damaged: the page then tells less
        return {}
    return plan if isinstance(plan, dict) else {}
