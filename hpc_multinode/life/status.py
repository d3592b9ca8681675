"""The page on one run: state, times, nodes, ranks, attempts, paths. Pure but for reading the run's files."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from hpc_multinode.context import describe_size
from hpc_multinode.layout import show_agent_log, show_rank_logs
from hpc_multinode.life.files import read_events
from hpc_multinode.life.ranks import RankView, describe_outcome, read_ranks
from hpc_multinode.life.table import colour, colour_state, cut, format_span, name_ranks, render_table
from hpc_multinode.life.view import format_time
from hpc_multinode.person import shorten
from hpc_multinode.records import read_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.life.view import RunView

_MAX_ROWS = 32
_MAX_NODES = 4
_RANK_COLOURS = {
    "failed": "red",
    "lost": "red",
    "unknown": "yellow",
    "not started": "yellow",
    "stopped": "yellow",
    "waiting": "yellow",
}


def render_status(
    view: RunView, *, now: datetime | None = None, is_coloured: bool = False, width: int | None = None
) -> str:
    """Compose the page on a run.

    Args:
        view: The run.
        now: The time; None: the real one.
        is_coloured: Colour it.
        width: Cut lines after so many characters; None: never.
    """
    now = now or datetime.now(timezone.utc).astimezone()
    lines = [_render_head(view, is_coloured=is_coloured), *_render_facts(view, now=now)]
    ranks = read_ranks(view)
    if ranks:
        lines += ["", _render_ranks(ranks, now=now, is_coloured=is_coloured, width=width)]
    attempts = _render_attempts(view)
    if attempts:
        lines += ["", attempts]
    lines += ["", *_render_paths(view)]
    return "\n".join(cut(line, width) for text in lines for line in text.split("\n"))


def _render_head(view: RunView, *, is_coloured: bool) -> str:
    state = colour_state(view.state, is_coloured=is_coloured)
    job = f"  job {view.entry.job_id}" if view.entry.job_id is not None else ""
    word = "after" if view.is_over else "for"
    spans = [f"{word} {format_span(view.running_s)}"] if view.running_s is not None else []
    if view.running_s is None and view.queued_s is not None:
        spans = [f"for {format_span(view.queued_s)}"]
    code = f", exit code {view.report.exit_code}" if view.report is not None else ""
    return f"{state}  {colour(view.entry.run, 'bold', is_coloured=is_coloured)}{job} {' '.join(spans)}{code}".rstrip()


def _render_facts(view: RunView, *, now: datetime) -> list[str]:
    entry, job = view.entry, view.word.job
    facts = [("reason", " ".join(view.reason.split()))] if view.reason else []
    if view.word.age_s is not None:
        facts.append(("note", f"Slurm does not answer; its last word is {format_span(view.word.age_s)} old"))
    size = describe_size(entry.num_nodes, entry.local_world_size)
    nodes = job.nodes if job is not None and job.nodes else ""
    where = f" on {nodes}" if nodes else ""
    partition = f", partition {job.partition}" if job is not None else f", {entry.mode}"
    facts.append(("size", f"{size}{where}{partition}"))
    times = [f"submitted {format_time(datetime.fromisoformat(entry.submitted))}"]
    if view.queued_s is not None and view.running_s is not None:
        times.append(f"waited {format_span(view.queued_s)}")
    if view.started is not None:
        times.append(f"started {format_time(view.started)}")
    if view.ended is not None:
        times.append(f"ended {format_time(view.ended)}")
    elif job is not None and job.ends is not None and _has_limit(view):
        times.append(f"has to end {format_time(job.ends)}, in {format_span((job.ends - now).total_seconds())}")
    facts.append(("times", ", ".join(times)))
    phases = _describe_phases(view)
    if phases:
        facts.append(("start", phases))
    return [f"  {name + ':':9} {text}" for name, text in facts]


def _has_limit(view: RunView) -> bool:
    """Say whether a running job has to end: squeue writes an end a year ahead where there is no limit."""
    return view.state == "RUNNING" and view.word.job is not None and view.word.job.time_limit != "UNLIMITED"


def _describe_phases(view: RunView) -> str:
    """Say how far the start of the newest attempt has come, and after how many seconds on the slowest node."""
    if view.files.attempt is None:
        return ""
    seconds: dict[str, list[float]] = {}
    joined = set()
    for event in read_events(view.entry.path, view.files.attempt):
        if event.get("kind") == "joined":
            joined.add(event.get("node_rank"))
        elif event.get("kind") == "phase" and isinstance(event.get("seconds"), (int, float)):
            seconds.setdefault(str(event.get("name")), []).append(event["seconds"])
    if not seconds:
        return f"{len(joined)} of {view.entry.num_nodes} nodes have joined" if joined else ""
    return ", ".join(
        f"{name.replace('_', ' ')} {max(times):.1f} s"
        + (f" ({len(times)} of {view.entry.num_nodes} nodes)" if len(times) < view.entry.num_nodes else "")
        for name, times in seconds.items()
    )


def _render_ranks(ranks: Sequence[RankView], *, now: datetime, is_coloured: bool, width: int | None) -> str:
    """Show the ranks, those that stand alike in one row."""
    groups: dict[tuple[str, str, str], list[RankView]] = {}
    are_many = len(ranks) > _MAX_ROWS
    for rank in ranks:
        groups.setdefault((rank.state, describe_outcome(rank), "" if are_many else rank.host), []).append(rank)
    order = {"failed": 0, "lost": 1, "unknown": 2}
    rows = sorted(groups.items(), key=lambda item: (order.get(item[0][0], 3), item[1][0].global_rank))
    header = tuple(
        colour(name, "dim", is_coloured=is_coloured) for name in ("RANK", "NODE", "STATE", "CHANGED", "LAST LINE")
    )
    cells = [header]
    for (state, line, _), members in rows[:_MAX_ROWS]:
        hosts = list(dict.fromkeys(member.host for member in members if member.host))
        changed = max((member.changed for member in members if member.changed is not None), default=None)
        cells.append(
            (
                name_ranks([member.global_rank for member in members]),
                hosts[0] if len(hosts) == 1 else f"{len(hosts)} nodes" if hosts else "-",
                colour(state, _RANK_COLOURS.get(state, "green"), is_coloured=is_coloured),
                "-" if changed is None else f"{format_span((now - changed).total_seconds())} ago",
                line,
            )
        )
    table = render_table(cells, width=width)
    rest = sum(len(members) for _, members in rows[_MAX_ROWS:])
    return table + (f"\nand {rest} more ranks; --json has all" if rest else "")


def _render_attempts(view: RunView) -> str:
    """Show the attempts that have ended, where there was more than one."""
    records = view.attempts
    if len(records) + (not view.is_over) < 2:  # noqa: PLR2004 - one is no list
        return ""
    lines = ["ATTEMPTS"]
    for record in records:
        started = read_time(record.get("started"))
        spans = f"waited {format_span(record['queued_s'])}, ran {format_span(record['ran_s'])}"
        why = str(record.get("ended_by")).replace("_", " ") + (f": {record['cause']}" if record.get("cause") else "")
        step = f", saved step {record['step']}" if record.get("step") is not None else ""
        nodes = _name_nodes(record.get("nodes", ()))
        began = f"started {format_time(started)}, " if started is not None else ""
        lines.append(f"  {record.get('attempt')}  {began}{spans}{step}, ended by {why}{nodes}")
    numbers = [record.get("attempt") for record in records]
    if not view.is_over and view.files.attempt not in (None, *numbers) and view.started is not None:
        lines.append(f"  {view.files.attempt}  started {format_time(view.started)}, {view.state.lower()}")
    return "\n".join(lines)


def _name_nodes(names: Sequence[str]) -> str:
    rest = f", ... {len(names)} nodes" if len(names) > _MAX_NODES else ""
    return f"  {', '.join(names[:_MAX_NODES])}{rest}".rstrip()


def _render_paths(view: RunView) -> list[str]:
    entry = view.entry
    run_dir = shorten(entry.run_dir)
    attempt = view.files.attempt or 0
    paths = [("run", run_dir)]
    if view.files.attempts:
        paths.append(("logs", show_rank_logs(run_dir, attempt)))
    if entry.mode == "slurm" and entry.job_id is not None:
        paths.append(("agents", show_agent_log(run_dir, entry.job_id)))
    return [f"{name + ':':8} {path}" for name, path in paths]
