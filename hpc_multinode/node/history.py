"""The attempts of a run before this one, for the report: each leaves its record in its own folder."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpc_multinode.runs import RunFolder


def read_history(folder: RunFolder, *, before: int) -> tuple[dict[str, Any], ...]:
    """Return the records of all attempts before this one.

    One that has left none, because node 0 was lost, is told as far as its events go.

    Args:
        folder: The run's folder.
        before: Number of the attempt that begins.
    """
    return tuple(_read_record(folder, number) or _recover(folder, number) for number in range(before))


def write_records(folder: RunFolder, records: Iterable[dict[str, Any]]) -> None:
    """Write how attempts have ended, each into its folder."""
    for record in records:
        path = folder.record(record["attempt"])
        folder.write(os.path.relpath(path, folder.path), json.dumps(record).encode())


def _read_record(folder: RunFolder, number: int) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(folder.record(number).read_text())
    except (OSError, ValueError):
        return None
    return record


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
