"""The run folder: its layout, and writing into it so that no reader ever sees half a file.

Folders are 0700 and files 0600 (0750 and 0640 for ``private=false``), set on each of them and never by the umask, which
the work would inherit.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from hpc_multinode.assets import AGENT_FOLDER, PACKAGE
from hpc_multinode.errors import ConfigError
from hpc_multinode.layout import find_attempts, name_attempt, name_events, name_node_file, name_rank_log, name_record
from hpc_multinode.plan import LaunchPlan

# What was given to sbatch.
SCRIPT = "submission.sh"
# The snapshot of the person's code, where one was asked for.
CODE = "code"
# What is known of a sweep, in the folder that holds the run folders of its points.
SWEEP = "sweep.json"
_PLAN, _SECRET, _WORK = "plan.json", "secret", "work.pkl"
_SECRET_BYTES = 32
_SHARED_S = 60.0
_LOOK_AGAIN_S = 0.2


def wait_for(path: Path, *, timeout_s: float = _SHARED_S) -> None:
    """Wait until a file or folder that another machine has made shows on this one.

    Args:
        path: What is waited for.
        timeout_s: How long, in seconds; attributes of a shared file system may be cached for a minute.

    Raises:
        ConfigError: It does not show.
    """
    until = time.monotonic() + timeout_s
    while not path.exists():
        if time.monotonic() >= until:
            raise ConfigError(
                what="the run folder is not visible on this node",
                found=f"{path} does not exist on {socket.gethostname()} after {timeout_s:.0f} s",
                fix="run_root=FOLDER on a file system that all nodes share",
            )
        time.sleep(_LOOK_AGAIN_S)


def holds_run(folder: Path) -> bool:
    """Say whether a folder is that of a run, or of a sweep."""
    return (folder / SWEEP).is_file() or ((folder / _PLAN).is_file() and (folder / _SECRET).is_file())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """A run's folder on disk.

    Attributes:
        path: Absolute path.
        is_private: Nobody else may look in.
    """

    path: Path
    is_private: bool = True

    @classmethod
    def create(
        cls, plan: LaunchPlan, *, config_text: str, work_pickle: bytes | None = None, may_exist: bool = False
    ) -> RunFolder:
        """Make the folder of a new run and write what the nodes need into it.

        Args:
            plan: The run.
            config_text: The resolved configuration as YAML.
            work_pickle: The work as an object, where it has no source of its own.
            may_exist: An earlier attempt of the same job step may have made it.

        Raises:
            ConfigError: The folder is there already, or cannot be made.
        """
        path = Path(plan.run_dir)
        if may_exist and os.path.isdir(path):  # noqa: PTH112 - false, and no error, in a folder that is closed to us
            return cls(path=path, is_private=plan.is_private)
        folder = cls.create_empty(path, is_private=plan.is_private)
        files = {"config.yaml": config_text.encode(), _SECRET: secrets.token_bytes(_SECRET_BYTES)}
        if work_pickle is not None:
            files[_WORK] = work_pickle
        try:
            for name, content in {**files, _PLAN: plan.to_json().encode()}.items():
                folder.write(name, content)
            if plan.container is not None:
                folder.make(folder.path / AGENT_FOLDER)
                (folder.path / AGENT_FOLDER / PACKAGE.name).symlink_to(PACKAGE)
        except OSError as error:
            shutil.rmtree(folder.path)
            raise ConfigError(
                what=f"the run folder cannot be written: {error.strerror}",
                found=str(folder.path),
                fix="make room there, or run_root=FOLDER elsewhere",
            ) from None
        return folder

    @classmethod
    def create_empty(cls, path: Path, *, is_private: bool) -> RunFolder:
        """Make a folder of its own for a run, or for a sweep.

        Args:
            path: Absolute path; folders above it are made too.
            is_private: Nobody else may look in.

        Raises:
            ConfigError: The folder is there already, or cannot be made.
        """
        folder = cls(path=path, is_private=is_private)
        try:
            folder._make_parents()
            folder.make(path)
        except FileExistsError:
            raise ConfigError(
                what="a run of this id is there already", found=str(path), fix="leave run_id out, or change it"
            ) from None
        except OSError as error:
            raise ConfigError(
                what=f"the run folder cannot be made: {error.strerror}",
                found=str(path),
                fix="run_root=FOLDER that you may write, or set HPC_MULTINODE_RUN_ROOT",
            ) from None
        return folder

    @classmethod
    def of(cls, path: Path) -> RunFolder:
        """Return a run's folder that is there, as private as it was made."""
        return cls(path=path, is_private=not path.stat().st_mode & 0o050)

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, LaunchPlan]:
        """Open the folder of a run and read its plan, which a slow file system may show late.

        Raises:
            ConfigError: It does not show.
        """
        wait_for(path / _PLAN)
        plan = LaunchPlan.from_json((path / _PLAN).read_text())
        return cls(path=path, is_private=plan.is_private), plan

    def read_secret(self) -> bytes:
        """Return the secret by which the run's agents know each other."""
        return (self.path / _SECRET).read_bytes()

    @property
    def work_pickle(self) -> Path:
        """Where a work that has no source of its own lies."""
        return self.path / _WORK

    def attempt(self, number: int) -> Path:
        """Return the folder of one attempt."""
        return name_attempt(self.path, number)

    def make_next_attempt(self) -> int:
        """Make the folder of the next unused attempt and return its number, from 0."""
        number = 0
        while True:
            try:
                self.make(self.attempt(number))
            except FileExistsError:
                number += 1
            else:
                return number

    def find_newest_attempt(self) -> int:
        """Return the number of the newest attempt, 0 where there is none yet."""
        return max(find_attempts(self.path), default=0)

    def rank_log(self, attempt: int, global_rank: int) -> Path:
        """Return the log of one worker."""
        return name_rank_log(self.attempt(attempt), global_rank)

    def node_log(self, attempt: int, node_rank: int) -> Path:
        """Return the log of one agent."""
        return name_node_file(self.attempt(attempt), node_rank)

    def events(self, attempt: int) -> Path:
        """Return what has happened in one attempt, a JSON object a line."""
        return name_events(self.attempt(attempt))

    def record(self, attempt: int) -> Path:
        """Return how one attempt has ended, as in the report."""
        return name_record(self.attempt(attempt))

    def result(self, attempt: int, global_rank: int) -> Path:
        """Return where a worker leaves its return value."""
        return self.attempt(attempt) / f"rank{global_rank}.result.pkl"

    @property
    def file_mode(self) -> int:
        """Permission bits of our files."""
        return 0o600 if self.is_private else 0o640

    def make(self, path: Path) -> None:
        """Make a folder with our permission bits; FileExistsError where it is there."""
        path.mkdir()
        path.chmod(0o700 if self.is_private else 0o750)

    def open_append(self, path: Path) -> int:
        """Open a log for append and return its file descriptor."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, self.file_mode)
        os.fchmod(descriptor, self.file_mode)
        return descriptor

    def protect_output(self) -> None:
        """Give the files that others opened as our stdout and stderr our permission bits."""
        for descriptor in (1, 2):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, self.file_mode)

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the run in one step: a reader sees all of it or none."""
        path = self.path / name
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self.file_mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, self.file_mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)

    def _make_parents(self) -> None:
        missing = []
        parent = self.path.parent
        while not parent.exists():
            missing.append(parent)
            parent = parent.parent
        for folder in reversed(missing):
            try:
                self.make(folder)
            except FileExistsError:  # another run was first
                continue
