"""What a run waits for: ``after=RUN`` becomes a dependency of its job.

Reads run folders and the registry, and asks squeue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError
from hpc_multinode.life.files import read_report
from hpc_multinode.life.finding import find_run
from hpc_multinode.registry import read_entries
from hpc_multinode.runs import SWEEP
from hpc_multinode.slurm.commands import is_in_queue, list_queued_jobs
from hpc_multinode.slurm.jobs import split_job_id
from hpc_multinode.sweep_record import SweepRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.registry import Entry

# What sbatch waits for by each kind; the first is meant where none is given.
KINDS = ("afterok", "afterany", "afternotok", "aftercorr")
# All earlier jobs of the same name, and sbatch's word for it.
_CHAIN, _SINGLETON = "chain", "singleton"
_OPTION = "dependency"
_JOB_ID = re.compile(r"\d+(_\d+)?")
_JOB_IDS = re.compile(r"\d+(_\d+)?(:\d+(_\d+)?)+")
_KIND = re.compile(r"([a-z]+):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A run, or the runs of a sweep, that are waited for.

    Attributes:
        job_ids: The jobs, as sbatch takes them.
        has_succeeded: How it ended; None where it has not.
    """

    job_ids: tuple[str, ...]
    has_succeeded: bool | None = None


def wait_after(plan: LaunchPlan, after: str) -> LaunchPlan:
    """Let a plan's job wait for what ``after`` names.

    Args:
        plan: The run; its run root is where others are looked for.
        after: The key's value.

    Raises:
        ConfigError: There is no such run, it has ended the other way, or nothing can wait in this mode.
    """
    if plan.mode != "slurm":
        raise ConfigError(
            what="after is for jobs that wait in Slurm's queue",
            found=f"after={after}, cluster.mode={plan.mode}",
            fix="cluster=slurm, or start the one when the other has ended",
        )
    if _OPTION in plan.sbatch:
        raise ConfigError(
            what=f"--{_OPTION} is given twice",
            found=f"after={after}, resources.sbatch.{_OPTION}={plan.sbatch[_OPTION]}",
            fix=f"remove resources.sbatch.{_OPTION}",
        )
    run_root = Path(plan.run_dir).parent
    dependency = make_dependency(after, find=lambda run: find_earlier(run, run_root=run_root, user=plan.user))
    return plan if dependency is None else replace(plan, sbatch={**plan.sbatch, _OPTION: dependency})


def make_dependency(after: str, *, find: Callable[[str], Earlier]) -> str | None:
    """Return what ``--dependency`` gets; None where all that is waited for has ended as it should.

    Args:
        after: ``RUN``, ``KIND:RUN`` or ``KIND:RUN,RUN``; or ``chain``.
        find: Looks a run up, by whatever it is named.

    Raises:
        ConfigError: There is no such kind, or a run has ended the other way.

    Source:
        sbatch(1), --dependency.
    """
    if after.strip() == _CHAIN:
        return _SINGLETON
    kind, runs = _parse(after)
    earlier = [find(run) for run in runs]
    wanted = {"afterany": None, "afternotok": False}.get(kind, True)
    if wanted is not None and any(one.has_succeeded == (not wanted) for one in earlier):
        raise ConfigError(
            what=f"this would wait for ever: the earlier run has {'failed' if wanted else 'succeeded'}",
            found=f"after={after}",
            fix="leave after out, or after=afterany:RUN, which does not ask how it ended",
        )
    waited = [job_id for one in earlier if one.has_succeeded is None for job_id in one.job_ids]
    return f"{kind}:{':'.join(dict.fromkeys(waited))}" if waited else None


def find_earlier(run: str, *, run_root: Path, user: str) -> Earlier:
    """Find a job, a run or a sweep.

    Args:
        run: A job id, a run folder, a run's id or its beginning, a name; or the folder or id of a sweep.
        run_root: Where sweeps are looked for by their id.
        user: Whose jobs they are.

    Raises:
        ConfigError: There is none, there are several, or no job of it is known.
    """
    if _JOB_ID.fullmatch(run):
        return _find_job(run)
    sweep = next((path for path in (Path(run).expanduser(), run_root / run) if (path / SWEEP).is_file()), None)
    earlier = _find_sweep(sweep, user) if sweep is not None else _find_run(find_run(run))
    if earlier.has_succeeded is None and not earlier.job_ids:
        raise ConfigError(
            what="there is nothing to wait for: the earlier run has neither a report nor a job in the queue",
            found=f"after={run}",
            fix="leave after out, or name it by its job id",
        )
    return earlier


def _find_sweep(folder: Path, user: str) -> Earlier:
    record = SweepRecord.read(folder)
    queue = list_queued_jobs(user) or set()
    ends = [
        None if queue & set(record.tasks_of(point.number, folder)) else _read_end(folder / str(point.number))
        for point in record.points
    ]
    return Earlier(
        job_ids=tuple(split_job_id(array.job_id)[0] for array in record.jobs),
        has_succeeded=False if False in ends else None if None in ends else True,
    )


def _find_run(entry: Entry) -> Earlier:
    """Find what has become of a run; the report of a job that waits again is not its last word."""
    if entry.mode == "slurm" and entry.job_id is not None and is_in_queue(entry.slurm_id):
        return Earlier(job_ids=(entry.job_id,))
    return Earlier(job_ids=(), has_succeeded=_read_end(entry.path))


def _find_job(job_id: str) -> Earlier:
    """Find a job in the queue, or what has become of it: Slurm forgets its jobs, and then takes any as well ended."""
    if is_in_queue(job_id):
        return Earlier(job_ids=(job_id,))
    runs = [entry for entry in read_entries() if any(_is_of(own, job_id) for own in entry.job_ids)]
    newer = [entry.job_id for entry in runs if entry.earlier_job_ids and entry.job_id and is_in_queue(entry.job_id)]
    if newer:
        return Earlier(job_ids=tuple(newer))
    ends = [_read_end(entry.path) for entry in runs]
    if not ends or None in ends:
        raise ConfigError(
            what="no job of this id waits or runs",
            found=f"after={job_id}: squeue does not list it, and no report of yours was this job's",
            fix="squeue --me shows those that do; leave after out if it has ended well",
        )
    return Earlier(job_ids=(job_id,), has_succeeded=all(ends))


def _is_of(own: str, job_id: str) -> bool:
    """Say whether a job is the one that is meant, or a task of the array that is."""
    return job_id in (own, own.partition("_")[0])


def _parse(after: str) -> tuple[str, list[str]]:
    found = _KIND.fullmatch(after.strip())
    kind, text = (found[1], found[2]) if found else (KINDS[0], after)
    # Job ids may also stand as Slurm writes them; a folder's name may hold a colon.
    parts = [part.strip() for part in text.split(",")]
    runs = [run for part in parts for run in (part.split(":") if _JOB_IDS.fullmatch(part) else [part])]
    if kind not in KINDS or "" in runs:
        raise ConfigError(
            what="after does not say what to wait for",
            found=f"after={after}",
            fix=f"after=RUN or after=KIND:RUN, where RUN is a job id, a run folder or a run's id, and KIND one of"
            f" {', '.join(KINDS)}; or after={_CHAIN} for all earlier jobs of the same name",
        )
    return kind, runs


def _read_end(folder: Path) -> bool | None:
    report = read_report(folder)
    return None if report is None else report.exit_code == 0
