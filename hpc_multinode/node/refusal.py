"""What follows a requeue that the batch script could not do: it is in the report, and the job gets the code for it."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hpc_multinode.node.ending import STAY_S, Ending, refuse_requeue
from hpc_multinode.node.history import write_records
from hpc_multinode.report import Report
from hpc_multinode.resubmission import REFUSAL, REQUEST

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder


def report_refusal(folder: RunFolder, plan: LaunchPlan, *, job_id: str) -> int:
    """Write into the report of a run that it does not go on, and return the exit code.

    Args:
        folder: The run's folder.
        plan: The run.
        job_id: The job's id, of a task in an array as ``4711_3``.
    """
    report = Report.read(folder.path)
    last = report.attempts[-1]
    said = (folder.path / f"{REQUEST}{job_id}{REFUSAL}").read_text(errors="replace").strip()
    ending = refuse_requeue(
        plan,
        Ending(
            state=report.state,
            exit_code=report.exit_code,
            failure_class=report.failure_class,
            ended_by=last["ended_by"],
            notes=report.notes,
        ),
        why=said or "nobody said why",
    )
    record = {**last, "ended_by": ending.ended_by, "requeued": False}
    refused = replace(
        report,
        state=ending.state,
        exit_code=ending.exit_code,
        attempts=(*report.attempts[:-1], record),
        notes=ending.notes,
    )
    write_records(folder, [record])
    refused.write(folder)
    print(f"error: {ending.notes[-1]}", file=sys.stderr)  # noqa: T201 - into the job's log
    if ending.stays:
        time.sleep(STAY_S)
    return ending.exit_code
