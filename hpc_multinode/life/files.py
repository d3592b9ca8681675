"""What a run's own folder says of it. Reads files alone; each of them may not be there yet."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hpc_multinode.layout import find_attempts, name_attempt, name_events, name_node_file, name_record
from hpc_multinode.records import check_attempt, read_time
from hpc_multinode.report import Outcome, Report
from hpc_multinode.resubmission import REQUEST

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

_TIME_CHARACTERS = 40


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The folder of a run at one moment.

    Attributes:
        path: The run folder.
        report: What node 0 wrote last, or None.
        attempts: Numbers of the attempts that have begun, in order.
        is_handed_on: The batch script was left to hand in a new job, or to requeue its own.
    """

    path: Path
    report: Report | None
    attempts: tuple[int, ...]
    is_handed_on: bool = False

    @property
    def attempt(self) -> int | None:
        """The newest attempt, or None."""
        return self.attempts[-1] if self.attempts else None

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """How attempts have ended: of the report, else what each has left in its own folder."""
        if self.report is not None:
            return self.report.attempts
        found = (read_record(self.path, number) for number in self.attempts)
        return tuple(record for record in found if record is not None)

    @cached_property
    def started(self) -> datetime | None:
        """When the newest attempt began, or None."""
        return None if self.attempt is None else read_start_time(self.path, self.attempt)


def read_files(run_dir: Path) -> RunFiles:
    """Look into a run's folder; a folder that is gone is an empty one."""
    report = read_report(run_dir)
    is_handed_on = report is not None and (run_dir / f"{REQUEST}{report.job_id}").exists()
    return RunFiles(path=run_dir, report=report, attempts=find_attempts(run_dir), is_handed_on=is_handed_on)


def read_report(run_dir: Path) -> Report | None:
    """Return the report, or None where there is none that can be read."""
    try:
        return Report.read(run_dir)
    except (OSError, ValueError, KeyError, TypeError):  # not there, or of a version that had no such fields
        return None


def read_record(run_dir: Path, attempt: int) -> dict[str, Any] | None:
    """Return how an attempt has ended, or None where it goes on or could not be closed."""
    try:
        return check_attempt(json.loads(name_record(name_attempt(run_dir, attempt)).read_text()))
    except (OSError, ValueError, TypeError):  # not there, or damaged
        return None


def read_start_time(run_dir: Path, attempt: int) -> datetime | None:
    """Return when node 0's agent of an attempt began, from the first line of its log."""
    try:
        with name_node_file(name_attempt(run_dir, attempt), 0).open() as file:
            return read_time(file.read(_TIME_CHARACTERS).split(" ")[0])
    except (OSError, ValueError):
        return None


def read_events(run_dir: Path, attempt: int) -> list[dict[str, Any]]:
    """Return what the coordinator noted of an attempt, in order; none where it noted nothing."""
    return [event for event in read_lines(name_events(name_attempt(run_dir, attempt))) if _is_sound(event)]


def _is_sound(event: dict[str, Any]) -> bool:
    """Say whether an event has the types that we write; one of another version may not."""
    outcomes = [event["outcome"]] if event.get("outcome") is not None else event.get("outcomes") or ()
    try:
        for outcome in outcomes:
            Outcome.from_json(outcome)
    except TypeError:
        return False
    seconds = event.get("seconds", 0)
    has_types = isinstance(event.get("node_rank", 0), int) and isinstance(event.get("name", ""), str)
    return has_types and isinstance(seconds, (int, float)) and math.isfinite(seconds)


def read_text(path: Path) -> str:
    """Return what a file holds; nothing where it is not there or cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the mappings of a file with one in each line; a last line that is being written is passed over."""
    found = []
    for line in read_text(path).splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        if isinstance(item, dict):
            found.append(item)
    return found


def read_tail(path: Path, *, num_bytes: int = 8192) -> list[str]:
    """Return the last lines of a log; none where there is no log."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - num_bytes))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[1:] if size > num_bytes else lines
