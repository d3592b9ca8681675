"""What Slurm says of jobs: its words for states, job ids in all their forms, rows of squeue and sacct. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

UNKNOWN = "UNKNOWN"
# Waits to start, for the first time or again.
QUEUED = frozenset(
    {
        "PENDING", "CONFIGURING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
        "SPECIAL_EXIT", "LAUNCH_FAILED", "RECONFIG_FAIL",
    }
)  # fmt: skip
# Has nodes.
STARTED = frozenset(
    {
        "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "EXPEDITING",
        "UPDATE_DB",
    }
)  # fmt: skip
ACTIVE = QUEUED | STARTED
# Will not change any more, unless Slurm starts the job again.
FINAL = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
        "REVOKED", "TIMEOUT",
    }
)  # fmt: skip
STATES = ACTIVE | FINAL

QUEUE_FORMAT = "%i|%T|%V|%S|%e|%D|%l|%P|%N|%r"
ACCOUNTING_FIELDS = (
    "JobID", "State", "ExitCode", "Submit", "Start", "End", "Timelimit", "AllocCPUS", "ReqMem", "TotalCPU", "MaxRSS",
)  # fmt: skip
_JOB_ID = re.compile(r"(\d+)(?:_(\d+)|_\[([^\]]*)\]?|\+(\d+))?")
_SUBMITTED = re.compile(r"^Submitted batch job ([0-9]+)(?: on cluster (\S+))?\s*$", re.MULTILINE)
_PARSABLE = re.compile(r"^([0-9]+)(?:;(\S+))?\s*$", re.MULTILINE)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
# More tasks than Slurm lets an array have are a broken text, not an array.
_MAX_TASKS = 4_000_001


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One job, or one task of an array, as squeue shows it.

    Attributes:
        job_id: Such as ``4711``, ``4711_3``, ``4711+1``.
        state: One of ``STATES``, or ``UNKNOWN``.
        word: The state as Slurm wrote it.
        reason: Why it is in that state, in Slurm's words; empty where there is none.
        submitted: When it came, or came again after a requeue.
        started: When it started, or for a job that waits is expected to.
        ends: When it ended, or has to.
        num_nodes: Nodes.
        time_limit: As Slurm writes it.
        partition: Where it is.
        nodes: Its nodes in Slurm's short form; empty while it waits.
    """

    job_id: str
    state: str
    word: str
    reason: str
    submitted: datetime | None
    started: datetime | None
    ends: datetime | None
    num_nodes: str
    time_limit: str
    partition: str
    nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountedJob:
    """One job or step as the accounting has it.

    Attributes:
        job_id: As of ``QueuedJob``; a step's is ``4711.0``.
        state: One of ``STATES``, or ``UNKNOWN``.
        exit_code: The exit code, 0 to 255.
        signal: Number of the signal that ended it, or 0.
        submitted: When it came.
        started: When it started.
        ended: When it ended.
        fields: All that was asked for, by the names in ``ACCOUNTING_FIELDS``.
    """

    job_id: str
    state: str
    exit_code: int
    signal: int
    submitted: datetime | None
    started: datetime | None
    ended: datetime | None
    fields: dict[str, str]


def parse_submitted(said: str) -> str | None:
    """Read the job's id from what sbatch printed: a number, or ``5;alpha`` where a cluster is named.

    Args:
        said: Its stdout; banners and a site's wrappers may have written into it too.
    """
    found = _SUBMITTED.findall(said) or _PARSABLE.findall(said)
    if not found:
        return None
    number, cluster = found[-1]
    return f"{number};{cluster}" if cluster else number


def split_job_id(job_id: str) -> tuple[str, str | None]:
    """Split ``5;alpha`` into the number and the cluster, None where it is the one that is asked from here."""
    number, _, cluster = job_id.partition(";")
    return number, cluster or None


def parse_state(text: str) -> str:
    """Read a state, such as ``RUNNING``, ``CANCELLED by 54321``, ``CANCELLED+``.

    Returns:
        One of ``STATES``, else ``UNKNOWN``.

    Source:
        squeue(1), JOB STATE CODES; sacct(1), State; slurm.h of 24.11 for flags.
    """
    word = (text.split() or [""])[0].rstrip("+").upper()
    return word if word in STATES else UNKNOWN


def expand_job_ids(text: str) -> tuple[str, ...]:
    """Return the jobs that an id of squeue stands for: a waiting array is one line with a range of tasks.

    Args:
        text: Such as ``4711``, ``4711_3``, ``4711+1``, ``4711_[1-10%2]``, ``4711_[0-9:2]``, ``4711_[1-3,5,...]``.

    Returns:
        Nothing for a text that is none. What a tool has cut off cannot be known and is left out.
    """
    match = _JOB_ID.fullmatch(text.strip())
    if match is None:
        return ()
    if match[3] is None:
        return (text.strip(),)
    tasks: list[int] = []
    for item in match[3].partition("%")[0].split(","):
        bounds = _RANGE.fullmatch(item.strip())
        if bounds is None:  # "..." or a number that was cut
            continue
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        tasks.extend(range(first, min(last, first + _MAX_TASKS) + 1, int(bounds[3] or 1) or 1))
    return tuple(f"{match[1]}_{task}" for task in tasks)


def parse_time(text: str) -> datetime | None:
    """Read a time that Slurm wrote in this machine's zone; None where it has none."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except ValueError:  # N/A, Unknown, None
        return None


def parse_queue(text: str) -> dict[str, QueuedJob]:
    """Read what squeue prints with ``QUEUE_FORMAT``, by job id; lines that are none are passed over."""
    jobs: dict[str, QueuedJob] = {}
    for line in text.splitlines():
        fields = line.strip().split("|", 9)
        if len(fields) != 10:  # noqa: PLR2004 - as many as QUEUE_FORMAT has
            continue
        for job_id in expand_job_ids(fields[0]):
            jobs[job_id] = QueuedJob(
                job_id=job_id,
                state=parse_state(fields[1]),
                word=fields[1],
                reason="" if fields[9] == "None" else fields[9],
                submitted=parse_time(fields[2]),
                started=parse_time(fields[3]),
                ends=parse_time(fields[4]),
                num_nodes=fields[5],
                time_limit=fields[6],
                partition=fields[7],
                nodes=fields[8],
            )
    return jobs


def parse_accounting(text: str) -> dict[str, AccountedJob]:
    """Read what sacct prints of ``ACCOUNTING_FIELDS``, by job id and step; of a job that ran twice the last time."""
    jobs: dict[str, AccountedJob] = {}
    for line in text.splitlines():
        values = line.strip().split("|")
        if len(values) != len(ACCOUNTING_FIELDS):
            continue
        fields = dict(zip(ACCOUNTING_FIELDS, values, strict=True))
        job_id = fields["JobID"]
        if job_id in jobs and "." not in job_id:  # it ran again: the steps of its earlier runs are not its own
            jobs = {key: job for key, job in jobs.items() if not key.startswith(f"{job_id}.")}
        code, _, signal = fields["ExitCode"].partition(":")
        jobs[job_id] = AccountedJob(
            job_id=job_id,
            state=parse_state(fields["State"]),
            exit_code=int(code) if code.isdigit() else 0,
            signal=int(signal) if signal.isdigit() else 0,
            submitted=parse_time(fields["Submit"]),
            started=parse_time(fields["Start"]),
            ended=parse_time(fields["End"]),
            fields=fields,
        )
    return jobs


def find_accounted(jobs: dict[str, AccountedJob], job_id: str) -> AccountedJob | None:
    """Return a job's row, or that of its step where the step knows better.

    A batch script whose last command succeeds is COMPLETED although its step was not, and memory that ran out in a
    step may leave the job with another word.
    """
    job = jobs.get(job_id)
    if job is None:
        return None
    steps = [one for key, one in jobs.items() if key.startswith(f"{job_id}.") and key.rpartition(".")[2].isdigit()]
    for step in steps:
        if step.state == "OUT_OF_MEMORY" and job.state in ("COMPLETED", "FAILED", "CANCELLED"):
            return step
        if job.state == "COMPLETED" and step.state in FINAL - {"COMPLETED"}:
            return step
    return job
