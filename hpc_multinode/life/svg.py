"""Drawings of the report's page: time lines and curves as inline SVG, coloured by the page's own style sheet. Pure."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.life.timeline import Row, Span, Timeline

WIDTH = 1060
_LEFT = 150
_RIGHT = 16
_AXIS = 26
# Height of a row by how many there are: few rows are easy to read, many still fit.
_HEIGHTS = ((16, 22), (64, 15), (160, 9), (100_000, 5))
_MAX_LABELS = 64
# Rows below this height have small letters.
_SMALL = 10
_NICE = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14_400,
    21_600,
    43_200,
    86_400,
    604_800,
)
# Ends that are nobody's fault.
_MILD = ("requeue", "preempted", "time_limit", "cancelled", "restart")
_EASY = (1, 2, 3, 4, 5, 6, 8)
_TICKS = 8
_MAX_POINTS = 800
# A pause of so many usual steps, and at least so many seconds, interrupts a curve.
_GAPS = 4
_LEAST_GAP_S = 45.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart.

    Attributes:
        name: For the tooltip.
        points: Seconds and value.
        css: Its class.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    css: str = "curve"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    start: float
    end: float

    def x(self, seconds: float) -> float:
        span = max(self.end - self.start, 1e-9)
        return _LEFT + (min(max(seconds, self.start), self.end) - self.start) / span * (WIDTH - _LEFT - _RIGHT)


def draw_timeline(timeline: Timeline, rows: Sequence[Row]) -> str:
    """Draw the whole run: a lane for the job, and one for each rank or node."""
    scale = _Scale(start=0.0, end=max(timeline.end, 0.001))
    height = next(size for count, size in _HEIGHTS if len(rows) <= count)
    top, gap = 44, 10
    total = top + gap + len(rows) * height + _AXIS
    parts = [_open(total, "time line of the run"), _draw_axis(scale, top=top - 8, bottom=total - _AXIS)]
    parts.append(_label("job", 22, "lane"))
    parts += [_draw_span(scale, span, y=12, height=16, title=f"waiting in the queue, {_span_text(span)}")
              for span in timeline.queued]  # fmt: skip
    for attempt in timeline.attempts:
        title = f"attempt {attempt.number}: {attempt.ended_by or 'goes on'} {attempt.cause}".strip()
        x, end = scale.x(attempt.start), scale.x(attempt.end)
        kind = "good" if attempt.ended_by in ("success", "") else "warn" if attempt.ended_by in _MILD else "bad"
        parts.append(f'<g><title>{escape(title)}</title><rect class="attempt {kind}" x="{x:.1f}" y="12" '
                     f'width="{max(end - x, 2):.1f}" height="16" rx="3"/>')  # fmt: skip
        if end - x > 24:  # noqa: PLR2004 - room for the text
            text = f"attempt {attempt.number}" if end - x > 80 else str(attempt.number)  # noqa: PLR2004
            parts.append(f'<text class="on" x="{(x + end) / 2:.1f}" y="24" text-anchor="middle">{text}</text>')
        parts.append("</g>")
    every = math.ceil(len(rows) / _MAX_LABELS)
    for index, row in enumerate(rows):
        y = top + gap + index * height
        if index % every == 0:
            parts.append(_label(row.name, y + height / 2, "row" if height > _SMALL else "row small"))
        bar = _bar(height)
        parts += [_draw_span(scale, span, y=y, height=bar, title=f"{row.name}: {span.kind}, {_span_text(span)}")
                  for span in row.spans]  # fmt: skip
        for mark in row.marks:
            x, middle, size = scale.x(mark.time), y + bar / 2, min(max(bar / 2 + 1, 4), 7)
            shape = f"M{x - size:.1f} {middle}L{x:.1f} {middle - size}L{x + size:.1f} {middle}L{x:.1f} {middle + size}Z"
            title = f"{row.name} {mark.kind} after {format_seconds(mark.time)}: {mark.text}"
            parts.append(f'<path class="mark" d="{shape}"><title>{escape(title)}</title></path>')
    return "".join([*parts, "</svg>"])


def draw_starts(starts: dict[int, dict[str, float]], names: dict[int, str]) -> str:
    """Draw how long each node took to each phase of the last attempt's start."""
    kinds = {"joined": "joining", "preloaded": "importing", "spawned": "spawning", "process_group": "connecting",
             "first_step": "running"}  # fmt: skip
    nodes = sorted(starts)
    end = max((seconds for phases in starts.values() for seconds in phases.values()), default=0.0)
    scale = _Scale(start=0.0, end=max(end, 0.01))
    height = next(size for count, size in _HEIGHTS if len(nodes) <= count)
    total = 14 + len(nodes) * height + _AXIS
    parts = [_open(total, "start of the last attempt"), _draw_axis(scale, top=6, bottom=total - _AXIS)]
    every = math.ceil(len(nodes) / _MAX_LABELS)
    for index, node in enumerate(nodes):
        y, before = 10 + index * height, 0.0
        name = f"node {node} {names.get(node, '')}".strip()
        if index % every == 0:
            parts.append(_label(name, y + height / 2, "row" if height > _SMALL else "row small"))
        for phase, seconds in sorted(starts[node].items(), key=lambda item: item[1]):
            x, stop = scale.x(before), scale.x(seconds)
            title = f"{name}: {phase.replace('_', ' ')} after {seconds:.2f} s"
            css = kinds.get(phase, "spawning")
            parts.append(_rect(css, x, stop, y=y, height=_bar(height), title=title))
            before = max(before, seconds)
    return "".join([*parts, "</svg>"])


def draw_curves(curves: Sequence[Curve], *, end: float, unit: str, limit: float | None = None) -> str:
    """Draw curves over the time of the run.

    Args:
        curves: At least one with a point.
        end: Where the time ends, in seconds.
        unit: Of the values.
        limit: What was asked for, as a line; None: none.
    """
    height = 150
    top = max([value for curve in curves for _, value in curve.points] + ([limit] if limit else []), default=0.0)
    top = 100.0 if unit == "%" else _round_up(top * 1.05)
    scale = _Scale(start=0.0, end=max(end, 0.001))
    bottom = height - _AXIS

    def y(value: float) -> float:
        return bottom - value / top * (bottom - 10)

    parts = [_open(height, unit), _draw_axis(scale, top=10, bottom=bottom)]
    parts += [_level(value, y(value), unit) for value in (0.0, top / 2, top)]
    if limit:
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(limit):.1f}" y2="{y(limit):.1f}">'
                     f"<title>asked for: {limit:g} {escape(unit)}</title></line>")  # fmt: skip
    for curve in curves:
        title = f"<title>{escape(curve.name)}</title>"
        for piece in _split(_thin(curve.points)):
            points = [f"{scale.x(seconds):.1f},{y(value):.1f}" for seconds, value in piece]
            if len(points) == 1:
                x, _, level = points[0].partition(",")
                parts.append(f'<circle class="{curve.css}" cx="{x}" cy="{level}" r="3">{title}</circle>')
            else:
                parts.append(f'<polyline class="{curve.css}" points="{" ".join(points)}">{title}</polyline>')
    return "".join([*parts, "</svg>"])


def format_seconds(seconds: float) -> str:
    """Write a time on an axis: ``0.5 s``, ``12 s``, ``3:20``, ``1:02:00``, ``2d 03:00``."""
    if seconds < _MINUTE:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}:{whole % _MINUTE:02d}"
    if whole < _DAY:
        return f"{whole // _HOUR}:{whole % _HOUR // _MINUTE:02d}:{whole % _MINUTE:02d}"
    return f"{whole // _DAY}d {whole % _DAY // _HOUR:02d}:{whole % _HOUR // _MINUTE:02d}"


def _open(height: float, name: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(name, quote=True)}">'


def _label(text: str, y: float, css: str) -> str:
    return f'<text class="{css}" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'


def _draw_span(scale: _Scale, span: Span, *, y: float, height: float, title: str) -> str:
    return _rect(span.kind, scale.x(span.start), scale.x(span.end), y=y, height=height, title=title)


def _rect(css: str, x: float, end: float, *, y: float, height: float, title: str) -> str:
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y}" width="{max(end - x, 0.7):.1f}" height="{height}" rx="1.5">'
        f"<title>{escape(title)}</title></rect>"
    )


def _level(value: float, y: float, unit: str) -> str:
    """Draw a horizontal line of the grid with its value."""
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g} {escape(unit)}</text>'
    )


def _draw_axis(scale: _Scale, *, top: float, bottom: float) -> str:
    span = scale.end - scale.start
    step = next((nice for nice in _NICE if span / nice <= _TICKS), span / _TICKS)
    if span < _TICKS / 2:
        step = _round_up(span / _TICKS)
    parts = []
    for index in range(int(span / step + 1e-6) + 1):
        x = scale.x(scale.start + index * step)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
                     f'<text class="axis" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">'
                     f"{format_seconds(index * step)}</text>")  # fmt: skip
    return "".join(parts)


def _thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Leave out what no screen shows."""
    return points[:: max(1, len(points) // _MAX_POINTS)]


def _split(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Cut a curve where nothing was measured for long: between two attempts there is no line."""
    steps = sorted(after[0] - before[0] for before, after in itertools.pairwise(points))
    usual = steps[len(steps) // 2] if steps else 0.0
    pieces: list[list[tuple[float, float]]] = []
    for point in points:
        if pieces and point[0] - pieces[-1][-1][0] <= max(_GAPS * usual, _LEAST_GAP_S):
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return pieces


def _bar(height: int) -> int:
    """Return how much of a row is filled: many rows stand close."""
    return max(height - (4 if height > _SMALL else 1), 3)


def _span_text(span: Span) -> str:
    return f"{format_seconds(span.start)} to {format_seconds(span.end)}"


def _round_up(value: float) -> float:
    """Return a number that is easy to halve, not below the value."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((nice * power for nice in _EASY if nice * power >= value * 0.999), 10 * power)
