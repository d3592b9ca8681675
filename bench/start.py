"""From an agent's start to the first all-reduce of its workers, beside what one ``import torch`` takes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZES = (2, 16)
_WORK = Path(__file__).with_name("work.py")


def measure(*, repeats: int = 5) -> Iterator[dict[str, Any]]:
    """Yield a line of figures for each number of workers and start method."""
    cases = [(size, "forkserver") for size in _SIZES] + [(2, "spawn")]
    imports: list[float] = []
    runs: dict[tuple[int, str], list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(repeats):
        imports.append(_time_import())
        for case in cases:
            runs[case].append(_run(*case))
    yield {"what": "python -c 'import torch'", "seconds": _spread(imports)}
    for (size, method), figures in runs.items():
        ratios = [figure["seconds"] / base for figure, base in zip(figures, imports, strict=True)]
        yield {
            "what": f"{size} workers, {method}",
            "to import torch": _spread(ratios),
            **{name: _spread([figure[name] for figure in figures]) for name in figures[0]},
        }
    first, last = (statistics.median(one["seconds"] for one in runs[size, "forkserver"]) for size in _SIZES)
    yield {"what": f"growth from {_SIZES[0]} to {_SIZES[1]} workers", "ratio": f"{last / first:.2f}"}


def _time_import() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - began


def _run(size: int, method: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "cluster=local",
            "strategy=pytorch_spawn",
            f"work.target={_WORK}:reduce_once",
            f"resources.workers_per_node={size}",
            f"launch.start_method={method}",
            f"run_root={folder}",
        ]
        command = [sys.executable, "-m", "hpc_multinode", *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    told = [json.loads(line.partition("] ")[2]) for line in done.stdout.splitlines() if "] {" in line]
    return {name: max(one[name] for one in told) for name in told[0]}


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
