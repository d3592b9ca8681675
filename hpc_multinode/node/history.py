"""The attempts of earlier jobs of a run, for the report of the one that follows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hpc_multinode.runs import REPORT, RunFolder

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_history(folder: RunFolder, *, before: int) -> tuple[dict[str, Any], ...]:
    """Return the records of all attempts before this one, as in the report.

    What the last report does not tell, because node 0 was lost before it could write one, is taken from the events.

    Args:
        folder: The run's folder.
        before: Number of the attempt that begins.
    """
    known = {record["attempt"]: record for record in _read_report(folder)}
    return tuple(known.get(number) or _recover(folder, number) for number in range(before))


def _read_report(folder: RunFolder) -> Sequence[dict[str, Any]]:
    try:
        report = json.loads((folder.path / REPORT).read_text())
    except (OSError, ValueError):
        return ()
    attempts: list[dict[str, Any]] = report.get("attempts", [])
    return attempts


def _recover(folder: RunFolder, number: int) -> dict[str, Any]:
    """Compose the record of an attempt that nobody could close."""
    events = _read_events(folder, number)
    hosts = {event["node_rank"]: event["host"] for event in events if event["kind"] == "joined"}
    reasons = [event["reason"] for event in events if event["kind"] == "stopping"]
    ended_by = {"failure": "failure", "cancel": "cancelled", "cancel_at_once": "cancelled", "warning": "time_limit"}
    steps = [event["step"] for event in events if event["kind"] == "ended" and event.get("step") is not None]
    phases: dict[str, float] = {}
    for event in events:
        if event["kind"] == "phase":
            phases[event["name"]] = max(event["seconds"], phases.get(event["name"], 0.0))
    return {
        "attempt": number,
        "started": events[0]["time"] if events else None,
        "ended": events[-1]["time"] if events else None,
        "nodes": [hosts[rank] for rank in sorted(hosts)],
        # Where it was not even stopping, node 0 itself was gone.
        "ended_by": ended_by.get(reasons[0], "failure") if reasons else "lost_node",
        "phases": phases,
        "cause": None,
        "step": max(steps, default=None),
        "requeued": False,
    }


def _read_events(folder: RunFolder, number: int) -> list[dict[str, Any]]:
    try:
        lines = folder.events(number).read_text().splitlines()
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:  # the last line of a node that was lost may be torn
            continue
    return events
