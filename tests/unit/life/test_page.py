"""The page on a run: complete in one file, and true to what happened."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.life.files import read_files
from hpc_multinode.life.page import PageFacts, render_page
from hpc_multinode.life.slurm_word import SlurmWord
from hpc_multinode.life.svg import format_seconds
from hpc_multinode.life.timeline import MAX_RANK_ROWS, Timeline, read_samples, read_timeline
from hpc_multinode.life.usage import GIB, compare, make_curves, parse_size, read_cpus
from hpc_multinode.life.view import RunView, judge
from hpc_multinode.report import Outcome
from hpc_multinode.slurm.jobs import ACCOUNTING_FIELDS, parse_accounting
from tests.unit.life.runs import at, make_entry, make_job, make_report, write_lines

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "</script><b>&\"'"


def make_run(run_dir: Path, *, nodes: int = 2, workers: int = 2, failure: bool = True) -> RunView:
    """Make the folder of a run: queued for 60 s, ready after 4 s, stopped after 50 s, over after 60 s."""
    events: list[dict[str, Any]] = [
        {"time": at(61).isoformat(), "kind": "joined", "node_rank": node, "host": f"n{node}"} for node in range(nodes)
    ]
    for seconds, name in ((1.0, "joined"), (2.0, "preloaded"), (2.5, "spawned"), (4.0, "process_group")):
        events += [
            {"time": at(60 + seconds).isoformat(), "kind": "phase", "node_rank": node, "name": name, "seconds": seconds}
            for node in range(nodes)
        ]
    cause = Outcome(node_rank=1, host="n1", global_rank=workers, local_rank=0, pid=7, exit_code=1,
                    exception="ValueError", message=HOSTILE, last_lines=(HOSTILE,))  # fmt: skip
    if failure:
        events += [
            {"time": at(110).isoformat(), "kind": "failed", "outcome": cause.to_json()},
            {"time": at(110).isoformat(), "kind": "stopping", "reason": "failure"},
        ]
    events += [
        {"time": at(115).isoformat(), "kind": "ended", "node_rank": node, "outcomes": []} for node in range(nodes)
    ]
    write_lines(run_dir / "attempt-0/events.jsonl", *events)
    for node in range(nodes):
        samples = [
            {"time": at(second).isoformat(), "cpus": 1.5, "memory_bytes": 2 * GIB, "processes": 3,
             "gpus": [{"index": 0, "use_percent": 80, "memory_bytes": 4 * GIB}]}
            for second in (62, 72, 82)
        ]  # fmt: skip
        write_lines(run_dir / f"attempt-0/node{node}.samples", *samples)
    report = make_report("FAILED", 1, failure_class="exception", root_cause=cause) if failure else make_report()
    (run_dir / "report.json").write_text(report.to_json())
    entry = make_entry(run_dir, num_nodes=nodes, local_world_size=workers, name=HOSTILE)
    word = SlurmWord(taken=at(190), job=make_job("FAILED"))
    return judge(entry, read_files(run_dir), word, is_alive=None, now=at(200))


def draw(view: RunView, **facts: Any) -> str:
    """Render the page on a run."""
    timeline = read_timeline(view, now=at(200))
    return render_page(PageFacts(view=view, timeline=timeline, samples=read_samples(view), now=at(200), **facts))


def kinds(timeline: Timeline, row: int) -> list[tuple[str, float, float]]:
    """Return what a row did."""
    return [(span.kind, round(span.start, 1), round(span.end, 1)) for span in timeline.rows[row].spans]


def test_page_loads_nothing(tmp_path: Path) -> None:
    """There is no script and no address in it, so it shows the same without a network."""
    page = draw(make_run(tmp_path), config_text=f"name: {HOSTILE}\n")
    assert re.findall(r"<(script|link|img|iframe)\b", page) == []
    assert re.findall(r"\b(?:src|href)=|url\(|@import|https?://", page) == []


def test_words_of_people_are_text(tmp_path: Path) -> None:
    """Whatever a message, a log or a configuration holds is shown and not understood."""
    page = draw(make_run(tmp_path), config_text=f"name: {HOSTILE}\n", plan={"strategy": {"name": HOSTILE}})
    assert "<b>&" not in page
    assert page.count("&lt;/script&gt;&lt;b&gt;&amp;") >= 3


def test_page_and_drawings_are_well_formed(tmp_path: Path) -> None:
    """Every drawing is XML, and every element that is opened is closed."""
    page = draw(make_run(tmp_path))
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 5
    for drawing in drawings:
        ET.fromstring(drawing)  # noqa: S314 - our own
    for name in ("section", "table", "div", "details", "main"):
        assert len(re.findall(rf"<{name}\b", page)) == page.count(f"</{name}>")


def test_ranks_go_through_the_phases(tmp_path: Path) -> None:
    """Each rank's row has queue, joining, imports, start, process group, work and stop at their times."""
    timeline = read_timeline(make_run(tmp_path), now=at(200))
    assert [(span.start, span.end) for span in timeline.queued] == [(0.0, 60.0)]
    assert len(timeline.rows) == 4
    assert kinds(timeline, 0) == [
        ("joining", 60, 61), ("importing", 61, 62), ("spawning", 62, 62.5), ("connecting", 62.5, 64),
        ("running", 64, 110), ("stopping", 110, 115),
    ]  # fmt: skip
    assert [[mark.kind for mark in row.marks] for row in timeline.rows] == [[], [], ["failed"], []]


def test_many_ranks_are_rows_of_nodes(tmp_path: Path) -> None:
    """512 ranks are 64 rows, each with its node's name."""
    view = make_run(tmp_path, nodes=64, workers=8)
    timeline = read_timeline(view, now=at(200))
    assert MAX_RANK_ROWS < 64 * 8
    assert [timeline.rows[index].name for index in (0, 63)] == ["node 0 n0", "node 63 n63"]
    assert len(draw(view)) < 1_000_000


def test_run_without_events_is_drawn_from_its_report(tmp_path: Path) -> None:
    """What an older version left is shown with the phases that its report has."""
    view = make_run(tmp_path, failure=False)
    (tmp_path / "attempt-0/events.jsonl").unlink()
    timeline = read_timeline(view, now=at(200))
    assert kinds(timeline, 0) == [("joining", 60, 60.5), ("importing", 60.5, 62), ("running", 62, 120)]
    assert "Time line" in draw(view)


def test_run_that_waits_has_a_page(tmp_path: Path) -> None:
    """Before a run has started there is a queue and nothing else."""
    word = SlurmWord(taken=at(190), job=make_job("PENDING", reason="Priority"))
    view = judge(make_entry(tmp_path), read_files(tmp_path), word, is_alive=None, now=at(200))
    page = draw(view)
    assert "waiting: Priority" in page
    assert "waiting in the queue" in page


def test_requeued_run_waits_between_its_attempts(tmp_path: Path) -> None:
    """The time between two attempts is the queue's."""
    make_run(tmp_path)
    write_lines(tmp_path / "attempt-1/events.jsonl", {"time": at(300).isoformat(), "kind": "started", "attempt": 1})
    word = SlurmWord(taken=at(390), job=make_job("RUNNING", started=at(299)))
    view = judge(make_entry(tmp_path), read_files(tmp_path), word, is_alive=None, now=at(400))
    timeline = read_timeline(view, now=at(400))
    assert [(span.start, span.end) for span in timeline.queued] == [(0, 60), (120, 300)]
    assert timeline.attempts[1].end == 400
    assert "goes on" in draw(view)


def test_what_was_asked_for_stands_beside_what_was_used(tmp_path: Path) -> None:
    """CPUs, memory and GPUs come from the samples, time and the largest task from Slurm."""
    values = dict.fromkeys(ACCOUNTING_FIELDS, "") | {"JobID": "4711", "State": "FAILED", "TotalCPU": "01:02.345",
                                                     "Timelimit": "01:00:00", "AllocCPUS": "8"}  # fmt: skip
    step = values | {"JobID": "4711.0", "MaxRSS": "1048576K"}
    accounting = parse_accounting("\n".join("|".join(row.values()) for row in (values, step)))
    view = make_run(tmp_path)
    plan = {"sbatch": {"cpus-per-task": 4, "mem": "16384M"}, "gpus_per_node": 1}
    rows = {row.name: (row.asked, row.used) for row in compare(view, plan, read_samples(view), accounting)}
    assert rows == {
        "time": ("01:00:00", "1 min 0 s"),
        "CPUs a node": ("4", "1.5 on average, 1.5 at most; CPU time in all 01:02, says Slurm"),
        "memory a node": ("16384M", "2.0 GiB at most; largest task 1.0 GiB, says Slurm"),
        "GPUs a node": ("1", "80 % busy on average; memory 4.0 GiB at most"),
    }


def test_curves_of_many_nodes_are_three(tmp_path: Path) -> None:
    """Of more nodes than can be told apart the least, the middle and the most are drawn."""
    assert len(make_curves(read_samples(make_run(tmp_path / "a", nodes=2)), read_cpus)) == 2
    assert len(make_curves(read_samples(make_run(tmp_path / "b", nodes=20)), read_cpus)) == 3


@pytest.mark.parametrize(
    ("text", "size"), [("2048M", 2 * GIB), ("4Gn", 4 * GIB), ("1.5K", 1536), ("", None), ("x", None)]
)
def test_sizes_of_slurm_are_read(text: str, size: float | None) -> None:
    """Slurm's sizes have a unit, and may say that they are for a node or a CPU."""
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.5, "0.5 s"), (75, "1:15"), (3725, "1:02:05"), (180_000, "2d 02:00")]
)
def test_times_on_the_axis_are_short(seconds: float, text: str) -> None:
    """Seconds, minutes, hours and days."""
    assert format_seconds(seconds) == text
