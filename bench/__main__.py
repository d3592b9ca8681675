"""Take figures, part by part: ``python -m bench [PART ...]``."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import render_figure
from bench.lab import PROJECT, Lab
from bench.results import (
    compare,
    describe_machine,
    find_results,
    read_parts,
    render_table,
    replace_table,
    write_results,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.results import PartResult

_README = PROJECT / "README.md"
# Part to what it answers; each is a module with ``measure(lab)``.
PARTS = {
    "start": "how long until the first all-reduce, beside torchrun, srun, submitit and Lightning",
    "files": "what a node reads while it starts: what a shared file system would feel",
    "login": "what a person waits for at the prompt, beside torchrun, fabric and hydra-submitit-launcher",
    "stop": "how long after a worker's death the job is over, and what it says, beside torchrun and srun",
    "coordinator": "how joining, failing and memory grow to 4,000 agents",
    "growth": "how plans, node lists, sweeps and logs grow",
    "running": "what the launcher costs while the work runs",
    "soak": "a run that is interrupted again and again, beside one that is not; only where it is asked for",
}
# Without words all but the one that takes as long as all others together.
DEFAULT = tuple(name for name in PARTS if name != "soak")


def main(argv: Sequence[str]) -> int:
    """Run what is asked for and return the exit code: 1 where a part broke or something could not be measured."""
    options = _parse(argv)
    if options.compare is not None:
        return _compare(options.compare)
    if options.readme:
        replace_table(_README, render_table(_find(options.table or "")))
        return 0
    if options.table is not None:
        print(render_table(_find(options.table), has_all=options.all), end="")
        return 0
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        sys.exit(f"no part {unknown[0]}; there are {', '.join(PARTS)}")
    # So that what has been measured is written, and the cluster taken down, also where something else ends the bench.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    machine = describe_machine()
    parts: dict[str, PartResult] = {}
    try:
        for name in options.parts or DEFAULT:
            parts[name] = run_part(name, repeats=options.repeats)
    finally:
        if parts:
            print(f"written: {write_results(parts, machine)}")
    return int(any(part.failures for part in parts.values()))


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    listed = "\n".join(f"  {name:12} {text}" for name, text in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"{__doc__}\n\nparts:\n{listed}",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="which parts (default: all but soak)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="rounds of each part (default: 5)")
    parser.add_argument(
        "--compare", nargs="*", metavar="FILE", help="compare the ratios of two results (default: the two newest)"
    )
    parser.add_argument(
        "--table", nargs="?", const="", metavar="FILE", help="print a result (default: the newest) as Markdown"
    )
    parser.add_argument("--readme", action="store_true", help="put that table into the README")
    parser.add_argument("--all", action="store_true", help="with --table: every figure")
    return parser.parse_args(argv)


def run_part(name: str, *, repeats: int) -> PartResult:
    """Take one part's figures; what breaks it is kept and told, and the other parts go on."""
    print(f"{name}: {PARTS[name]}", flush=True)
    began = time.monotonic()
    lab = Lab(repeats=repeats)
    lab.result.repeats = repeats
    try:
        importlib.import_module(f"bench.{name}").measure(lab)
    except Exception as error:  # noqa: BLE001 - the other parts are worth having
        traceback.print_exc()
        lab.fail("the part", error)
    finally:
        lab.close()
        lab.result.seconds = round(time.monotonic() - began, 1)
    for figure in lab.result.figures:
        print(f"  {render_figure(figure)}")
    for note in lab.result.notes:
        print(f"  {note}")
    print(f"  {name} took {lab.result.seconds:.0f} s", flush=True)
    return lab.result


def _find(given: str) -> Path:
    if given:
        return Path(given)
    found = find_results()
    return found[-1] if found else sys.exit("no results yet: python -m bench")


def _compare(given: Sequence[str]) -> int:
    files = [Path(path) for path in given] or find_results()[-2:]
    if len(files) != 2:  # noqa: PLR2004 - the older and the newer
        sys.exit(f"two results are needed, there are {len(files)}: python -m bench")
    print(f"{files[0]} -> {files[1]}")
    print("\n".join(compare(read_parts(files[0]), read_parts(files[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
