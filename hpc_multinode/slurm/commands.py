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
    ended = _run(words)
    for line in ended.stdout.splitlines() if ended is not None else ():
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
    ended = _run(["scancel", f"--signal={signal}", step_id])
    return ended is not None and ended.returncode == 0


def is_in_queue(job_id: str) -> bool:
    """Say whether a job waits or runs; true as well where Slurm does not answer.

    Args:
        job_id: As Slurm printed it.

    Source:
        squeue(1). Tried: an ended job is first listed no more, and after MinJobAge "Invalid job id specified".
    """
    ended = _run(["squeue", "--noheader", "--jobs", job_id, "--format", "%T"])
    if ended is None:
        return True
    if ended.returncode != 0:
        return "Invalid job id" not in ended.stderr
    return bool(ended.stdout.strip())


def cancel_job(job_id: str) -> None:
    """Cancel a job; one that has ended is none of our concern."""
    _run(["scancel", job_id])


def _run(words: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command; None where it hangs or is not there."""
    try:
        return subprocess.run(  # noqa: S603 - the words are ours
            words, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
