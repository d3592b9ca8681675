"""Names in a run folder: what is written under them is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.layout import (
    find_attempts,
    find_node_files,
    find_rank_logs,
    has_rank_logs,
    name_attempt,
    name_node_file,
    name_rank_log,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_attempts_are_found_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """The tenth attempt comes after the second, and nothing else in the folder is one."""
    for number in (10, 2, 0):
        name_attempt(tmp_path, number).mkdir()
    (tmp_path / "attempt-x").mkdir()
    assert find_attempts(tmp_path) == (0, 2, 10)


def test_a_folder_that_is_gone_has_no_attempts(tmp_path: Path) -> None:
    """Somebody may remove a run while it is looked at."""
    assert find_attempts(tmp_path / "gone") == ()
    assert not has_rank_logs(tmp_path / "gone")


def test_logs_are_found_by_rank(tmp_path: Path) -> None:
    """By number and not by letters; results and logs of agents are none."""
    for rank in (10, 9):
        name_rank_log(tmp_path, rank).touch()
    (tmp_path / "rank9.result.pkl").touch()
    name_node_file(tmp_path, 0).touch()
    assert list(find_rank_logs(tmp_path)) == [9, 10]


def test_notes_of_agents_are_found_by_node(tmp_path: Path) -> None:
    """Each kind by itself."""
    for node in (11, 2):
        name_node_file(tmp_path, node, "sizes").touch()
    name_node_file(tmp_path, 3, "samples").touch()
    assert list(find_node_files(tmp_path, "sizes")) == [2, 11]


def test_a_run_has_logs_as_soon_as_any_worker_writes(tmp_path: Path) -> None:
    """The folder of an attempt alone is none."""
    folder = name_attempt(tmp_path, 1)
    folder.mkdir()
    assert not has_rank_logs(tmp_path)
    name_rank_log(folder, 3).touch()
    assert has_rank_logs(tmp_path)
