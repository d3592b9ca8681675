"""Slurm's commands: the only place that runs them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

from hpc_multinode.slurm.ends import JobFacts
from hpc_multinode.slurm.jobs import ACCOUNTING_FIELDS, QUEUE_FORMAT, split_job_id
from hpc_multinode.slurm.partitions import NODE_FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_S = 10.0
_ASK_AGAIN, _ASK_AGAIN_S = 2, 0.3
# sbatch itself gives up after MessageTimeout, and asks again where Slurm is busy; this is for one that hangs.
_SUBMIT_TIMEOUT_S = 300.0
# Variables by which a person changes what the commands print for themselves; we ask for what we can read.
_PERSONAL = ("SQUEUE_", "SACCT_", "SCANCEL_", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN")
_DEFAULT_ARRAY_SIZE = 1001


def submit_script(script: str, *, env: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Give a script to sbatch and return what it answered; None where it did not within five minutes.

    Args:
        script: Absolute path, by which the job can be found again.
        env: All variables of sbatch, which it hands on to the job.
    """
    return _run(["sbatch", script], env=env, timeout_s=_SUBMIT_TIMEOUT_S)


def try_script(text: str, *, env: Mapping[str, str]) -> subprocess.CompletedProcess[str] | None:
    """Ask sbatch whether it would take a script, which is not submitted; None where it does not answer.

    Args:
        text: The script.
        env: All variables of sbatch.

    Source:
        sbatch(1), --test-only. It answers on stderr.
    """
    return _run(["sbatch", "--test-only"], env=env, timeout_s=_SUBMIT_TIMEOUT_S, text_in=text)


def read_partitions() -> tuple[str, str] | None:
    """Return what ``slurm.partitions`` reads of partitions and of nodes; None where Slurm does not answer."""
    partitions = _run(["scontrol", "show", "partition", "--oneliner"])
    nodes = _run(["sinfo", "--noheader", "--Node", "--format", NODE_FORMAT])
    if partitions is None or nodes is None or partitions.returncode or nodes.returncode:
        return None
    return partitions.stdout, nodes.stdout


def find_job_of_script(script: str, *, user: str) -> str | None:
    """Return the id of a job by the path of its script, also if it has just ended; None where there is none.

    Args:
        script: Absolute path, as it was given to sbatch.
        user: Whose job it is.

    Source:
        squeue(1), --format: %F is the job's id, for an array that of the whole, %o its command.
    """
    ended = _run(["squeue", "--noheader", "--states=all", "--user", user, "--format", "%F %o"])
    for line in ended.stdout.splitlines() if ended is not None else ():
        job_id, _, command = line.strip().partition(" ")
        if command == script:
            return job_id
    return None


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
        job_id: As ``sbatch --parsable`` prints it: a number, and behind a semicolon a cluster where it is another one.

    Source:
        squeue(1). Tried: an ended job is first listed no more, and after MinJobAge "Invalid job id specified".
    """
    number, cluster = _name_job(job_id)
    ended = _run(["squeue", "--noheader", *cluster, "--jobs", number, "--format", "%T"])
    if ended is None:
        return True
    if ended.returncode != 0:
        return "Invalid job id" not in ended.stderr
    return bool(ended.stdout.strip())


def cancel_job(job_id: str) -> str:
    """Cancel a job, and return Slurm's words where it refuses; one that has ended is none of our concern.

    Source:
        scancel(1). Tried: rc 1 with "Invalid job id specified" for a job that is forgotten.
    """
    number, cluster = _name_job(job_id)
    ended = _run(["scancel", *cluster, number])
    if ended is None:
        return "scancel does not answer"
    if ended.returncode == 0 or "Invalid job id" in ended.stderr or "already complet" in ended.stderr:
        return ""
    return ended.stderr.strip() or f"scancel ended with {ended.returncode}"


def list_queued_jobs(user: str) -> set[str] | None:
    """Return the ids of a person's jobs that wait or run, tasks of arrays one by one; None where squeue does not say.

    Args:
        user: Login name.

    Source:
        squeue(1), --array, --format: %i is 4700_3 for a task of an array.
    """
    ended = _run(["squeue", "--noheader", "--array", "--user", user, "--format", "%i"])
    return set(ended.stdout.split()) if ended is not None and ended.returncode == 0 else None


def find_max_array_size() -> int:
    """Return one more than the largest number that a task of a job array may have; Slurm's default if it is not told.

    Source:
        slurm.conf(5), MaxArraySize. scontrol(1), show config.
    """
    found = _find_setting("MaxArraySize")
    return max(1, int(found)) if found is not None and found.isdigit() else _DEFAULT_ARRAY_SIZE


def list_queue(cluster: str | None) -> str | None:
    """Return the rows of squeue for this person's jobs, ended ones too as long as Slurm remembers them.

    Args:
        cluster: Name of the cluster; None: the one that commands from here reach.

    Returns:
        Lines in ``QUEUE_FORMAT``; None where Slurm does not answer.

    Source:
        squeue(1), --array, --states=all, --clusters.
    """
    whose = ["--user", str(os.getuid()), *([f"--clusters={cluster}"] if cluster is not None else [])]
    ended = _run(["squeue", "--noheader", "--array", "--states=all", *whose, f"--format={QUEUE_FORMAT}"])
    return None if ended is None or ended.returncode != 0 else ended.stdout


def list_steps() -> dict[str, str] | None:
    """Return this person's running steps, id such as ``4711.0`` to name; None where Slurm does not answer.

    Source:
        squeue(1), --steps.
    """
    ended = _run(["squeue", "--noheader", "--steps", "--user", str(os.getuid()), "--format=%i %j"])
    if ended is None or ended.returncode != 0:
        return None
    rows = [line.strip().partition(" ") for line in ended.stdout.splitlines()]
    return {step_id: name for step_id, _, name in rows}


def list_accounting(job_ids: tuple[str, ...], cluster: str | None) -> str | None:
    """Return what the accounting has of some jobs and their steps; None where there is none, or it does not answer.

    Source:
        sacct(1), --duplicates: of a job that was requeued all runs, in order.
    """
    where = [f"--clusters={cluster}"] if cluster is not None else []
    what = [f"--format={','.join(ACCOUNTING_FIELDS)}", "--jobs", ",".join(job_ids)]
    ended = _run(["sacct", "--noheader", "--parsable2", "--duplicates", *where, *what])
    # Without accounting it says so, with rc 1; with an absent database rc is 1 as well.
    return None if ended is None or ended.returncode != 0 else ended.stdout


def show_job(job_id: str) -> dict[str, str] | None:
    """Return what the controller knows of a job, by Slurm's names; None where it does not answer or know it.

    Source:
        scontrol(1), show job --oneliner. Values with blanks (a command, a comment) are cut at the first.
    """
    number, cluster = _name_job(job_id)
    ended = _run(["scontrol", *cluster, "--oneliner", "show", "job", number])
    if ended is None or ended.returncode != 0 or not ended.stdout.strip():
        return None
    return dict(re.findall(r"(\S+?)=(\S*)", ended.stdout.splitlines()[-1]))


def find_cluster_name() -> str | None:
    """Return the name of the cluster that commands from here reach; None where Slurm does not answer.

    Source:
        scontrol(1), show config.
    """
    return _find_setting("ClusterName")


def find_kill_wait() -> float | None:
    """Return the seconds that Slurm leaves between SIGTERM and SIGKILL; None where it does not answer.

    Source:
        slurm.conf(5), KillWait; scontrol(1), show config.
    """
    found = _find_setting("KillWait")  # such as "30 sec"
    return float(found) if found is not None and found.isdigit() else None


def _find_setting(name: str) -> str | None:
    ended = _run(["scontrol", "show", "config"])
    found = re.search(rf"^{name}\s*=\s*(\S+)", ended.stdout, re.MULTILINE) if ended is not None else None
    return found[1] if found is not None else None


def ask_job(job_id: str, *, restart_count: int) -> JobFacts:
    """Gather what Slurm says of a job that has just got a signal; it may be busy, so it is asked again.

    Args:
        job_id: The job.
        restart_count: As of ``JobFacts``.
    """
    job = show_job(job_id)
    for _ in range(_ASK_AGAIN):
        if job is not None:
            break
        time.sleep(_ASK_AGAIN_S)
        job = show_job(job_id)
    grace_s = _find_grace((job or {}).get("Partition"))
    return JobFacts(job=job, kill_wait_s=find_kill_wait(), grace_s=grace_s, restart_count=restart_count)


def _find_grace(partition: str | None) -> float | None:
    """Return the seconds that a preempted job of a partition is left.

    Source:
        slurm.conf(5), GraceTime; scontrol(1), show partition.
    """
    ended = _run(["scontrol", "--oneliner", "show", "partition", partition]) if partition else None
    found = re.search(r"\bGraceTime=(\d+)", ended.stdout) if ended is not None else None
    return float(found[1]) if found else None


def requeue_job(job_id: str) -> str | None:
    """Put a running job back into the queue, which ends all that runs in it; return Slurm's words where it refuses.

    Source:
        scontrol(1), requeue. It takes one task of an array as ``4700_3``.
    """
    ended = _run(["scontrol", "requeue", job_id])
    if ended is None:
        return "scontrol is not there, or does not answer"
    return None if ended.returncode == 0 else ended.stderr.strip() or f"scontrol ended with {ended.returncode}"


def _name_job(job_id: str) -> tuple[str, list[str]]:
    """Return a job's number and the option that names its cluster, where that is another one."""
    number, cluster = split_job_id(job_id)
    return number, [] if cluster is None else [f"--clusters={cluster}"]


def _run(
    words: list[str], *, env: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S, text_in: str = ""
) -> subprocess.CompletedProcess[str] | None:
    """Run a command; None where it hangs or is not there."""
    if env is None:
        env = {name: value for name, value in os.environ.items() if not name.startswith(_PERSONAL)}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(  # noqa: S603 - the words are ours
            words, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", env=env
        )
    except OSError:
        return None
    with process:
        try:
            out, err = process.communicate(text_in, timeout=timeout_s)
        except BaseException as error:
            process.kill()
            process.wait()  # also after a Ctrl-C, so that it is gone for sure
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)
