"""What is known of the attempts before this one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hpc_multinode.node.history import read_history, write_records
from hpc_multinode.runs import RunFolder
from tests.unit.life.runs import write_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The last one before this attempt is the last one read."""
    folder = RunFolder(path=tmp_path)
    for number in (0, 1):
        folder.attempt(number).mkdir()
    records = [{"attempt": number, "ended_by": "preempted", "step": 4} for number in (0, 1)]
    write_records(folder, records)
    assert read_history(folder, before=2) == tuple(records)
    assert read_history(folder, before=1) == (records[0],)
    assert oct(folder.record(0).stat().st_mode)[-3:] == "600"


def test_an_attempt_that_nobody_could_close_is_told_by_its_events(tmp_path: Path) -> None:
    """Node 0 was lost while it ran; the torn last line is left out."""
    events = tmp_path / "attempt-0/events.jsonl"
    write_lines(
        events,
        {"time": "2025-12-01T10:00:00+00:00", "kind": "joined", "host": "n2", "node_rank": 1},
        {"time": "2025-12-01T10:00:01+00:00", "kind": "joined", "host": "n1", "node_rank": 0},
        {"time": "2025-12-01T10:00:02+00:00", "kind": "phase", "name": "joined", "seconds": 1.0, "node_rank": 0},
        {"time": "2025-12-01T10:00:03+00:00", "kind": "phase", "name": "joined", "seconds": 1.5, "node_rank": 1},
    )
    with events.open("a") as file:
        file.write('{"time": "2025')
    (record,) = read_history(RunFolder(path=tmp_path), before=1)
    assert (record["nodes"], record["phases"], record["ended_by"]) == (["n1", "n2"], {"joined": 1.5}, "lost_node")
    assert (record["started"], record["ended"]) == ("2025-12-01T10:00:00+00:00", "2025-12-01T10:00:03+00:00")


def test_an_attempt_that_was_stopping_when_it_was_killed(tmp_path: Path) -> None:
    """It is told why, and what was saved."""
    write_lines(
        tmp_path / "attempt-0/events.jsonl",
        {"time": "1", "kind": "stopping", "reason": "warning"},
        {"time": "2", "kind": "ended", "step": 3},
        {"time": "2", "kind": "ended", "step": 5},
        {"time": "2", "kind": "ended", "step": None},
    )
    (record,) = read_history(RunFolder(path=tmp_path), before=1)
    assert (record["ended_by"], record["step"], record["requeued"]) == ("time_limit", 5, False)


def test_an_attempt_that_left_nothing(tmp_path: Path) -> None:
    """A damaged record and no events: it was lost, and there is nothing more to say."""
    (tmp_path / "attempt-0").mkdir()
    (tmp_path / "attempt-0/attempt.json").write_text("{")
    (record,) = read_history(RunFolder(path=tmp_path), before=1)
    assert (record["attempt"], record["started"], record["ended_by"]) == (0, None, "lost_node")
    assert json.dumps(record)
