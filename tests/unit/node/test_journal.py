"""The agent's own log, and the ends of other logs."""

from __future__ import annotations

import json
import re
import threading
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.node.journal import Journal, read_tail
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Give a run folder with its first attempt."""
    folder = RunFolder(path=tmp_path / "run")
    folder.make(folder.path)
    folder.make_next_attempt()
    return folder


def texts(journal: Journal, folder: RunFolder) -> list[str]:
    """Return the lines of node 1's log without their times."""
    journal.close()
    log = folder.node_log(0, 1).read_text() if folder.node_log(0, 1).exists() else ""
    return [line.partition(" ")[2] for line in log.splitlines()]


def test_lines_are_kept_until_the_log_is_known(folder: RunFolder) -> None:
    """What was said while the nodes were joining comes first in the log."""
    journal = Journal()
    journal.write("waiting for node 2")
    journal.open(folder, 0, 1)
    journal.write("started")
    assert texts(journal, folder) == ["waiting for node 2", "started"]


def test_nothing_is_written_twice(folder: RunFolder) -> None:
    """A log that is opened anew, as for another attempt, does not repeat the first one's lines."""
    journal = Journal()
    journal.write("first")
    journal.open(folder, 0, 1)
    assert folder.make_next_attempt() == 1
    journal.open(folder, 1, 1)
    journal.write("second")
    assert texts(journal, folder) == ["first"]
    assert folder.node_log(1, 1).read_text().endswith("second\n")


def test_each_line_is_written_at_once(folder: RunFolder) -> None:
    """An agent that is killed leaves all that it said."""
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.write("one")
    assert texts(journal, folder) == ["one"]


def test_a_line_carries_the_time_with_its_zone(folder: RunFolder) -> None:
    """Times are ISO 8601 to the millisecond."""
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.write("one")
    journal.close()
    line = folder.node_log(0, 1).read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d one\n", line)


def test_the_log_is_private(folder: RunFolder) -> None:
    """Nobody else may read it."""
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.close()
    assert folder.node_log(0, 1).stat().st_mode & 0o777 == 0o600


def test_a_log_that_is_there_is_continued(folder: RunFolder) -> None:
    """Opening for append keeps what another agent of this node wrote."""
    folder.node_log(0, 1).write_text("time before\n")
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.write("after")
    assert texts(journal, folder) == ["before", "after"]


def test_text_that_has_no_encoding_is_written_all_the_same(folder: RunFolder) -> None:
    """A message with a file name that is not UTF-8, as Python carries it, does not end the agent."""
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.write("failed: no such file: data-\udcff.bin")
    assert texts(journal, folder)[0].startswith("failed: no such file: data-")


def test_text_that_has_no_encoding_is_kept_all_the_same(folder: RunFolder) -> None:
    """The same before the log is known."""
    journal = Journal()
    journal.write("failed: data-\udcff.bin")
    journal.open(folder, 0, 1)
    assert texts(journal, folder)[0].startswith("failed: data-")


def test_further_lines_are_set_in(folder: RunFolder) -> None:
    """Lines of a message after its first are set in, so that each entry begins with its time."""
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.write("failed: first\nsecond")
    journal.close()
    log = folder.node_log(0, 1).read_text()
    first, second = log.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+ failed: first", first)
    assert second == "    second"


def test_the_tail_of_a_short_log_is_all_of_it(tmp_path: Path) -> None:
    """Every line comes, in order."""
    (tmp_path / "log").write_text("one\ntwo\n")
    assert read_tail(str(tmp_path / "log")) == ("one", "two")


def test_the_tail_of_no_log_is_nothing(tmp_path: Path) -> None:
    """A worker that never opened its log has no last lines."""
    assert read_tail(str(tmp_path / "log")) == ()


def test_the_tail_of_an_empty_log_is_nothing(tmp_path: Path) -> None:
    """A worker that said nothing has no last lines."""
    (tmp_path / "log").touch()
    assert read_tail(str(tmp_path / "log")) == ()


def test_the_tail_of_a_long_log_is_its_end(tmp_path: Path) -> None:
    """A log of many megabytes is not read as a whole."""
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(500_000)))
    tail = read_tail(str(tmp_path / "log"))
    assert tail[-2:] == ("line 499998", "line 499999")
    assert 100 < len(tail) < 5_000


def test_a_line_without_end_counts(tmp_path: Path) -> None:
    """What a killed worker wrote last has no line break."""
    (tmp_path / "log").write_text("one\nkilled here")
    assert read_tail(str(tmp_path / "log"))[-1] == "killed here"


def test_bytes_that_are_not_utf8_are_shown(tmp_path: Path) -> None:
    """A log may hold anything."""
    (tmp_path / "log").write_bytes(b"\xff\xfe bad\nfine\n")
    first, second = read_tail(str(tmp_path / "log"))
    assert first.endswith(" bad")
    assert second == "fine"


def test_a_line_of_ten_megabytes_is_cut(tmp_path: Path) -> None:
    """A line that fills a screen many times over is told in part."""
    (tmp_path / "log").write_text("x" * 10_000_000)
    (line,) = read_tail(str(tmp_path / "log"))
    assert 0 < len(line) <= 1_000


def test_events_are_json_lines_with_their_time(folder: RunFolder) -> None:
    """Node 0 notes what happens, one object a line."""
    journal = Journal()
    journal.open(folder, 0, 0, has_events=True)
    journal.record("joined", node_rank=1, host="n1")
    journal.close()
    (line,) = folder.events(0).read_text().splitlines()
    event = json.loads(line)
    assert datetime.fromisoformat(event.pop("time")).tzinfo is not None
    assert event == {"kind": "joined", "node_rank": 1, "host": "n1"}


def test_a_file_system_that_hangs_holds_up_nobody(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes goes on at once; the thread alone waits."""
    released = threading.Event()
    monkeypatch.setattr(RunFolder, "open_append", lambda *_: released.wait(60))
    journal = Journal()
    journal.open(folder, 0, 1)
    journal.write("one")
    assert not released.is_set()
    released.set()


def test_what_people_wait_for_is_on_stderr_too(folder: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    """Before there is a log, and after it, they see it where the agent's output goes."""
    journal = Journal()
    journal.tell("waiting for node 3")
    assert texts(journal, folder) == []
    assert capfd.readouterr().err == "waiting for node 3\n"
