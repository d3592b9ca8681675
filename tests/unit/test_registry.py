"""The registry: entries are private, found again from anywhere, and go with their runs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from hpc_multinode.registry import Entry, find_registry, is_alive, read_entries, read_entry, read_start, register
from tests.unit.life.runs import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_run_is_found_again(tmp_path: Path) -> None:
    """What was registered is read back, newest first."""
    for name in ("one", "two"):
        register(make_plan(tmp_path / "runs" / name), job_id="4711", cluster="big")
    entries = read_entries()
    assert [entry.run for entry in entries] == ["two", "one"]
    assert (entries[0].job_id, entries[0].cluster, entries[0].world_size) == ("4711", "big", 4)
    assert read_entry(tmp_path / "runs" / "one") == entries[1]


def test_entry_is_private(tmp_path: Path) -> None:
    """Nobody else may read a person's registry, whatever the umask."""
    before = os.umask(0)
    try:
        register(make_plan(tmp_path / "runs" / "one"))
    finally:
        os.umask(before)
    folder = find_registry()
    assert folder is not None
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.glob("*"))]
    assert modes == [0o700, 0o600]


def test_entry_goes_with_its_run(tmp_path: Path) -> None:
    """An entry whose run folder was removed is passed over and removed."""
    register(make_plan(tmp_path / "runs" / "one"))
    shutil.rmtree(tmp_path / "runs" / "one")
    assert read_entries() == []
    assert list((find_registry() or tmp_path).glob("*.json")) == []


def test_entry_stays_where_the_file_system_is_not_there(tmp_path: Path) -> None:
    """A run root that is not mounted on this machine costs no entry."""
    register(make_plan(tmp_path / "runs" / "one"))
    (tmp_path / "runs").rename(tmp_path / "away")
    assert read_entries() == []
    (tmp_path / "away").rename(tmp_path / "runs")
    assert [entry.run for entry in read_entries()] == ["one"]


def test_broken_entry_is_passed_over(tmp_path: Path) -> None:
    """A file that is no entry, or one of another version, breaks nothing."""
    register(make_plan(tmp_path / "runs" / "one"))
    folder = find_registry() or tmp_path
    (folder / "a.json").write_text("{")
    (folder / "b.json").write_text('{"run": 1}')
    (folder / "c.json").write_text("[]")
    assert [entry.run for entry in read_entries()] == ["one"]


def test_unwritable_registry_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the state folder cannot be written a note is printed and the run goes on."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    register(make_plan(tmp_path / "runs" / "one"))
    assert "will not be in `list`" in capsys.readouterr().err


def test_process_is_known_by_pid_and_start(tmp_path: Path) -> None:
    """A live pid that started at another time is somebody else's; an ended one is gone although not reaped."""
    register(make_plan(tmp_path / "runs" / "one"), pid=os.getpid())
    (entry,) = read_entries()
    assert is_alive(entry) is True
    other = Entry(**{**{name: getattr(entry, name) for name in Entry.__dataclass_fields__}, "pid_started": 1})
    assert is_alive(other) is False
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert read_start(child.pid) is None
    child.wait()


def test_process_of_another_machine_cannot_be_seen(tmp_path: Path) -> None:
    """Whether a launcher on another machine lives is not known here."""
    register(make_plan(tmp_path / "runs" / "one"), pid=os.getpid())
    (entry,) = read_entries()
    moved = Entry(**{**{name: getattr(entry, name) for name in Entry.__dataclass_fields__}, "host": "elsewhere"})
    assert is_alive(moved) is None


def test_later_attempt_keeps_the_time_of_submission(tmp_path: Path) -> None:
    """Tasks of srun that are requeued register their run again: it was still submitted when it was."""
    plan = make_plan(tmp_path / "runs" / "one")
    first, second = register(plan, job_id="1"), register(plan, job_id="1")
    assert first.submitted == second.submitted
    assert len(read_entries()) == 1
