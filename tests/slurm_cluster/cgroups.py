"""Which control groups the machine's kernel offers to Slurm, and the removal of those that Slurm has made.

Slurm's cgroup/v1 keeps a node's processes in ``<controller>/slurm_<node>``. The names of two clusters' nodes differ, so
their groups do too.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.settings import Tracker

if TYPE_CHECKING:
    from collections.abc import Sequence

CGROUP_ROOT = Path("/sys/fs/cgroup")
_NEEDED_V1 = ("freezer", "memory")
_REMOVAL_TIMEOUT_S = 5.0


def choose_tracker(wanted: Tracker, *, cgroup_root: Path = CGROUP_ROOT) -> Tracker:
    """Return the process tracker to use on this machine.

    Args:
        wanted: What the settings say; ``AUTO`` is cgroup where it is possible.
        cgroup_root: Where the control groups are mounted.

    Raises:
        ClusterError: cgroup is wanted and the machine does not offer it.
    """
    missing = [name for name in _NEEDED_V1 if not (cgroup_root / name / "release_agent").exists()]
    if wanted is Tracker.AUTO:
        return Tracker.LINUXPROC if missing else Tracker.CGROUP
    if wanted is Tracker.CGROUP and missing:
        version = "2" if (cgroup_root / "cgroup.controllers").exists() else "1"
        raise ClusterError(
            what="the tracker cgroup is not possible on this machine",
            found=f"cgroup version {version} at {cgroup_root}, without a version 1 hierarchy of {', '.join(missing)}",
            fix="use --tracker linuxproc, or boot with systemd.unified_cgroup_hierarchy=0",
        )
    return wanted


def find_cgroups(nodes: Sequence[str], *, cgroup_root: Path = CGROUP_ROOT) -> list[Path]:
    """Return the top control groups that Slurm has made for these nodes."""
    return [path for node in nodes for path in sorted(cgroup_root.glob(f"*/slurm_{node}"))]


def remove_cgroups(nodes: Sequence[str]) -> None:
    """Remove the control groups of nodes whose processes are gone."""
    for top in find_cgroups(nodes):
        deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
        while top.exists() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            if top.exists():
                time.sleep(0.05)
