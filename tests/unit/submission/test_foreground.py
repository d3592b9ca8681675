"""A run watched to its end: what its ranks print is shown, once for all that print the same."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.runs import RunFolder
from hpc_multinode.submission.controller import Controller
from hpc_multinode.submission.foreground import WatchedRun
from tests.unit.life.runs import make_plan, make_report

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Give the folder of a run of four workers that have ended in their second attempt."""
    path = tmp_path / "runs" / "one"
    plan = make_plan(path)
    folder = RunFolder(path=path, is_private=plan.is_private)
    folder.write("report.json", make_report(run_dir=str(path)).to_json().encode())
    for attempt in range(2):
        folder.make(folder.attempt(attempt))
        for rank in range(4):
            folder.rank_log(attempt, rank).write_text(f"attempt {attempt}\n" + "no end" * attempt)
    return folder


def watch(folder: RunFolder, out: io.StringIO | None) -> int:
    """Wait for the end of the run, which has come, and return its exit code."""
    plan = make_plan(folder.path.with_name("other"))
    run = WatchedRun(plan, folder, Controller(is_running=lambda: False, ask_to_stop=lambda: None))
    report = run.wait(out=out)
    assert report is not None
    return report.exit_code


def test_attempts_are_shown_one_after_the_other(folder: RunFolder) -> None:
    """Each line of all ranks once, a word between attempts, and what never got an end as well."""
    out = io.StringIO()
    assert watch(folder, out) == 0
    told = ["[0-3] attempt 0", "--- attempt 1 ---", "[0-3] attempt 1", "[0-3] no end"]
    assert out.getvalue().splitlines() == told


def test_nothing_is_shown_to_who_does_not_look(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """A Python caller who only waits sees nothing."""
    assert watch(folder, None) == 0
    assert capsys.readouterr() == ("", "")
