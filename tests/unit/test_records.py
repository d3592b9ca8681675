"""What JSON files of ours hold, when it is read, and the times of attempts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.life.files import read_files
from hpc_multinode.life.slurm_word import SlurmWord
from hpc_multinode.life.view import judge
from hpc_multinode.records import check_attempt, take_fields, time_attempts
from hpc_multinode.registry import Entry
from hpc_multinode.report import Outcome, Report
from tests.unit.life.runs import at, make_entry, make_job, make_report

if TYPE_CHECKING:
    from pathlib import Path

ATTEMPT = {"attempt": 0, "started": at(60).isoformat(), "ended": at(120).isoformat(), "nodes": ["n1"],
           "ended_by": "requeue", "phases": {}}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"state": []}, {"exit_code": {}}, {"attempts": [5]}, {"attempts": [{"attempt": "x"}]}, {"root_cause": "x"},
     {"root_cause": {"node_rank": 0, "host": "n", "global_rank": []}}, {"failure_class": ["x"]}],
)  # fmt: skip
def test_report_with_a_wrong_type_is_none(change: dict[str, Any]) -> None:
    """A report that something else has written is refused as a whole, and no verb stumbles over it later."""
    with pytest.raises(TypeError):
        Report.from_json(json.dumps({**json.loads(make_report().to_json()), **change}))


def test_report_of_a_newer_version_is_read() -> None:
    """Keys that we do not know are passed over."""
    text = json.dumps({**json.loads(make_report().to_json()), "colour": "red"})
    assert Report.from_json(text) == make_report()


@pytest.mark.parametrize("change", [{"num_nodes": "2"}, {"num_nodes": 0}, {"run_dir": 5}, {"submitted": "2026-12-01"},
                                    {"run_dir": "runs/one"}, {"job_id": 4711}])  # fmt: skip
def test_entry_that_cannot_be_is_none(change: dict[str, Any]) -> None:
    """An entry needs its types, at least one worker, an absolute folder and a time with its zone."""
    data = {name: getattr(make_entry(), name) for name in Entry.__dataclass_fields__}
    assert Entry.from_json(json.dumps(data)) == make_entry()
    with pytest.raises((TypeError, ValueError)):
        Entry.from_json(json.dumps({**data, **change}))


def test_lines_have_to_be_texts() -> None:
    """The types of a list's items count too."""
    with pytest.raises(TypeError, match="last_lines"):
        take_fields(Outcome, {"node_rank": 0, "host": "n", "last_lines": [1]})


@pytest.mark.parametrize("change", [{"started": 5}, {"started": "soon"}, {"ended": "2026-12-01T10:00:00"},
                                    {"nodes": "n1"}, {"phases": []}, {"attempt": None}])  # fmt: skip
def test_attempt_that_cannot_be_is_none(change: dict[str, Any]) -> None:
    """An attempt has a number, times with a zone, a list of nodes and a mapping of phases."""
    assert check_attempt(ATTEMPT) == ATTEMPT
    with pytest.raises((TypeError, ValueError)):
        check_attempt({**ATTEMPT, **change})


def test_attempts_are_timed_from_the_one_before() -> None:
    """The first waited since the submission, the next since the end of the one before."""
    again = {**ATTEMPT, "attempt": 1, "started": at(150).isoformat(), "ended": None}
    first, second = time_attempts((ATTEMPT, again), submitted=at(0).isoformat())
    assert (first["queued_s"], first["ran_s"]) == (60.0, 60.0)
    assert (second["queued_s"], second["ran_s"]) == (30.0, None)
    assert time_attempts((ATTEMPT,), submitted=None)[0]["queued_s"] is None


def test_cancelled_attempt_with_a_next_one_was_requeued() -> None:
    """On ``scontrol requeue`` by hand Slurm tells the agents no more than on a cancel; what came after tells."""
    cancelled = {**ATTEMPT, "ended_by": "cancelled"}
    last = {**ATTEMPT, "attempt": 1, "ended_by": "cancelled"}
    ends = [one["ended_by"] for one in time_attempts((cancelled, last), submitted=None)]
    assert ends == ["requeue", "cancelled"]


def test_attempts_tell_of_themselves_while_the_next_one_runs(tmp_path: Path) -> None:
    """The report goes when another attempt begins; what each left in its own folder stays."""
    for number in range(2):
        (tmp_path / f"attempt-{number}").mkdir()
    (tmp_path / "attempt-0" / "attempt.json").write_text(json.dumps({**ATTEMPT, "step": 30}))
    word = SlurmWord(taken=at(190), job=make_job("RUNNING", started=at(180)))
    view = judge(make_entry(tmp_path), read_files(tmp_path), word, is_alive=None, now=at(200))
    assert (view.queued_s, view.running_s) == (60.0, 80.0)
    told = view.to_json()["attempts"]
    assert [(one["ended_by"], one["queued_s"], one["step"]) for one in told] == [("requeue", 60.0, 30)]
