"""A run as submitit's own job, for those who have code around that: one task of it for each worker.

What submitit's Python API reads is found where our runs keep it: results and logs of the newest attempt, a failure in
the report.
"""

from __future__ import annotations

import pickle
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import submitit
from submitit.core.utils import JobPaths

from hpc_multinode.layout import REPORT
from hpc_multinode.report import Report, render_report
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    import subprocess

    from hpc_multinode.plan import LaunchPlan


def make_job(plan: LaunchPlan, *, job_id: str, process: subprocess.Popen[bytes] | None) -> submitit.Job[Any]:
    """Return a run as a job of submitit's.

    Args:
        plan: The run.
        job_id: Slurm's, or on this machine the number of the process.
        process: submitit's controller on this machine; None for a job of Slurm's.
    """
    folder, tasks = f"{plan.run_dir}/submitit", tuple(range(plan.world_size))
    if process is None:
        return _SlurmJob(folder, job_id, tasks)
    return _LocalJob(folder, job_id, tasks, process)


class _Paths(JobPaths):
    """Where a worker's result and log are."""

    @property
    def _run_folder(self) -> RunFolder:
        return RunFolder.of(Path(self.folder).parent)

    @property
    def result_pickle(self) -> Path:
        """The worker's result; its failure, made from the report, where the run has failed."""
        folder, rank = self._run_folder, int(self.task_id or 0)
        path = folder.result(folder.find_newest_attempt(), rank)
        if not path.exists() and (folder.path / REPORT).exists():
            report = Report.read(folder.path)
            if report.exit_code != 0:
                path = Path(self.folder) / f"rank{rank}.failure.pkl"
                folder.write(f"submitit/{path.name}", pickle.dumps(("error", render_report(report))))
        return path

    @property
    def stdout(self) -> Path:
        """The worker's log."""
        folder = self._run_folder
        return folder.rank_log(folder.find_newest_attempt(), int(self.task_id or 0))


class _SlurmJob(submitit.SlurmJob[Any]):
    """A job of Slurm's, whose files are ours."""

    def __init__(self, folder: str, job_id: str, tasks: tuple[int, ...] = (0,)) -> None:
        super().__init__(folder, job_id, tasks)
        self._paths = _Paths(folder, job_id=job_id, task_id=self.task_id)


class _LocalJob(submitit.LocalJob[Any]):
    """A run on this machine, whose files are ours."""

    def __init__(
        self,
        folder: str,
        job_id: str,
        tasks: tuple[int, ...] = (0,),
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        super().__init__(folder, job_id, tasks, process)
        self._paths = _Paths(folder, job_id=job_id, task_id=self.task_id)

    def cancel(self, check: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - submitit's own signature
        """End the run as Ctrl-C would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
