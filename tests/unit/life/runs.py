"""Runs of tests: a plan with a folder, an entry, files and Slurm's words, of which a test names what it is about."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.config import Config
from hpc_multinode.planning import make_plan as make_launch_plan
from hpc_multinode.registry import Entry
from hpc_multinode.report import Report
from hpc_multinode.slurm.jobs import QueuedJob, parse_state
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

BEGAN = datetime(2025, 12, 1, 10, tzinfo=timezone.utc)


def at(seconds: float) -> datetime:
    """Return a time after the submission of the tests' runs."""
    return BEGAN + timedelta(seconds=seconds)


def make_plan(run_dir: Path, **changes: Any) -> LaunchPlan:
    """Return a plan of 2 nodes with 2 workers whose folder is there."""
    run_dir.mkdir(parents=True)
    facts = make_facts(run_id=run_dir.name, run_root=str(run_dir.parent))
    plan = make_launch_plan(Config(), facts=facts, target=None, executor=None, keeps_results=True)
    return dataclasses.replace(plan, name="train", num_nodes=2, local_world_size=2, node_devices=None, **changes)


def make_entry(run_dir: Path | str = "/runs/one", **changes: Any) -> Entry:
    """Return the entry of a job of 2 nodes with 2 workers, submitted at ``BEGAN``."""
    values: dict[str, Any] = {
        "run": Path(run_dir).name,
        "name": "train",
        "run_dir": str(run_dir),
        "mode": "slurm",
        "num_nodes": 2,
        "local_world_size": 2,
        "submitted": BEGAN.isoformat(),
        "host": "login",
        "job_id": "4711",
    }
    return Entry(**{**values, **changes})


def make_report(state: str = "COMPLETED", exit_code: int = 0, *, attempt: int = 0, **changes: Any) -> Report:
    """Return a report whose only attempt ran from 60 s to 120 s after ``BEGAN``."""
    ended_by = changes.pop("ended_by", "success" if exit_code == 0 else "failure")
    record = {
        "attempt": attempt, "started": at(60).isoformat(), "ended": at(120).isoformat(), "nodes": ["n1", "n2"],
        "ended_by": ended_by, "phases": {"joined": 0.5, "process_group": 2.0},
    }  # fmt: skip
    values: dict[str, Any] = {
        "run": "one", "run_dir": "/runs/one", "job_id": "4711", "state": state, "exit_code": exit_code,
        "failure_class": None, "world_size": 4, "num_nodes": 2, "attempts": (record,),
    }  # fmt: skip
    return Report(**{**values, **changes})


def make_job(word: str, **changes: Any) -> QueuedJob:
    """Return a row of squeue in a state."""
    values: dict[str, Any] = {
        "job_id": "4711", "state": parse_state(word), "word": word, "reason": "", "submitted": at(0), "started": None,
        "ends": None, "num_nodes": "2", "time_limit": "1:00:00", "partition": "gpu", "nodes": "",
    }  # fmt: skip
    return QueuedJob(**{**values, **changes})


def write_lines(path: Path, *items: dict[str, Any]) -> None:
    """Write mappings, one a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
