"""What cgroups of both versions say of processes that were killed for want of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpc_multinode.node.memory import count_oom_kills

if TYPE_CHECKING:
    from pathlib import Path


def count(tmp_path: Path, cgroups: str, files: dict[str, str]) -> int:
    """Lay out a cgroup file system and count."""
    (tmp_path / "cgroup").write_text(cgroups)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return count_oom_kills(cgroups=tmp_path / "cgroup", root=tmp_path / "fs")


def test_version_1(tmp_path: Path) -> None:
    """The memory controller's own file tells."""
    cgroups = "5:cpu,cpuacct:/\n4:memory:/slurm/uid_1/job_2/step_0/task_1\n0::/\n"
    files = {"memory/slurm/uid_1/job_2/step_0/task_1/memory.oom_control": "under_oom 0\noom_kill 2\n"}
    assert count(tmp_path, cgroups, files) == 2


def test_version_2(tmp_path: Path) -> None:
    """memory.events of the one cgroup tells; oom counts what was not killed as well."""
    files = {"system.slice/step_0/memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n"}
    assert count(tmp_path, "0::/system.slice/step_0\n", files) == 3


def test_container(tmp_path: Path) -> None:
    """In a container the path is that of the host, while the own cgroup is the root of what is mounted."""
    assert count(tmp_path, "0::/../other\n", {"memory.events": "oom_kill 1\n"}) == 1


@pytest.mark.parametrize("cgroups", ["", "0::/\n", "4:memory:/\n", "3:devices:/\n"])
def test_nobody_tells(tmp_path: Path, cgroups: str) -> None:
    """Without the files nothing is counted."""
    assert count(tmp_path, cgroups, {}) == 0


def test_no_cgroups(tmp_path: Path) -> None:
    """A system without cgroups counts nothing."""
    assert count_oom_kills(cgroups=tmp_path / "none") == 0
