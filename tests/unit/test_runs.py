"""The run folder: its layout and permission bits."""

from __future__ import annotations

import dataclasses
import os
import stat
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError
from hpc_multinode.planning import make_plan
from hpc_multinode.runs import RunFolder
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan


def _plan(root: Path, *, is_private: bool = True) -> LaunchPlan:
    facts = make_facts(run_id="r-1", cwd=str(root), python="/p")
    return make_plan(Config(private=is_private), facts=facts, target=None)


def _bits(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set the process's umask for one test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_new_run_has_what_the_nodes_need(tmp_path: Path) -> None:
    """Plan, configuration, secret and the work as an object; no draft is left."""
    folder = RunFolder.create(_plan(tmp_path), config_text="nodes: 1\n", work_pickle=b"pickle")
    assert folder.path == tmp_path / "runs/r-1"
    assert {path.name for path in folder.path.iterdir()} == {"plan.json", "config.yaml", "secret", "work.pkl"}
    assert (folder.path / "config.yaml").read_text() == "nodes: 1\n"
    assert folder.work_pickle.read_bytes() == b"pickle"
    assert len(folder.read_secret()) == 32


def test_secrets_differ(tmp_path: Path) -> None:
    """Each run has its own secret."""
    plan = _plan(tmp_path)
    other = dataclasses.replace(plan, run_dir=f"{plan.run_dir}-2")
    first, second = (RunFolder.create(p, config_text="") for p in (plan, other))
    assert first.read_secret() != second.read_secret()


def test_a_run_is_opened_as_it_was_made(tmp_path: Path) -> None:
    """A node reads the same plan and the same privacy."""
    plan = _plan(tmp_path, is_private=False)
    made = RunFolder.create(plan, config_text="")
    assert RunFolder.open(made.path) == (made, plan)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(("is_private", "folder_bits", "file_bits"), [(True, 0o700, 0o600), (False, 0o750, 0o640)])
def test_permission_bits_are_ours_whatever_the_umask(
    tmp_path: Path,
    is_private: bool,  # noqa: FBT001
    folder_bits: int,
    file_bits: int,
) -> None:
    """Folders, parents that had to be made, files and logs have their bits, and the umask stays."""
    folder = RunFolder.create(_plan(tmp_path, is_private=is_private), config_text="")
    attempt = folder.attempt(folder.make_next_attempt())
    os.close(folder.open_append(folder.rank_log(0, 0)))
    folders = [folder.path.parent, folder.path, attempt]
    files = [folder.path / "plan.json", folder.path / "secret", folder.rank_log(0, 0)]
    assert [_bits(path) for path in folders] == [folder_bits] * 3
    assert [_bits(path) for path in files] == [file_bits] * 3


def test_folders_of_the_person_are_left_alone(tmp_path: Path) -> None:
    """A run root that was there keeps its bits."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(0o755)
    RunFolder.create(_plan(tmp_path), config_text="")
    assert _bits(tmp_path / "runs") == 0o755


def test_refuses_a_run_that_is_there(tmp_path: Path) -> None:
    """A run never writes into another's folder."""
    RunFolder.create(_plan(tmp_path), config_text="first")
    with pytest.raises(ConfigError) as caught:
        RunFolder.create(_plan(tmp_path), config_text="second")
    assert caught.value.what == "a run of this id is there already"
    assert caught.value.found == f"{tmp_path}/runs/r-1"
    assert caught.value.fix == "leave run_id out, or change it"
    assert (tmp_path / "runs/r-1/config.yaml").read_text() == "first"


def test_refuses_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in the place of a folder is told with what to set."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError) as caught:
        RunFolder.create(_plan(tmp_path), config_text="")
    assert caught.value.what == "the run folder cannot be made: Not a directory"
    assert caught.value.found == f"{tmp_path}/runs/r-1"
    assert caught.value.fix == "run_root=FOLDER that you may write, or set HPC_MULTINODE_RUN_ROOT"


def test_refuses_a_root_that_is_a_dead_link(tmp_path: Path) -> None:
    """A link to nowhere is an error, not an endless search for a parent."""
    (tmp_path / "runs").symlink_to(tmp_path / "gone/deep")
    with pytest.raises(ConfigError, match="the run folder cannot be made: No such file or directory"):
        RunFolder.create(_plan(tmp_path), config_text="")


def test_attempts_are_counted_from_0(tmp_path: Path) -> None:
    """Each attempt takes the next unused number, whoever made the ones before."""
    folder = RunFolder.create(_plan(tmp_path), config_text="")
    folder.make(folder.attempt(1))
    assert [folder.make_next_attempt() for _ in range(3)] == [0, 2, 3]


def test_the_layout_of_an_attempt(tmp_path: Path) -> None:
    """Names of logs and results are those of the documentation."""
    folder = RunFolder(path=tmp_path)
    assert folder.rank_log(2, 11) == tmp_path / "attempt-2/rank11.log"
    assert folder.node_log(2, 1) == tmp_path / "attempt-2/node1.log"
    assert folder.result(0, 3) == tmp_path / "attempt-0/rank3.result.pkl"


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A second write takes the place of the first and leaves no draft."""
    folder = RunFolder(path=tmp_path)
    folder.write("report.json", b"long first text")
    folder.write("report.json", b"second")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("report.json", b"second")]


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    """Two writers of one log do not overwrite each other, and no child inherits it by accident."""
    folder = RunFolder(path=tmp_path)
    first, second = folder.open_append(tmp_path / "x.log"), folder.open_append(tmp_path / "x.log")
    os.write(first, b"a")
    os.write(second, b"b")
    os.write(first, b"c")
    assert (tmp_path / "x.log").read_bytes() == b"abc"
    assert not os.get_inheritable(first)
    os.close(first)
    os.close(second)
