"""The page on one run, and how its ranks stand."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.life.files import read_files
from hpc_multinode.life.ranks import RankView, read_ranks
from hpc_multinode.life.slurm_word import SlurmWord
from hpc_multinode.life.status import render_status
from hpc_multinode.life.table import format_span, name_ranks, wants_colour
from hpc_multinode.life.view import RunView, judge
from hpc_multinode.logs import TRACEBACK_HEADER
from hpc_multinode.report import Outcome, Report
from tests.unit.life.runs import at, make_entry, make_job, make_report, write_lines

if TYPE_CHECKING:
    from pathlib import Path

CAUSE = Outcome(
    node_rank=1, host="n2", global_rank=3, local_rank=1, pid=7, exit_code=1, exception="ValueError", message="no luck"
)
STOPPED = Outcome(node_rank=0, host="n1", global_rank=0, local_rank=0, pid=5, signal="SIGTERM", is_stopped=True)


def see(run_dir: Path, *, word: str = "RUNNING", report: Report | None = None, **job: Any) -> RunView:
    """Judge the run of a folder."""
    if report is not None:
        (run_dir / "report.json").write_text(report.to_json())
    slurm = SlurmWord(taken=at(190), job=make_job(word, **job))
    return judge(make_entry(run_dir), read_files(run_dir), slurm, is_alive=None, now=at(200))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Give the folder of a run of 2 x 2 whose ranks have all written."""
    events: list[dict[str, Any]] = [
        {"kind": "joined", "time": at(60).isoformat(), "node_rank": node, "host": f"n{node + 1}"} for node in range(2)
    ]
    events += [
        {"kind": "started", "time": at(61).isoformat(), "attempt": 0},
        {"kind": "phase", "time": at(61).isoformat(), "node_rank": 0, "name": "spawned", "seconds": 1.5},
    ]
    write_lines(tmp_path / "attempt-0" / "events.jsonl", *events)
    for rank in range(4):
        (tmp_path / "attempt-0" / f"rank{rank}.log").write_text("epoch 1\nepoch 2\n")
    return tmp_path


def states(ranks: list[RankView]) -> list[str]:
    """Return the states of ranks."""
    return [rank.state for rank in ranks]


def test_ranks_of_a_running_run_have_host_and_last_line(run_dir: Path) -> None:
    """Each rank is running, on the host that the events name, with the last line of its log."""
    ranks = read_ranks(see(run_dir))
    assert states(ranks) == ["running"] * 4
    assert [rank.host for rank in ranks] == ["n1", "n1", "n2", "n2"]
    assert {rank.last_line for rank in ranks} == {"epoch 2"}


def test_failed_rank_is_told_while_the_others_are_stopped(run_dir: Path) -> None:
    """A failure is known from the events before there is a report."""
    with (run_dir / "attempt-0/events.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "failed", "outcome": CAUSE.to_json()}) + '\n{"kind": "half a li')
    assert states(read_ranks(see(run_dir))) == ["running", "running", "running", "failed"]


def test_report_tells_how_each_rank_ended(run_dir: Path) -> None:
    """Root cause and consequences are failed and stopped; of whom a failed run says nothing is not done."""
    report = make_report("FAILED", 1, failure_class="exception", root_cause=CAUSE, consequences=(STOPPED,))
    assert states(read_ranks(see(run_dir, word="FAILED", report=report))) == ["stopped", "unknown", "unknown", "failed"]
    good = read_ranks(see(run_dir, word="COMPLETED", report=make_report()))
    assert states(good) == ["done"] * 4


def test_lost_node_takes_its_ranks(run_dir: Path) -> None:
    """The ranks of a node that was lost are lost."""
    with (run_dir / "attempt-0/events.jsonl").open("a") as file:
        file.write('{"kind": "lost", "node_rank": 1, "host": "n2"}\n')
    assert states(read_ranks(see(run_dir))) == ["running", "running", "lost", "lost"]


def test_without_events_ranks_run_as_their_run_does(run_dir: Path) -> None:
    """A run of an older version, without events, still shows its ranks."""
    (run_dir / "attempt-0/events.jsonl").unlink()
    assert states(read_ranks(see(run_dir))) == ["running"] * 4


def test_traceback_does_not_hide_the_last_line(run_dir: Path) -> None:
    """Of a log that ends in a traceback its last line is shown, which names the exception."""
    log = run_dir / "attempt-0/rank1.log"
    log.write_text(f"epoch 1\n{TRACEBACK_HEADER}\nTraceback\n  File x\nValueError: no luck\n")
    assert read_ranks(see(run_dir))[1].last_line == "ValueError: no luck"


def test_page_of_a_queued_run_tells_the_reason(tmp_path: Path) -> None:
    """Nothing but state, reason, size, times and paths is there before a run has started."""
    page = render_status(see(tmp_path, word="PENDING", reason="Resources"), now=at(200))
    assert page.startswith(f"PENDING  {tmp_path.name}  job 4711 for 3 min 20 s\n")
    assert "waiting: Resources" in page
    assert "2 x 2 = 4 workers" in page
    assert "RANK" not in page


def test_page_shows_ranks_alike_in_one_row(run_dir: Path) -> None:
    """Ranks of one node with one state and last line are one row, and a phase says how many nodes have passed it."""
    page = render_status(see(run_dir, started=at(60), ends=at(500), nodes="n[1-2]"), now=at(200))
    rows = [line.split() for line in page.splitlines() if line.startswith(("0-1", "2-3"))]
    assert [(row[0], row[1], row[2]) for row in rows] == [("0-1", "n1", "running"), ("2-3", "n2", "running")]
    assert "spawned 1.5 s (1 of 2 nodes)" in page
    assert "in 5 min" in page


def test_page_of_many_ranks_is_bounded(tmp_path: Path) -> None:
    """Of 512 ranks that all say something else, so many are shown that a person can read them."""
    logs = tmp_path / "attempt-0"
    logs.mkdir()
    for rank in range(512):
        (logs / f"rank{rank}.log").write_text(f"line of {rank}\n")
    word = SlurmWord(taken=at(190), job=make_job("RUNNING"))
    entry = make_entry(tmp_path, num_nodes=64, local_world_size=8)
    page = render_status(judge(entry, read_files(tmp_path), word, is_alive=None, now=at(200)), now=at(200))
    assert len(page.splitlines()) < 50
    assert "and 480 more ranks" in page


def test_attempts_are_listed_where_there_were_several(run_dir: Path) -> None:
    """What ended each attempt is said."""
    (run_dir / "attempt-1").mkdir()
    report = make_report("PREEMPTED", 75, ended_by="preempted")
    page = render_status(see(run_dir, report=report, started=at(150)), now=at(200))
    assert "ended by preempted  n1, n2" in page
    assert page.startswith("RUNNING")


@pytest.mark.parametrize(
    ("ranks", "name"),
    [
        ([0], "0"),
        ([0, 1, 2, 3], "0-3"),
        ([7, 0, 1], "0-1,7"),
        ([3, 5], "3,5"),
        ([], ""),
        (list(range(0, 40, 2)), "0,2,4,6,8,10,... 20 ranks"),
    ],
)
def test_ranks_are_named_shortly(ranks: list[int], name: str) -> None:
    """Neighbours are a span."""
    assert name_ranks(ranks) == name


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.4, "0 s"), (61, "1 min 1 s"), (3599, "59 min"), (7260, "2 h 1 min"), (200_000, "2 d 7 h")],
)
def test_spans_are_short(seconds: float | None, text: str) -> None:
    """A span has at most two parts."""
    assert format_span(seconds) == text


def test_unlimited_job_has_no_end(run_dir: Path) -> None:
    """Squeue writes an end a year ahead for a job without a time limit; that is none."""
    assert "has to end" in render_status(see(run_dir, ends=at(9000)), now=at(200))
    assert "has to end" not in render_status(see(run_dir, ends=at(9000), time_limit="UNLIMITED"), now=at(200))


def test_last_line_cannot_change_the_terminal(run_dir: Path) -> None:
    """Colours, titles and what else a work writes for a terminal is left out of the table."""
    (run_dir / "attempt-0" / "rank0.log").write_text("\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07\tx\x00y\n")
    assert read_ranks(see(run_dir))[0].last_line == "red x y"


def test_attempts_tell_why_they_ended_and_how_long_they_took(run_dir: Path) -> None:
    """Each attempt that has ended has its waiting, its run, what it saved and why it ended."""
    for number, ended_by in enumerate(("requeue", "failure")):
        (run_dir / f"attempt-{number}").mkdir(exist_ok=True)
        record = {
            "attempt": number, "started": at(60 + 100 * number).isoformat(),
            "ended": at(120 + 100 * number).isoformat(),
            "ended_by": ended_by, "step": 30, "cause": "rank 3 raised ValueError" if number else None,
        }  # fmt: skip
        (run_dir / f"attempt-{number}" / "attempt.json").write_text(json.dumps(record))
    text = render_status(see(run_dir), now=at(200))
    assert "waited 1 min 0 s, ran 1 min 0 s, saved step 30, ended by requeue\n" in text
    assert "waited 40 s, ran 1 min 0 s, saved step 30, ended by failure: rank 3 raised ValueError" in text


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_person_may_do_without_colours(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours go to terminals that know them, of people who want them."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(terminal)
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv(name, value)
    assert not wants_colour(terminal)
