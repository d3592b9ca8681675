"""The person's registry of runs: one small file for each, so that a run is found from any folder and in a new shell.

One file a run, because lines that two machines append to one file over NFS are lost. The same entry lies in the run
folder, for whoever is only told that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import sys
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.commit import find_commit
from hpc_multinode.person import find_state
from hpc_multinode.records import read_time, take_fields
from hpc_multinode.resubmission import find_successor
from hpc_multinode.runs import RunFolder
from hpc_multinode.slurm.jobs import split_job_id

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

ENTRY = "run.json"
_FOLDER = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How a run is found again.

    Attributes:
        run: The run's id.
        name: Its name for people and for Slurm.
        run_dir: Absolute run folder.
        mode: ``slurm``, ``step``, ``allocation``, ``local`` or ``debug``.
        job_id: Slurm's job id, such as ``4711`` or ``4711_3``, of the newest job of the run; None on this machine.
        earlier_job_ids: Jobs that the run was before it went on in a new one.
        resubmitted: When that one was handed in, as ISO 8601 with zone.
        step_id: Number of the step that the agents are, where people started it themselves; else None.
        cluster: Name of the Slurm cluster, where it is known.
        is_remote: It is not the cluster that commands reach by themselves: they have to name it.
        num_nodes: Nodes. Count, at least 1.
        local_world_size: Workers a node. Count, at least 1.
        submitted: When, as ISO 8601 with zone.
        host: Machine that it was submitted from.
        commit: The commit that was checked out where the person stood, if that was in a git checkout.
        pid: Process on that machine that passes a SIGTERM on to the agents and lives as long as the run; None for
            a job.
        pid_started: When that process started, in the kernel's ticks since boot: a pid alone may be somebody else's
            by now.
    """

    run: str
    name: str
    run_dir: str
    mode: str
    num_nodes: int
    local_world_size: int
    submitted: str
    host: str
    job_id: str | None = None
    earlier_job_ids: tuple[str, ...] = ()
    resubmitted: str | None = None
    step_id: str | None = None
    cluster: str | None = None
    is_remote: bool = False
    commit: str | None = None
    pid: int | None = None
    pid_started: int | None = None

    @property
    def world_size(self) -> int:
        """Workers of the whole run."""
        return self.num_nodes * self.local_world_size

    @property
    def named_cluster(self) -> str | None:
        """The cluster that commands have to name, or None."""
        return self.cluster if self.is_remote else None

    @property
    def slurm_id(self) -> str:
        """The job id as our commands take it: ``4711``, or ``4711;alpha`` on another cluster."""
        return f"{self.job_id};{self.cluster}" if self.is_remote else self.job_id or ""

    @property
    def job_ids(self) -> tuple[str, ...]:
        """The jobs that the run has been, the newest last; none on this machine."""
        return (*self.earlier_job_ids, *([self.job_id] if self.job_id is not None else []))

    @property
    def queued_since(self) -> datetime:
        """When the newest job of the run was handed in."""
        return datetime.fromisoformat(self.resubmitted or self.submitted)

    @property
    def path(self) -> Path:
        """The run folder."""
        return Path(self.run_dir)

    @classmethod
    def from_json(cls, text: str) -> Entry:
        """Read an entry; keys of other versions are passed over.

        Raises:
            ValueError: It is no JSON, or has a value that cannot be.
            TypeError: It is no entry.
        """
        known = take_fields(cls, json.loads(text))
        entry = cls(**{**known, "earlier_job_ids": tuple(known.get("earlier_job_ids", ()))})
        read_time(entry.submitted)
        if min(entry.num_nodes, entry.local_world_size) < 1 or not entry.path.is_absolute():
            raise ValueError("an entry has nodes, workers and a folder")
        return entry


def register(
    plan: LaunchPlan,
    *,
    job_id: str | None = None,
    step_id: str | None = None,
    cluster: str | None = None,
    is_remote: bool = False,
    pid: int | None = None,
) -> Entry:
    """Note a run that was submitted or started, and return its entry; a registry that cannot be written stops nothing.

    Args:
        plan: The run, whose folder is there.
        job_id: Slurm's job id, where it has one.
        step_id: Number of the step, where the agents are its tasks.
        cluster: Name of the Slurm cluster, where it is known.
        is_remote: Commands have to name it.
        pid: Process of this machine that passes a SIGTERM on to the agents.
    """
    before = read_entry(Path(plan.run_dir))  # of an earlier attempt, where tasks of srun are requeued
    now = datetime.now(timezone.utc).astimezone().isoformat(timespec="microseconds")
    entry = Entry(
        run=plan.run_id,
        name=plan.name,
        run_dir=plan.run_dir,
        mode=plan.mode,
        num_nodes=plan.num_nodes,
        local_world_size=plan.local_world_size,
        submitted=now if before is None else before.submitted,
        host=socket.gethostname(),
        job_id=job_id,
        step_id=step_id,
        cluster=cluster,
        is_remote=is_remote,
        commit=find_commit(Path(plan.code.root if plan.code is not None else plan.cwd)),
        pid=pid,
        pid_started=None if pid is None else read_start(pid),
    )
    text = json.dumps(asdict(entry)).encode()
    try:
        RunFolder(path=entry.path, is_private=plan.is_private).write(ENTRY, text)
        folder = find_registry()
        if folder is not None:
            _write(folder, _name_of(entry), text)
    except OSError as error:
        print(f"note: the run will not be in `list`, name it by its folder: {error}", file=sys.stderr)  # noqa: T201
    return entry


def register_job(plan: LaunchPlan, job_id: str, *, cluster: str | None) -> Entry:
    """Note a run that was submitted.

    Args:
        plan: The run.
        job_id: Its job's id, with the cluster behind a semicolon where sbatch has named one.
        cluster: The cluster that commands from here reach, where it is known.
    """
    number, named = split_job_id(job_id)
    return register(plan, job_id=number, cluster=named or cluster, is_remote=named is not None)


def find_registry() -> Path | None:
    """Return the folder that holds the entries, or None where there is no home to keep it in."""
    state = find_state(os.environ)
    return None if state is None else state / _FOLDER


def read_entries() -> list[Entry]:
    """Return all runs, newest first; an entry whose run folder was removed is removed as well."""
    folder = find_registry()
    entries = []
    for file in folder.glob("*.json") if folder is not None else ():
        entry = _read(file)
        if entry is None:
            continue
        if entry.path.exists():
            entries.append(follow_job(entry))
        elif entry.path.parent.exists():  # else a file system may not be mounted here
            with contextlib.suppress(OSError):
                file.unlink()
    return sorted(entries, key=lambda entry: datetime.fromisoformat(entry.submitted), reverse=True)


def read_entry(run_dir: Path) -> Entry | None:
    """Return the entry that lies in a run folder, as the folder is found now; None where there is none."""
    entry = _read(run_dir / ENTRY)
    return None if entry is None else follow_job(replace(entry, run_dir=str(run_dir)))


def follow_job(entry: Entry) -> Entry:
    """Return the entry with the job in which the run goes on by now, where it does so in a new one."""
    while entry.mode == "slurm" and entry.job_id is not None:
        successor = find_successor(entry.path, entry.job_id)
        if successor is None or successor.job_id in (entry.job_id, *entry.earlier_job_ids):
            break
        entry = replace(
            entry,
            job_id=successor.job_id,
            earlier_job_ids=(*entry.earlier_job_ids, entry.job_id),
            resubmitted=successor.submitted.isoformat(),
        )
    return entry


def is_alive(entry: Entry) -> bool | None:
    """Say whether the process that holds a run is there; None where that cannot be seen from this machine."""
    if entry.pid is None or entry.host != socket.gethostname():
        return None
    started = read_start(entry.pid)
    return started is not None and started == entry.pid_started


def read_start(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None where it is gone or only its exit code is left.

    Source:
        proc_pid_stat(5), fields 3 (state) and 22 (starttime).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def write_state(name: str, content: bytes) -> None:
    """Write a file of the person's own beside the entries, where that can be done."""
    folder = find_registry()
    if folder is not None:
        with contextlib.suppress(OSError):
            _write(folder.parent, name, content)


def read_state(name: str) -> bytes | None:
    """Return what ``write_state`` wrote last; None where there is nothing."""
    folder = find_registry()
    try:
        return None if folder is None else (folder.parent / name).read_bytes()
    except OSError:
        return None


def _read(file: Path) -> Entry | None:
    try:
        return Entry.from_json(file.read_text())
    except (OSError, ValueError, TypeError):  # gone since, or not ours
        return None


def _name_of(entry: Entry) -> str:
    # Runs of one id may lie below several run roots.
    return f"{entry.run}-{hashlib.sha256(entry.run_dir.encode()).hexdigest()[:8]}.json"


def _write(folder: Path, name: str, content: bytes) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    draft = folder / f".{name}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(folder / name)
