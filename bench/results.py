"""What a run of the bench has found: a file below ``bench/results``, its comparison with the one before, its table."""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.figures import RATIO, Figure, render_number, render_target

if TYPE_CHECKING:
    from collections.abc import Mapping

RESULTS = Path(__file__).with_name("results")
_BEGIN, _END = "<!-- figures -->", "<!-- end of figures -->"


@dataclass(slots=True, kw_only=True)
class PartResult:
    """One part's figures.

    Attributes:
        figures: In the order of printing.
        commands: Each contestant's full command, by its name.
        failures: What could not be measured, and why.
        notes: What was seen and is no number.
        seconds: How long the part took.
        repeats: Rounds that were asked for.
    """

    figures: list[Figure] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    repeats: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        plain = {name: getattr(self, name) for name in ("repeats", "seconds", "commands", "failures", "notes")}
        return {**plain, "figures": [figure.to_json() for figure in self.figures]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> PartResult:
        """Read back what ``to_json`` made."""
        return cls(**{**data, "figures": [Figure.from_json(figure) for figure in data["figures"]]})


def describe_machine() -> dict[str, Any]:
    """Return what the figures depend on: machine, versions, commit."""
    from importlib.metadata import version  # noqa: PLC0415 - one place

    git = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    packages = ("torch", "lightning", "submitit", "hydra-core")
    return {
        "cpus": psutil.cpu_count(),
        "cpu": _find_cpu_name(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() or None,
        # Others at work on the machine make figures worse; this is what was there before the first of ours.
        "load_before": round(psutil.getloadavg()[0], 2),
    }


def _find_cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write_results(parts: Mapping[str, PartResult], machine: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write a run's figures into a new file, named by the time so that the newest is the last.

    Args:
        parts: By name.
        machine: From ``describe_machine``.
        folder: Where results lie.
    """
    folder.mkdir(exist_ok=True)
    now = datetime.now(timezone.utc)
    path = folder / f"{now:%Y%m%d-%H%M%S}.json"
    lines = [
        '{"taken": ' + json.dumps(now.isoformat(timespec="seconds")),
        '"machine": ' + json.dumps(machine),
        '"parts": {' + ",\n".join(f"{json.dumps(name)}: {_dump_part(part)}" for name, part in parts.items()) + "}}",
    ]
    path.write_text(",\n".join(lines) + "\n")
    return path


def _dump_part(part: PartResult) -> str:
    """Write a part with one line for each figure, so that a difference of two files is read with ease."""
    data = part.to_json()
    figures = ",\n".join(json.dumps(figure) for figure in data.pop("figures"))
    return json.dumps(data)[:-1] + ', "figures": [\n' + figures + "\n]}"


def find_results(folder: Path = RESULTS) -> list[Path]:
    """Return all results, the newest last."""
    return sorted(folder.glob("*.json"))


def read_parts(path: Path) -> dict[str, PartResult]:
    """Read the parts of a file of results."""
    parts = json.loads(path.read_text())["parts"]
    return {name: PartResult.from_json(part) for name, part in parts.items()}


def compare(before: Mapping[str, PartResult], now: Mapping[str, PartResult]) -> list[str]:
    """Compare the ratios of two results; seconds are not compared, for two runs are never alike.

    A ratio has changed where the two spreads do not touch.

    Args:
        before: The older parts.
        now: The newer ones.
    """
    lines = []
    for name in now:
        old = {figure.what: figure for figure in before[name].figures} if name in before else {}
        for figure in now[name].figures:
            if figure.unit != RATIO:
                continue
            lines.append(f"{name}: {figure.what}: {_compare_one(old.get(figure.what), figure)}")
        gone = [what for what, figure in old.items() if figure.unit == RATIO] if name in before else []
        there = {figure.what for figure in now[name].figures}
        lines += [f"{name}: {what}: no longer measured" for what in gone if what not in there]
    return lines


def _compare_one(old: Figure | None, new: Figure) -> str:
    now = f"{render_number(new.median)}{render_target(new)}"
    if old is None:
        return f"new, {now}"
    is_apart = min(new.values) > max(old.values) or max(new.values) < min(old.values)
    change = f"{'CHANGED' if is_apart else 'same'} {100 * (new.median / old.median - 1):+.0f} %"
    return f"{render_number(old.median)} -> {now}; {change}"


def render_table(path: Path, *, has_all: bool = False) -> str:
    """Render a file of results as a Markdown table, with machine and date.

    Args:
        path: The file.
        has_all: Every figure, not only those that the README shows.
    """
    data = json.loads(path.read_text())
    machine = data["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    taken = (
        f"Taken {data['taken'][:10]} at {machine['commit']} on {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['memory_gb']} GB, Python {machine['python']}, {versions}."
    )
    lines = [
        taken,
        "",
        "| figure | median | least to most | rounds | target |",
        "|---|---|---|---|---|",
    ]
    for name, part in read_parts(path).items():
        shown = [figure for figure in part.figures if has_all or figure.in_table]
        lines += [_render_row(name, figure) for figure in shown]
    failures = [f"{name}: {text}" for name, part in read_parts(path).items() for text in part.failures]
    if failures:
        lines += ["", "Not measured:", "", *(f"- {failure.splitlines()[0]}" for failure in failures)]
    return "\n".join(lines) + "\n"


def replace_table(document: Path, table: str) -> None:
    """Put a table between the two marks of a document.

    Args:
        document: The file, which has the marks ``<!-- figures -->`` and ``<!-- end of figures -->``.
        table: From ``render_table``.
    """
    before, begin, rest = document.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{document} lacks the marks {_BEGIN} and {_END}")
    document.write_text(f"{before}{begin}\n{table}{end}{after}")


def _render_row(part: str, figure: Figure) -> str:
    unit = "" if figure.unit == RATIO else f" {figure.unit}"
    spread = f"{render_number(min(figure.values))} to {render_number(max(figure.values))}"
    target = render_target(figure).removeprefix("; target ")
    return (
        f"| {part}: {figure.what} | {render_number(figure.median)}{unit} | {spread} | {len(figure.values)} | {target} |"
    )
