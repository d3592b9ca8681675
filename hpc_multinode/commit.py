"""Which commit a folder is at, from git's own files: no git is run, which in a large checkout takes long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_MAX_LINKS = 5


def find_commit(folder: Path) -> str | None:
    """Return the commit that is checked out around a folder; None where there is none, or it cannot be read.

    Source:
        gitrepository-layout(5): ``.git`` may be a file that names a folder, as in a worktree; refs may be packed.
    """
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists():
            try:
                return _read_commit(parent / ".git")
            except OSError:
                return None
    return None


def _read_commit(git: Path) -> str | None:
    if git.is_file():
        git = git.parent / git.read_text().partition("gitdir:")[2].strip()
    common = git / (git / "commondir").read_text().strip() if (git / "commondir").exists() else git
    word = (git / "HEAD").read_text().strip()
    for _ in range(_MAX_LINKS):
        if _COMMIT.fullmatch(word):
            return word
        ref = word.partition("ref:")[2].strip()
        loose = next((place / ref for place in (git, common) if ref and (place / ref).is_file()), None)
        word = loose.read_text().strip() if loose is not None else _find_packed(common, ref)
    return None


def _find_packed(git: Path, ref: str) -> str:
    packed = git / "packed-refs"
    lines = packed.read_text().splitlines() if ref and packed.exists() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), "")
