"""Names in a run folder: which file of an attempt lies where, and which are there. Reads and writes none of them."""

from __future__ import annotations

import re
from pathlib import Path

REPORT = "report.json"
_ATTEMPT = re.compile(r"attempt-([0-9]+)", re.ASCII)
_RANK_LOG = re.compile(r"rank([0-9]+)\.log", re.ASCII)
_NODE_FILE = re.compile(r"node([0-9]+)\.([a-z]+)", re.ASCII)


def name_attempt(run_dir: Path, attempt: int) -> Path:
    """Return the folder of one attempt."""
    return run_dir / f"attempt-{attempt}"


def name_rank_log(folder: Path, global_rank: int) -> Path:
    """Return the log of one worker.

    Args:
        folder: The attempt's.
        global_rank: The worker.
    """
    return folder / f"rank{global_rank}.log"


def name_node_file(folder: Path, node_rank: int, suffix: str = "log") -> Path:
    """Return the log of one agent, or what it notes beside that: ``sizes`` of logs, ``samples`` of what is used.

    Args:
        folder: The attempt's.
        node_rank: The node.
        suffix: Which of them.
    """
    return folder / f"node{node_rank}.{suffix}"


def name_record(folder: Path) -> Path:
    """Return how an attempt has ended, as in the report."""
    return folder / "attempt.json"


def name_events(folder: Path) -> Path:
    """Return what has happened in an attempt, a JSON object a line."""
    return folder / "events.jsonl"


def show_rank_logs(run_dir: str, attempt: int) -> str:
    """Return for people where the logs of an attempt's workers are."""
    return f"{name_attempt(Path(run_dir), attempt)}/rank*.log"


def show_agent_log(run_dir: str, job_id: str) -> str:
    """Return for people where a job's batch script and the agent of its node 0 print."""
    return f"{run_dir}/submitit/{job_id}_0_log.out"


def find_attempts(run_dir: Path) -> tuple[int, ...]:
    """Return the attempts that have begun, in order; a folder that is gone has none."""
    try:
        names = [path.name for path in run_dir.iterdir()]
    except OSError:
        return ()
    return tuple(sorted(int(match[1]) for match in map(_ATTEMPT.fullmatch, names) if match is not None))


def find_rank_logs(folder: Path) -> dict[int, Path]:
    """Return the workers' logs of an attempt by global rank, in that order."""
    found = {int(match[1]): path for path in folder.glob("rank*.log") if (match := _RANK_LOG.fullmatch(path.name))}
    return dict(sorted(found.items()))


def find_node_files(folder: Path, suffix: str) -> dict[int, Path]:
    """Return what the agents of an attempt have left by node rank, in that order; see ``name_node_file``."""
    matches = {path: _NODE_FILE.fullmatch(path.name) for path in folder.glob(f"node*.{suffix}")}
    return dict(sorted((int(match[1]), path) for path, match in matches.items() if match is not None))


def has_rank_logs(run_dir: Path) -> bool:
    """Say whether any worker of any attempt has begun to write."""
    return any(find_rank_logs(name_attempt(run_dir, attempt)) for attempt in find_attempts(run_dir))
