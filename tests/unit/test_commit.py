"""Which commit a folder is at."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.commit import find_commit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a repository with one commit and return a folder in it."""
    _git(tmp_path, "init", "-q")
    folder = tmp_path / "src" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.py").touch()
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    return folder


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("words", [(), ("pack-refs", "--all"), ("checkout", "-q", "--detach")])
def test_commit_is_found_from_below(checkout: Path, words: tuple[str, ...]) -> None:
    """On a branch, with packed refs and without a branch it is what git says."""
    if words:
        _git(checkout, *words)
    assert find_commit(checkout) == _git(checkout, "rev-parse", "HEAD")


def test_commit_of_a_worktree_is_found(checkout: Path, tmp_path: Path) -> None:
    """A worktree's .git is a file."""
    _git(checkout, "worktree", "add", "-q", str(tmp_path / "other"))
    assert find_commit(tmp_path / "other") == _git(checkout, "rev-parse", "HEAD")


def test_without_git_there_is_none(tmp_path: Path) -> None:
    """A plain folder, an empty repository and a broken .git have no commit."""
    assert find_commit(tmp_path / "nowhere") is None
    (tmp_path / ".git").write_text("gitdir: /nowhere/at/all")
    assert find_commit(tmp_path) is None
