"""What a cluster is made of: the settings, and the names, addresses and folders that follow from them.

Pure but for reading the machine's list of users. Everything that two clusters on one machine must not share is derived
from the root folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import sys
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from tests.slurm_cluster.errors import ClusterError

PROJECT = Path(__file__).resolve().parents[2]
USER_NAME = "hpcuser"
_FIRST_UID = 61500
_MAX_ROOT_LENGTH = 80  # A Unix socket's path has at most 107 characters, and sockets lie below the root.


class Tracker(Enum):
    """How Slurm follows the processes of a job step."""

    AUTO = "auto"
    CGROUP = "cgroup"
    LINUXPROC = "linuxproc"


class SlurmVersion(Enum):
    """The versions of Slurm that the cluster can run."""

    DEBIAN_12 = "22.05"
    DEBIAN_13 = "24.11"


def default_root() -> Path:
    """Return the folder of a cluster that nobody has named a folder for."""
    return Path("/srv/hpc-slurm")


def default_reachable() -> tuple[Path, ...]:
    """Return what a job needs to run this project with this interpreter: the project, the venv, the interpreter."""
    paths = {PROJECT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    paths.add(Path(os.path.realpath(sys.executable)).parents[1])
    return tuple(sorted(path for path in paths if path not in {Path("/"), Path("/usr")}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """Everything about one cluster, decided before it is started.

    Attributes:
        root: Folder that the cluster owns: configuration, logs, state, the shared folder. ``down`` removes it.
        nodes: Number of compute nodes, 1 to 99.
        gpus: Fake GPUs of a node, 0 for none. Device nodes exist, no driver does.
        cpus: CPUs that a node claims to have, whatever the machine has.
        mem_mb: Memory that a node claims to have. MB.
        tracker: Process tracker; ``AUTO`` takes cgroup where the kernel offers it.
        with_dbd: Whether slurmdbd and MariaDB run; without them sacct says that accounting is disabled.
        version: Version of Slurm.
        private_tmp: Whether each host has a /tmp of its own. Else all share one, still not the machine's.
        extra_conf: Lines for the end of slurm.conf, such as ``JobRequeue=0``. A later line wins over an earlier one.
        node_prefix: Start of the nodes' names; empty for one that is unique to the root.
        reachable: Folders that the cluster's user can read under their own paths, whatever lies above them.
        python: Interpreter whose folder comes first on the user's PATH.
    """

    root: Path = field(default_factory=default_root)
    nodes: int = 3
    gpus: int = 2
    cpus: int = 8
    mem_mb: int = 16000
    tracker: Tracker = Tracker.AUTO
    with_dbd: bool = True
    version: SlurmVersion = SlurmVersion.DEBIAN_12
    private_tmp: bool = True
    extra_conf: tuple[str, ...] = ()
    node_prefix: str = ""
    reachable: tuple[Path, ...] = field(default_factory=default_reachable)
    python: Path = field(default_factory=lambda: Path(sys.executable).absolute())

    def __post_init__(self) -> None:
        if not self.root.is_absolute() or len(str(self.root)) > _MAX_ROOT_LENGTH:
            raise ClusterError(
                what="the cluster's root folder is not usable",
                found=f"root = {self.root}",
                fix=f"give an absolute path of at most {_MAX_ROOT_LENGTH} characters: --root /tmp/my-cluster",
            )
        if not 1 <= self.nodes <= 99:
            raise ClusterError(
                what="the number of nodes is out of range", found=f"nodes = {self.nodes}", fix="give 1 to 99 nodes"
            )

    @property
    def tag(self) -> str:
        """Six hex digits that are this root's own."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:6]

    @property
    def node_names(self) -> tuple[str, ...]:
        """Host names of the nodes, in order."""
        prefix = self.node_prefix or ("node" if self.root == default_root() else f"n{self.tag}x")
        return tuple(f"{prefix}{index}" for index in range(1, self.nodes + 1))

    @property
    def uid(self) -> int:
        """User and group number of the cluster's user: one that nobody on this machine has."""
        taken = {entry.pw_uid for entry in pwd.getpwall()}
        return next(uid for uid in range(_FIRST_UID, _FIRST_UID + 500) if uid not in taken)

    @property
    def addresses(self) -> dict[str, str]:
        """Host name to address of all hosts, on a network that only the cluster sees."""
        fixed = {"hpcinfra": "10.231.0.1", "hpcctl": "10.231.0.2", "hpclogin": "10.231.0.3"}
        return fixed | {name: f"10.231.0.{10 + index}" for index, name in enumerate(self.node_names, 1)}

    @property
    def etc(self) -> Path:
        """Folder of slurm.conf and its companions; /etc/slurm on every host."""
        return self.root / "etc"

    @property
    def logs(self) -> Path:
        """Folder of the daemons' logs."""
        return self.root / "log"

    @property
    def shared(self) -> Path:
        """Folder that all hosts share and the cluster's user owns. Same path on the machine and on every host."""
        return self.root / "shared"

    @property
    def home(self) -> Path:
        """Home of the cluster's user, in the shared folder."""
        return self.shared / "home"

    def to_json(self) -> str:
        """Render the settings for a later process that works on the same cluster."""
        plain = asdict(self)
        plain |= {"root": str(self.root), "python": str(self.python), "reachable": [str(p) for p in self.reachable]}
        return json.dumps(plain | {"tracker": self.tracker.value, "version": self.version.value}, indent=1)


def parse_settings(text: str) -> ClusterSettings:
    """Read what ``ClusterSettings.to_json`` has written."""
    plain = json.loads(text)
    plain |= {
        "root": Path(plain["root"]),
        "python": Path(plain["python"]),
        "reachable": tuple(Path(path) for path in plain["reachable"]),
        "extra_conf": tuple(plain["extra_conf"]),
        "tracker": Tracker(plain["tracker"]),
        "version": SlurmVersion(plain["version"]),
    }
    return ClusterSettings(**plain)
