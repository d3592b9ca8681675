"""A requeue that the batch script could not do, as the report then tells it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.layout import REPORT
from hpc_multinode.node import refusal
from hpc_multinode.report import Report
from hpc_multinode.runs import RunFolder
from tests.unit.life.runs import make_plan, make_report

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("ended_by", "state", "then", "stays"),
    [("requeue", "TIMEOUT", "time_limit", False), ("preempted", "PREEMPTED", "preempted", True)],
)
def test_the_report_says_what_slurm_said(
    tmp_path: Path,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended_by: str,
    state: str,
    then: str,
    stays: bool,
) -> None:
    """State, code, note and the attempt's own record are those of a run that does not go on by us.

    A preempted job stays, so that Slurm may requeue it itself.
    """
    plan = make_plan(tmp_path / "one", mode="slurm", requeue_exit_code=99)
    folder = RunFolder(path=tmp_path / "one")
    folder.make(folder.attempt(0))
    report = make_report("REQUEUED", 75, ended_by=ended_by, failure_class=then, notes=("before",))
    folder.write(REPORT, report.to_json().encode())
    folder.write("requeue-4711.err", b"sbatch: error: no\n")
    slept: list[float] = []
    monkeypatch.setattr(refusal.time, "sleep", slept.append)
    assert refusal.report_refusal(folder, plan, job_id="4711") == 99
    written = Report.from_json((folder.path / REPORT).read_text())
    note = "not requeued, though it was to be: sbatch: error: no"
    assert (written.state, written.exit_code, written.failure_class) == (state, 99, then)
    assert written.notes == ("before", note)
    record = json.loads(folder.record(0).read_text())
    assert (record["ended_by"], record["requeued"]) == (then, False)
    assert written.attempts[0] == record
    assert capsys.readouterr().err == f"error: {note}\n"
    assert bool(slept) is stays
