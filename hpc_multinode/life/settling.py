"""The last word on a run whose agents left none: composed from the run folder and Slurm's word, written once."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.layout import REPORT
from hpc_multinode.life.files import read_tail
from hpc_multinode.life.slurm_word import CLASSES, name_end
from hpc_multinode.records import time_attempts
from hpc_multinode.report import Outcome, Report
from hpc_multinode.runs import RunFolder
from hpc_multinode.slurm.commands import show_job
from hpc_multinode.slurm.jobs import FINAL, parse_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.life.view import RunView
    from hpc_multinode.registry import Entry

# The accounting, and files that another machine wrote, may come this much later than the end of a job. Seconds.
SETTLE_S = 60.0
# A report that was written before the job ended shows on this machine within this time.
_SHOWS_LATE = timedelta(seconds=3)
_SETUP_FAILED = "hpc_multinode: this set-up line failed"
_MAX_LINES = 20
_CODES = {"COMPLETED": 0, "CANCELLED": 143, "TIMEOUT": 143, "DEADLINE": 143, "PREEMPTED": 143, "OUT_OF_MEMORY": 137}


def can_settle(view: RunView, *, now: datetime) -> bool:
    """Say whether nothing more will be heard of a run that left no report."""
    if not view.is_lost:
        return False
    if view.entry.job_id is None:
        return not _find_agents(view.entry)
    if view.state in FINAL:
        ended = view.word.job.ends if view.word.job is not None else None
        return not view.files.attempts or ended is None or now - ended > _SHOWS_LATE
    return (now - _last_change(view.entry.path)).total_seconds() > SETTLE_S


def settle(view: RunView) -> Report:
    """Compose the report of a run that left none, write it into its folder where that can be done, and return it."""
    entry = view.entry
    state, code, signal_number = _find_end(view)
    said = read_output(entry.path)
    report = Report(
        run=entry.run,
        run_dir=entry.run_dir,
        job_id=entry.job_id,
        state=state,
        exit_code=code or (128 + signal_number if signal_number else _CODES.get(state, EXIT_FAILED)),
        failure_class=_classify(state, signal_number, said),
        world_size=entry.world_size,
        num_nodes=entry.num_nodes,
        root_cause=_make_cause(entry, state, said),
        attempts=time_attempts(_make_attempts(view, state), submitted=entry.submitted),
    )
    folder = RunFolder.of(entry.path)
    if (
        view.files.report is not None or not (entry.path / REPORT).exists()
    ):  # one that we cannot read, of another version, is kept
        with contextlib.suppress(OSError):  # a full disk, or somebody else's run: it is told all the same
            report.write(folder)
    return report


def rewrite(report: Report) -> None:
    """Write a report in which Slurm's later word stands."""
    with contextlib.suppress(OSError):
        report.write(RunFolder.of(Path(report.run_dir)))


def read_output(run_dir: Path) -> tuple[str, ...]:
    """Return the last lines of what agents and batch script printed."""
    lines = [line for file in sorted((run_dir / "submitit").glob("*.out")) for line in read_tail(file)]
    lines += read_tail(run_dir / "submitit" / "controller.log")
    return tuple(line for line in lines if line.strip())[-_MAX_LINES:]


def _find_end(view: RunView) -> tuple[str, int, int]:
    """Return state, exit code and signal."""
    word = view.word
    if word.account is not None and word.account.state in FINAL:
        return word.account.state, word.account.exit_code, word.account.signal
    if view.entry.job_id is None:
        return "FAILED", EXIT_FAILED, 0
    job: Mapping[str, str] = show_job(view.entry.slurm_id) or {}
    state = parse_state(job.get("JobState", ""))
    if state not in FINAL and word.job is not None:
        state = word.job.state
    if view.entry.mode != "slurm" and state in ("COMPLETED", "FAILED"):  # the word on what stood around it
        return "FAILED", EXIT_FAILED, 0
    code, _, number = job.get("ExitCode", "").partition(":")
    if state in FINAL:
        return state, int(code) if code.isdigit() else 0, int(number) if number.isdigit() else 0
    # Slurm has forgotten it. A job that never started did not end by itself.
    return ("FAILED" if view.files.attempts or read_output(view.entry.path) else "CANCELLED"), 0, 0


def _classify(state: str, signal_number: int, said: tuple[str, ...]) -> str | None:
    if state == "COMPLETED":
        return None
    if state in CLASSES:
        return CLASSES[state]
    if any(_SETUP_FAILED in line for line in said):
        return "usage"
    return "signal" if signal_number else "lost_node"


def _make_cause(entry: Entry, state: str, said: tuple[str, ...]) -> Outcome | None:
    if state in ("COMPLETED", "CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE", "REVOKED"):
        return None
    told = next((line.strip() for line in said if _SETUP_FAILED in line), None)
    message = told or f"its agent ended without a report{f', Slurm says {state}' if state != 'FAILED' else ''}"
    return Outcome(
        node_rank=0,
        host=entry.host if entry.job_id is None else "the first node",
        message=message,
        last_lines=said,
        log=str(entry.path / "submitit"),
        failure_class=_classify(state, 0, said),
    )


def _make_attempts(view: RunView, state: str) -> tuple[dict[str, Any], ...]:
    before = view.files.records
    number = view.files.attempt
    if number is None or any(one.get("attempt") == number for one in before):
        return before
    job, account = view.word.job, view.word.account
    started = view.files.started or (job.started if job is not None else None)
    ended = account.ended if account is not None else job.ends if job is not None else None
    ended = ended or _last_change(view.entry.path).astimezone()
    record: dict[str, Any] = {
        "attempt": number,
        "started": started.isoformat(timespec="milliseconds") if started is not None else None,
        "ended": ended.isoformat(timespec="milliseconds"),
        "nodes": [],
        "ended_by": name_end(state),
        "phases": {},
    }
    return (*before, record)


def _last_change(run_dir: Path) -> datetime:
    """Return when anything in the run folder was last written."""
    paths = [run_dir, *run_dir.glob("*"), *run_dir.glob("attempt-*/*"), *run_dir.glob("submitit/*")]
    newest = 0.0
    for path in paths:
        with contextlib.suppress(OSError):
            newest = max(newest, path.stat().st_mtime)
    return datetime.fromtimestamp(newest).astimezone()


def _find_agents(entry: Entry) -> list[int]:
    """Return the pids of this machine's agents of a run: they end a while after their launcher was killed."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"hpc_multinode.node" in words and os.fsencode(entry.run_dir) in words:
            found.append(int(folder.name))
    return found
