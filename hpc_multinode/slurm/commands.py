"""Slurm's commands: the only place that runs them."""

from __future__ import annotations

import subprocess

_TIMEOUT_S = 10.0


def find_step(job_id: str, name: str) -> str | None:
    """Return the id of a running step of a job, such as ``4711.0``, by the step's name; None where there is none.

    Args:
        job_id: The job's number.
        name: The step's name, as given to ``srun --job-name``.

    Source:
        squeue(1), --steps, --format.
    """
    words = ["squeue", "--noheader", "--steps", "--jobs", job_id, "--format", "%i %j"]
    for line in (_run(words) or "").splitlines():
        step_id, _, step_name = line.strip().partition(" ")
        if step_name == name:
            return step_id
    return None


def signal_step(step_id: str, signal: str) -> bool:
    """Send a signal to the tasks of a step, and say whether Slurm took it.

    Not by a signal to srun: on SIGTERM it kills the tasks at once.

    Args:
        step_id: Such as ``4711.0``.
        signal: Its name without SIG, such as ``TERM``.

    Source:
        scancel(1), --signal. Tried with 22.05: srun answers a SIGTERM with "forcing job termination".
    """
    return _run(["scancel", f"--signal={signal}", step_id]) is not None


def is_in_queue(job_id: str) -> bool:
    """Say whether a job waits or runs; true as well where Slurm does not answer.

    Args:
        job_id: As Slurm printed it.

    Source:
        squeue(1). Tried: an ended job is first listed no more, and after MinJobAge "Invalid job id specified".
    """
    try:
        ended = subprocess.run(  # noqa: S603 - the words are ours
            ["squeue", "--noheader", "--jobs", job_id, "--format", "%T"],  # noqa: S607 - as it is found on PATH
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    if ended.returncode != 0:
        return "Invalid job id" not in ended.stderr
    return bool(ended.stdout.strip())


def cancel_job(job_id: str) -> None:
    """Cancel a job; one that has ended is none of our concern."""
    _run(["scancel", job_id])


def _run(words: list[str]) -> str | None:
    """Return what a command prints; None where it fails, hangs or is not there."""
    try:
        ended = subprocess.run(  # noqa: S603 - the words are ours
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout if ended.returncode == 0 else None
