"""``render --check``: whether Slurm would take a job, when it would start, what stands in the way. Submits nothing."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from hpc_multinode.errors import SubmissionError
from hpc_multinode.slurm.commands import read_partitions, try_script
from hpc_multinode.slurm.fitting import Misfit, find_misfits
from hpc_multinode.slurm.leaking import make_submission_env
from hpc_multinode.slurm.partitions import parse_partitions
from hpc_multinode.submission.slurm import render_slurm, require_sbatch

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

_ANSWER = re.compile(
    r"to start at (?P<start>\S+) using \d+ processors? on (?:nodes )?(?P<nodes>\S+)"
    r"(?: in partition (?P<partition>\S+))?"
)
# Slurm's guess for a job behind others without a limit is a year ahead, or centuries.
_IN_SIGHT = timedelta(days=300)


def check_plan(plan: LaunchPlan) -> str:
    """Ask Slurm and return its answer, one line.

    Raises:
        SubmissionError: It would not take the job, or take it and never start it.
    """
    require_sbatch()
    told = read_partitions()
    misfits = find_misfits(plan.sbatch, parse_partitions(*told)) if told is not None else []
    ended = try_script(render_slurm(plan), env=make_submission_env(os.environ))
    if ended is None:
        raise SubmissionError(
            what="Slurm does not answer", found="sbatch --test-only did not end", fix="try again when sinfo answers"
        )
    said = (ended.stderr or ended.stdout).strip()
    if ended.returncode != 0:
        raise _make_error("Slurm would refuse the job", [said], misfits)
    if misfits:
        raise _make_error("Slurm would take the job and never start it", [], misfits)
    return render_answer(said, now=datetime.now())  # noqa: DTZ005 - Slurm writes local times without a zone


def render_answer(said: str, *, now: datetime) -> str:
    """Write Slurm's answer to a job that it would take, for people.

    Args:
        said: What ``sbatch --test-only`` said.
        now: Local time without a zone, as in what it said.
    """
    match = _ANSWER.search(said)
    if match is None:
        return f"accepted: {said}"
    where = f"on {match['nodes']}" + (f" in partition {match['partition']}" if match["partition"] else "")
    try:
        start = datetime.fromisoformat(match["start"])
    except ValueError:
        return f"accepted: would start at {match['start']} {where}"
    if start - now > _IN_SIGHT:
        return f"accepted: {where}, behind jobs whose end is not known"
    wait = timedelta(seconds=max(0, round((start - now).total_seconds())))
    return f"accepted: would start {'now' if not wait else f'at {start.isoformat()}, in {wait}'} {where}"


def _make_error(what: str, said: list[str], misfits: list[Misfit]) -> SubmissionError:
    fixes = list(dict.fromkeys(one.fix for one in misfits))
    return SubmissionError(
        what=what,
        found="\n".join([*said, *(one.found for one in misfits)]),
        fix="\n".join(fixes) or "change what Slurm names; sinfo shows what there is",
    )
