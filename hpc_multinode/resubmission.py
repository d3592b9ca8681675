"""A run that goes on in a new job: by which files of its folder agents, batch script and login side know of it.

Node 0's agent leaves a request, the batch script carries it out when srun has ended, and what sbatch answers is at once
the note of which job it is. Reads those files; writes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from hpc_multinode.slurm.jobs import parse_submitted, split_job_id

if TYPE_CHECKING:
    from pathlib import Path

# A request bears the job's id behind this; the script that was handed in, sbatch's answer and its words where it
# refuses lie beside it.
REQUEST = "requeue-"
SCRIPT, ANSWER, REFUSAL = ".sh", ".out", ".err"
# By this word an agent is started to tell that the request was refused.
REFUSED = "--refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """The job in which a run goes on.

    Attributes:
        job_id: Slurm's job id, such as ``4712`` or ``4712_3``.
        submitted: When it was handed in.
    """

    job_id: str
    submitted: datetime


def find_successor(run_dir: Path, job_id: str) -> Successor | None:
    """Return the job in which a run goes on after this one; None where there is none.

    Args:
        run_dir: The run folder.
        job_id: The earlier job's id, of a task in an array as ``4711_3``.
    """
    path = run_dir / f"{REQUEST}{job_id}{ANSWER}"
    try:
        said, changed = path.read_text(errors="replace"), path.stat().st_mtime
    except OSError:
        return None
    found = parse_submitted(said)
    if found is None:
        return None
    _, _, task = job_id.partition("_")
    number, _ = split_job_id(found)
    return Successor(
        job_id=f"{number}_{task}" if task else number, submitted=datetime.fromtimestamp(changed, tz=timezone.utc)
    )


def list_job_ids(run_dir: Path, job_id: str) -> tuple[str, ...]:
    """Return the jobs of a run in order: this one, and those in which it went on."""
    found = [job_id]
    while (successor := find_successor(run_dir, found[-1])) is not None and successor.job_id not in found:
        found.append(successor.job_id)
    return tuple(found)
