"""One self-contained page on a run: nothing is loaded from anywhere, drawings are inline. Pure but for its CSS file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.life import usage
from hpc_multinode.life.ranks import find_hosts
from hpc_multinode.life.svg import draw_curves, draw_starts, draw_timeline
from hpc_multinode.life.table import format_span
from hpc_multinode.report import describe, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hpc_multinode.life.timeline import Attempt, Timeline
    from hpc_multinode.life.view import RunView
    from hpc_multinode.report import Outcome
    from hpc_multinode.slurm.jobs import AccountedJob

_LEGEND = (
    ("queued", "waiting in the queue"), ("joining", "nodes meet"), ("importing", "imports"),
    ("spawning", "workers start"), ("connecting", "process group"), ("running", "the work"), ("stopping", "stopping"),
)  # fmt: skip
_FIRST_STEP = '<span><i class="running"></i>the work, up to its first step</span>'
_MAX_OUTCOMES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """What the page tells.

    Attributes:
        view: The run.
        timeline: What happened when.
        samples: What the agents measured, by node.
        accounting: Slurm's rows of the job and its steps.
        plan: Its ``plan.json``.
        config_text: Its ``config.yaml``.
        now: When the page is made.
        version: Of this package.
    """

    view: RunView
    timeline: Timeline
    samples: Mapping[int, Sequence[tuple[float, dict[str, Any]]]] = field(default_factory=dict)
    accounting: Mapping[str, AccountedJob] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    config_text: str = ""
    now: datetime
    version: str = ""


def render_page(facts: PageFacts) -> str:
    """Compose the page's HTML."""
    css = (Path(__file__).parent / "page.css").read_text()
    view = facts.view
    body = [
        _render_header(facts),
        _render_tiles(facts),
        _render_cause(view),
        _render_timeline(facts),
        _render_starts(facts),
        _render_resources(facts),
        _render_attempts(facts),
        _render_config(facts),
        (
            f"<footer>made {facts.now:%Y-%m-%d %H:%M} by hpc_multinode {escape(facts.version)} from "
            f"<code>{escape(view.entry.run_dir)}</code></footer>"
        ),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(view.state)} {escape(view.entry.run)}</title>\n<style>\n{css}</style></head>\n"
        f"<body><main>\n{''.join(part + chr(10) for part in body if part)}</main></body></html>\n"
    )


def _render_header(facts: PageFacts) -> str:
    view, entry = facts.view, facts.view.entry
    good, bad = ("RUNNING", "COMPLETED"), ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL", "DEADLINE")
    css = "good" if view.state in good else "bad" if view.state in bad else "warn"
    work = facts.plan.get("work") or {}
    strategy = (facts.plan.get("strategy") or {}).get("name")
    file = Path(work["file"]).name if work.get("file") else None
    what = ":".join(str(part) for part in (file, work.get("name")) if part)
    where = f"job {entry.job_id}" if entry.job_id is not None else f"on {entry.host}"
    words = [strategy, what, f"{entry.num_nodes} x {entry.local_world_size} workers", where, _commit(facts),
             f"submitted {datetime.fromisoformat(entry.submitted):%Y-%m-%d %H:%M:%S}"]  # fmt: skip
    sub = " · ".join(escape(str(word)) for word in words if word)
    return (
        f'<header><span class="badge {css}">{escape(view.state)}</span><h1>{escape(entry.run)}</h1>'
        f'<div class="sub">{sub}</div></header>'
    )


def _render_tiles(facts: PageFacts) -> str:
    view, entry = facts.view, facts.view.entry
    last = facts.timeline.attempts[-1] if facts.timeline.attempts else None
    ready = last.phases.get("process_group") if last is not None else None
    tiles = [
        ("ran", format_span(view.running_s)),
        ("waited in the queue", format_span(sum(span.end - span.start for span in facts.timeline.queued))),
        ("until all were ready", format_duration(ready) if ready is not None else "-"),
        ("worker" + "s" * (entry.world_size != 1), str(entry.world_size)),
        ("attempt" + "s" * (len(facts.timeline.attempts) != 1), str(len(facts.timeline.attempts))),
    ]
    if view.report is not None:
        tiles.append(("exit code", str(view.report.exit_code)))
    gpus = facts.plan.get("gpus_per_node")
    if gpus and view.running_s is not None:
        tiles.append(("GPU hours", _format_hours(gpus * entry.num_nodes * view.running_s / 3600)))
    return (
        '<section class="tiles">'
        + "".join(f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles)
        + "</section>"
    )


def _format_hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2g}"  # noqa: PLR2004 - two digits tell enough below


def _render_cause(view: RunView) -> str:
    report = view.report
    if report is None:
        return f'<section class="card">{escape(view.reason)}</section>' if view.reason else ""
    notes = "".join(f'<p class="soft">{escape(note)}</p>' for note in report.notes)
    cause = report.root_cause
    if cause is None:
        reason = f"<p>{escape(view.reason)}</p>" if view.reason else ""
        return f'<section class="card">{reason}{notes}</section>' if reason or notes else ""
    lines = "\n".join(cause.last_lines)
    tail = f"<pre>{escape(lines)}</pre>" if lines else ""
    log = f'<p class="soft">log: <code>{escape(cause.log)}</code></p>' if cause.log else ""
    return (
        f'<section class="card cause"><h2>Root cause</h2><div>{escape(describe(cause))}</div>{tail}{log}'
        f"{_render_consequences(report.consequences)}{notes}</section>"
    )


def _render_consequences(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    stopped = sum(one.is_stopped for one in outcomes)
    items = "".join(
        f"<li>{escape(describe(one))}{', stopped by us' if one.is_stopped else ''}</li>"
        for one in outcomes[:_MAX_OUTCOMES]
    )
    rest = len(outcomes) - _MAX_OUTCOMES
    more = f"<li>and {rest} more</li>" if rest > 0 else ""
    head = f"{len(outcomes)} other worker{'s' * (len(outcomes) != 1)} ended with it, {stopped} stopped by us"
    return f"<details><summary>{head}</summary><ul>{items}{more}</ul></details>"


def _render_timeline(facts: PageFacts) -> str:
    timeline = facts.timeline
    if not timeline.attempts and not timeline.queued:
        return ""
    kinds = {span.kind for row in timeline.rows for span in row.spans} | {span.kind for span in timeline.queued}
    legend = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in _LEGEND if kind in kinds)
    if any(row.marks for row in timeline.rows):
        legend += '<span><i class="mark"></i>failed or lost</span>'
    rows = [row for row in timeline.rows if row.spans]
    return (
        f'<section class="card"><h2>Time line</h2><div class="legend">{legend}</div>'
        f'<div class="scroll">{draw_timeline(timeline, rows)}</div></section>'
    )


def _render_starts(facts: PageFacts) -> str:
    starts = facts.timeline.starts
    if not starts:
        return ""
    shown = {kind for kind, _ in _LEGEND[1:5]}
    has_steps = any("first_step" in phases for phases in starts.values())
    legend = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in _LEGEND if kind in shown)
    number = facts.timeline.attempts[-1].number if facts.timeline.attempts else 0
    return (
        f'<section class="card"><h2>Start of attempt {number}, from each agent\'s own start</h2>'
        f'<div class="legend">{legend}{_FIRST_STEP if has_steps else ""}</div>'
        f'<div class="scroll">{draw_starts(starts, find_hosts(facts.view))}</div></section>'
    )


def _render_resources(facts: PageFacts) -> str:
    rows = usage.compare(facts.view, facts.plan, facts.samples, facts.accounting)
    table = "".join(
        f"<tr><td>{escape(row.name)}</td><td>{escape(row.asked)}</td><td>{escape(row.used)}</td></tr>" for row in rows
    )
    cpus = (facts.plan.get("sbatch") or {}).get("cpus-per-task")
    memory = usage.parse_size(str((facts.plan.get("sbatch") or {}).get("mem") or ""))
    charts: list[tuple[str, Callable[[dict[str, Any]], float | None], str, float | None]] = [
        ("CPUs in use, by node", usage.read_cpus, "", float(cpus) if isinstance(cpus, int) else None),
        ("Memory, by node", usage.read_memory, "GiB", memory / usage.GIB if memory else None),
        ("GPU use, mean of each node", usage.read_gpu_use, "%", None),
        ("GPU memory, fullest of each node", usage.read_gpu_memory, "GiB", None),
    ]
    drawn = ""
    for title, value, unit, limit in charts:
        curves = usage.make_curves(facts.samples, value)
        if curves:
            asked = "; dashed: asked for" if limit else ""
            drawn += f"<h3>{title}{asked}</h3>"
            drawn += draw_curves(curves, end=facts.timeline.end, unit=unit, limit=limit)
    return (
        '<section class="card"><h2>Resources</h2><table><tr><th></th><th>asked for</th><th>used</th></tr>'
        f"{table}</table>{drawn}</section>"
    )


def _render_attempts(facts: PageFacts) -> str:
    attempts = facts.timeline.attempts
    if len(attempts) < 2:  # noqa: PLR2004 - one is no list
        return ""
    rows = "".join(
        f"<tr><td>{one.number}</td><td>{escape(format_span(_find_waited(facts.timeline, one)))}</td>"
        f"<td>{escape(format_span(one.end - one.start))}</td><td>{'-' if one.step is None else one.step}</td>"
        f"<td>{escape(one.ended_by.replace('_', ' ') or 'goes on')}</td><td>{escape(one.cause)}</td>"
        f"<td>{escape(', '.join(one.nodes[:8]))}{' ...' if len(one.nodes) > 8 else ''}</td></tr>"  # noqa: PLR2004
        for one in attempts
    )
    return (
        '<section class="card"><h2>Attempts</h2><table><tr><th>attempt</th><th>waited</th>'
        "<th>ran</th><th>saved step</th><th>ended by</th>"
        f"<th>cause</th><th>nodes</th></tr>{rows}</table></section>"
    )


def _find_waited(timeline: Timeline, attempt: Attempt) -> float:
    return sum(span.end - span.start for span in timeline.queued if span.end == attempt.start)


def _render_config(facts: PageFacts) -> str:
    if not facts.config_text:
        return ""
    commit = f'<p class="soft">commit <code>{escape(_commit(facts))}</code></p>' if _commit(facts) else ""
    return (
        f'<section class="card"><details><summary>Configuration</summary>{commit}'
        f"<pre>{escape(facts.config_text)}</pre></details></section>"
    )


def _commit(facts: PageFacts) -> str:
    return (facts.view.entry.commit or "")[:12]
