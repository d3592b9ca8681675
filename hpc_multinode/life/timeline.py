"""What happened in a run and when, for each rank or node: from events, reports and samples. Reads files alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hpc_multinode.context import find_node
from hpc_multinode.layout import find_node_files, name_attempt
from hpc_multinode.life.files import read_events, read_lines, read_start_time
from hpc_multinode.life.ranks import find_hosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpc_multinode.life.view import RunView

# With more ranks than this a row is a node.
MAX_RANK_ROWS = 64
# What a node does after each phase, until the next.
_AFTER = {
    "joined": "importing",
    "preloaded": "spawning",
    "spawned": "connecting",
    "process_group": "running",
    "first_step": "running",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that lasted.

    Attributes:
        kind: ``queued``, ``joining``, ``importing``, ``spawning``, ``connecting``, ``running``, ``stopping``.
        start: Seconds since submission.
        end: Seconds since submission.
    """

    kind: str
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at once.

    Attributes:
        kind: ``failed``, ``lost`` or ``stranger``.
        time: Seconds since submission.
        text: What happened.
    """

    kind: str
    time: float
    text: str


@dataclass(slots=True, kw_only=True)
class Row:
    """A rank or a node.

    Attributes:
        name: For people.
        node_rank: Its node.
        global_rank: Its rank; None for a node.
        spans: What it did, in order.
        marks: What befell it.
    """

    name: str
    node_rank: int
    global_rank: int | None
    spans: list[Span] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt.

    Attributes:
        number: From 0.
        start: Seconds since submission.
        end: Seconds since submission; now where it goes on.
        ended_by: As in ``report.json``; empty where it goes on.
        cause: What its failure was, or empty.
        nodes: Names of its nodes.
        step: The furthest step that the work has saved, or None.
        phases: Seconds from the start of the slowest node's agent to each phase.
    """

    number: int
    start: float
    end: float
    ended_by: str
    cause: str
    nodes: tuple[str, ...]
    step: int | None
    phases: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run in time.

    Attributes:
        end: When it ended, or now. Seconds since submission.
        attempts: What attempts there were.
        queued: When it waited.
        rows: Ranks or nodes.
        starts: For each node of the last attempt the seconds from its agent's start to each phase.
    """

    end: float
    attempts: tuple[Attempt, ...]
    queued: tuple[Span, ...]
    rows: tuple[Row, ...]
    starts: dict[int, dict[str, float]]


def read_timeline(view: RunView, *, now: datetime) -> Timeline:
    """Put together what is known of a run in time."""
    origin = datetime.fromisoformat(view.entry.submitted)
    end = ((view.ended if view.is_over and view.ended is not None else now) - origin).total_seconds()
    rows = _make_rows(view)
    attempts: list[Attempt] = []
    starts: dict[int, dict[str, float]] = {}
    for number in view.files.attempts:
        events = [event for event in read_events(view.entry.path, number) if _seconds(event, origin) is not None]
        attempt = _read_attempt(view, number, events, origin=origin, end=end)
        if attempt is None:
            continue
        attempts.append(attempt)
        starts = _read_starts(events) or starts
        _fill_rows(rows, events, attempt, origin=origin)
    return Timeline(
        end=max([end, *(attempt.end for attempt in attempts)]),
        attempts=tuple(attempts),
        queued=_find_queued(attempts, end=end),
        rows=tuple(rows),
        starts=starts,
    )


def read_samples(view: RunView) -> dict[int, list[tuple[float, dict[str, Any]]]]:
    """Return what each node's agent measured, by node rank: seconds since submission and the values."""
    origin = datetime.fromisoformat(view.entry.submitted)
    found: dict[int, list[tuple[float, dict[str, Any]]]] = {}
    for number in view.files.attempts:
        for node, path in find_node_files(name_attempt(view.entry.path, number), "samples").items():
            for item in read_lines(path):
                time = _seconds(item, origin)
                if time is not None:
                    found.setdefault(node, []).append((time, item))
    return found


def _make_rows(view: RunView) -> list[Row]:
    entry, hosts = view.entry, find_hosts(view)
    if entry.world_size > MAX_RANK_ROWS:
        return [
            Row(name=f"node {node} {hosts.get(node, '')}".strip(), node_rank=node, global_rank=None)
            for node in range(entry.num_nodes)
        ]
    return [
        Row(name=f"rank {rank}", node_rank=find_node(rank, entry.local_world_size), global_rank=rank)
        for rank in range(entry.world_size)
    ]


def _read_attempt(
    view: RunView, number: int, events: Sequence[dict[str, Any]], *, origin: datetime, end: float
) -> Attempt | None:
    record: dict[str, Any] = next((one for one in view.attempts if one.get("attempt") == number), {})
    times = [time for event in events if (time := _seconds(event, origin)) is not None]
    started = _parse(record.get("started")) or read_start_time(view.entry.path, number)
    start = (started - origin).total_seconds() if started is not None else min(times, default=None)
    if start is None:
        return None
    ended = _parse(record.get("ended"))
    is_last = number == view.files.attempt
    last = (ended - origin).total_seconds() if ended is not None else end if is_last else max(times, default=start)
    phases: dict[str, float] = {}
    for seconds in _read_starts(events).values():
        for name, value in seconds.items():
            phases[name] = max(value, phases.get(name, 0.0))
    return Attempt(
        number=number,
        start=start,
        end=max(start, last),
        ended_by=str(record.get("ended_by") or ""),
        cause=str(record.get("cause") or ""),
        nodes=tuple(record.get("nodes") or ()),
        step=record.get("step"),
        phases=phases or dict(record.get("phases") or {}),
    )


def _read_starts(events: Iterable[dict[str, Any]]) -> dict[int, dict[str, float]]:
    starts: dict[int, dict[str, float]] = {}
    for event in events:
        if event.get("kind") == "phase" and isinstance(event.get("seconds"), (int, float)):
            starts.setdefault(int(event.get("node_rank", 0)), {})[str(event.get("name"))] = float(event["seconds"])
    return starts


def _fill_rows(rows: Sequence[Row], events: Sequence[dict[str, Any]], attempt: Attempt, *, origin: datetime) -> None:
    """Add what each row did in one attempt."""
    changes: dict[int, list[tuple[float, str]]] = {}
    ends: dict[int, float] = {}
    marks: dict[tuple[int, int | None], Mark] = {}
    stopping = None
    for event in events:
        time, kind, node = _seconds(event, origin) or 0.0, event.get("kind"), event.get("node_rank")
        if kind == "phase" and isinstance(node, int) and event.get("name") in _AFTER:
            changes.setdefault(node, []).append((time, _AFTER[event["name"]]))
        elif kind == "stopping" and stopping is None:
            stopping = time
        elif kind == "ended" and isinstance(node, int):
            ends[node] = time
        elif kind in ("failed", "lost"):
            outcome = event.get("outcome") or {}
            node = outcome.get("node_rank", node)
            text = str(outcome.get("message") or outcome.get("signal") or event.get("why") or kind)
            if isinstance(node, int):
                ends.setdefault(node, time) if kind == "lost" else None
                marks.setdefault((node, outcome.get("global_rank")), Mark(kind=str(kind), time=time, text=text))
    fallback = [(attempt.start + seconds, _AFTER[name]) for name, seconds in attempt.phases.items() if name in _AFTER]
    for row in rows:
        own = changes.get(row.node_rank) or ([] if changes else sorted(fallback))
        end = ends.get(row.node_rank, attempt.end)
        row.spans += _make_spans([(attempt.start, "joining"), *own], end=min(end, attempt.end), stopping=stopping)
        row.marks += [
            mark
            for (node, rank), mark in marks.items()
            if node == row.node_rank and (rank is None or row.global_rank in (None, rank))
        ]


def _make_spans(changes: Sequence[tuple[float, str]], *, end: float, stopping: float | None) -> list[Span]:
    if stopping is not None:
        changes = [*(change for change in changes if change[0] <= stopping), (stopping, "stopping")]
    spans: list[Span] = []
    for (start, kind), (stop, _) in zip(changes, [*changes[1:], (end, "")], strict=True):
        bounded = min(stop, end)
        if bounded <= start:
            continue
        if spans and spans[-1].kind == kind:
            spans[-1] = Span(kind=kind, start=spans[-1].start, end=bounded)
        else:
            spans.append(Span(kind=kind, start=start, end=bounded))
    return spans


def _find_queued(attempts: Sequence[Attempt], *, end: float) -> tuple[Span, ...]:
    if not attempts:
        return (Span(kind="queued", start=0.0, end=end),) if end > 0 else ()
    starts = [0.0, *(attempt.end for attempt in attempts)]
    ends = [attempt.start for attempt in attempts]
    return tuple(
        Span(kind="queued", start=start, end=stop) for start, stop in zip(starts, ends, strict=False) if stop > start
    )


def _seconds(item: dict[str, Any], origin: datetime) -> float | None:
    moment = _parse(item.get("time"))
    return None if moment is None else (moment - origin).total_seconds()


def _parse(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
