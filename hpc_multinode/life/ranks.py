"""How each rank of a run stands, from the coordinator's events, the report and the ends of the logs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.context import find_node
from hpc_multinode.layout import name_attempt, name_rank_log
from hpc_multinode.life.files import read_events, read_tail
from hpc_multinode.logs import TRACEBACK_HEADER
from hpc_multinode.report import Outcome, describe

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hpc_multinode.life.view import RunView

_TAIL_BYTES = 2048
# ECMA-48: a control sequence, or a command to the terminal with its text.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankView:
    """How one rank stands.

    Attributes:
        global_rank: Which rank.
        node_rank: Its node.
        host: The node's name; empty where it is not known yet.
        state: ``waiting``, ``running``, ``done``, ``failed``, ``stopped``, ``lost``, ``not started`` where the attempt
            was over before, or ``unknown``.
        last_line: The last line of its log; empty where there is none.
        changed: When its log last grew, or None.
        log: Absolute path of its log.
        outcome: How it ended, where that is known.
    """

    global_rank: int
    node_rank: int
    host: str
    state: str
    last_line: str
    changed: datetime | None
    log: str
    outcome: Outcome | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "global_rank": self.global_rank,
            "node_rank": self.node_rank,
            "host": self.host or None,
            "state": self.state,
            "last_line": self.last_line or None,
            "changed": self.changed.isoformat(timespec="milliseconds") if self.changed is not None else None,
            "log": self.log,
            "outcome": self.outcome.to_json() if self.outcome is not None else None,
        }


def read_ranks(view: RunView) -> list[RankView]:
    """Return how the ranks of the newest attempt stand, by rank."""
    attempt = view.files.attempt
    if attempt is None:
        return []
    entry, events = view.entry, read_events(view.entry.path, attempt)
    hosts = find_hosts(view)
    outcomes = _find_outcomes(view, events)
    lost = {event.get("node_rank") for event in events if event.get("kind") == "lost"}
    has_started = any(event.get("kind") == "started" for event in events) or not events
    found = []
    for rank in range(entry.world_size):
        node, log = find_node(rank, entry.local_world_size), name_rank_log(name_attempt(entry.path, attempt), rank)
        outcome = outcomes.get(rank)
        last_line, changed = _read_last_line(log)
        found.append(
            RankView(
                global_rank=rank,
                node_rank=node,
                host=hosts.get(node, ""),
                state=_name_state(
                    view, outcome, is_lost=node in lost, has_started=has_started, has_log=changed is not None
                ),
                last_line=last_line,
                changed=changed,
                log=str(log),
                outcome=outcome,
            )
        )
    return found


def find_hosts(view: RunView) -> dict[int, str]:
    """Return the nodes' names, by rank, as far as they are known."""
    for number in reversed(view.files.attempts):  # after a restart in the allocation nobody joins again
        joined = [event for event in read_events(view.entry.path, number) if event.get("kind") == "joined"]
        if joined:
            return {event["node_rank"]: str(event.get("host", "")) for event in joined if "node_rank" in event}
    return dict(enumerate(view.files.records[-1].get("nodes", ()))) if view.files.records else {}


def _find_outcomes(view: RunView, events: Iterable[dict[str, Any]]) -> dict[int, Outcome]:
    told: dict[int, Outcome] = {}
    for event in events:
        items = [event["outcome"]] if event.get("outcome") is not None else event.get("outcomes") or ()
        for data in items:
            outcome = Outcome.from_json(data)
            if outcome.global_rank is not None:
                told.setdefault(outcome.global_rank, outcome)
    if view.report is not None:
        last = (*view.report.consequences, *([view.report.root_cause] if view.report.root_cause is not None else []))
        told.update({outcome.global_rank: outcome for outcome in last if outcome.global_rank is not None})
    return told


def _name_state(view: RunView, outcome: Outcome | None, *, is_lost: bool, has_started: bool, has_log: bool) -> str:
    if outcome is not None:
        return "stopped" if outcome.is_stopped else "failed" if outcome.is_failure else "done"
    if is_lost:
        return "lost"
    if not view.is_over:
        return "running" if has_started else "waiting"
    if view.report is not None and view.report.exit_code == 0:
        return "done"
    return "unknown" if has_log else "not started"


def _read_last_line(log: Path) -> tuple[str, datetime | None]:
    try:
        changed = datetime.fromtimestamp(log.stat().st_mtime, timezone.utc).astimezone()
    except OSError:
        return "", None
    lines = read_tail(log, num_bytes=_TAIL_BYTES)
    if TRACEBACK_HEADER in lines:
        lines = [*lines[: lines.index(TRACEBACK_HEADER)], lines[-1]]
    last = next((line for line in reversed(lines) if line.strip()), "")
    return _clean(last.rpartition("\r")[2]), changed


def _clean(line: str) -> str:
    """Leave out what would change a terminal, such as colours and titles: the line stands in a table."""
    return "".join(letter if letter.isprintable() else " " for letter in _CONTROL.sub("", line)).strip()


def describe_outcome(rank: RankView) -> str:
    """Say what a rank last did: how it failed, else its last line."""
    if rank.outcome is not None and rank.state == "failed":
        return describe(rank.outcome).partition(") ")[2] or rank.last_line
    return rank.last_line
