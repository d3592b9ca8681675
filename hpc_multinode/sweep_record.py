"""What is written down of a sweep, beside the run folders of its points: which they are, and as which jobs they run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hpc_multinode.resubmission import list_job_ids
from hpc_multinode.runs import SWEEP, RunFolder
from hpc_multinode.slurm.jobs import split_job_id

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPoint:
    """One point; see ``sweep.SweepPoint``."""

    number: int
    words: tuple[str, ...]
    identity: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedArray:
    """A job array that Slurm has taken.

    Attributes:
        job_id: Its id, with the cluster behind a semicolon where it is another one.
        first: The point of its task 0; the other tasks follow.
        numbers: Its points.
    """

    job_id: str
    first: int
    numbers: tuple[int, ...]

    def task_of(self, number: int) -> str:
        """Return a point's own job id as squeue shows it."""
        return f"{split_job_id(self.job_id)[0]}_{number - self.first}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A sweep as it was started.

    Attributes:
        points: Its points, as far as they were started.
        jobs: The job arrays that they are so far; none where they run one after the other.
    """

    points: tuple[RecordedPoint, ...]
    jobs: tuple[SubmittedArray, ...] = ()

    def write(self, folder: RunFolder) -> None:
        """Write it into the sweep's folder, in the place of an earlier one."""
        folder.write(SWEEP, json.dumps(asdict(self), indent=1).encode())

    @classmethod
    def read(cls, folder: Path) -> SweepRecord:
        """Read that of a sweep's folder."""
        data = json.loads((folder / SWEEP).read_text())
        return cls(
            points=tuple(RecordedPoint(**{**point, "words": tuple(point["words"])}) for point in data["points"]),
            jobs=tuple(SubmittedArray(**{**job, "numbers": tuple(job["numbers"])}) for job in data["jobs"]),
        )

    def tasks_of(self, number: int, folder: Path) -> list[str]:
        """Return the job ids of a point of the sweep in this folder, those of jobs in which it went on too."""
        tasks = [array.task_of(number) for array in self.jobs if number in array.numbers]
        return [job_id for task in tasks for job_id in list_job_ids(folder / str(number), task)]
