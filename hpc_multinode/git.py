"""git: the only place that runs it. Reads repositories, changes nothing in them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hpc_multinode.errors import SubmissionError

# What a hook or an alias of git's hands down, by which git would look into another repository than the folder's own.
_LOCAL_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The files of a repository that are not ignored, nested repositories and submodules included.

    Attributes:
        tracked: Paths relative to its root, as git's index has them; some may be gone from the disk.
        new: Those that git does not track, and does not ignore either.
    """

    tracked: tuple[str, ...]
    new: tuple[str, ...]


def find_repository(folder: Path) -> Path | None:
    """Return the root of the repository that a folder lies in; None where there is none, or no git.

    Raises:
        SubmissionError: git refuses to read it, such as for a repository of somebody else's.
    """
    ended = _run(folder, "rev-parse", "--show-toplevel")
    if ended is None:
        return None
    if ended.returncode == 0:
        return Path(os.fsdecode(ended.stdout.removesuffix(b"\n")))
    said = ended.stderr.decode(errors="replace").strip()
    if "not a git repository" in said:
        return None
    raise SubmissionError(
        what="git cannot read the repository of the work",
        found=f"{folder}: {said}",
        fix="do as git says, or snapshot=false to run the files where they lie",
    )


def list_files(root: Path) -> Listing:
    """List a repository's files.

    Source:
        git-ls-files(1): ``-c`` lists a submodule as one path, ``-o`` a nested repository as one with a slash behind.
    """
    tracked = _list(root, "--cached")
    new = _list(root, "--others", "--exclude-standard")
    inner: list[str] = []
    for name in (name for name in (*tracked, *new) if (root / name).is_dir() and not (root / name).is_symlink()):
        if (root / name / ".git").exists():  # else a submodule that was never fetched
            listing = list_files(root / name)
            tracked += [f"{name.rstrip('/')}/{path}" for path in listing.tracked]
            inner += [f"{name.rstrip('/')}/{path}" for path in listing.new]
    # A path in conflict stands in the index once for each side.
    return Listing(
        tracked=tuple(dict.fromkeys(name for name in tracked if not name.endswith("/"))),
        new=tuple(name for name in (*new, *inner) if not name.endswith("/")),
    )


def read_commit(root: Path) -> str | None:
    """Return the full name of the commit that is checked out; None where there is none yet."""
    ended = _run(root, "rev-parse", "--verify", "--quiet", "HEAD")
    return ended.stdout.decode().strip() or None if ended is not None and ended.returncode == 0 else None


def read_diff(root: Path) -> bytes:
    """Return what tracked files have changed since the commit, staged or not, as a patch for people."""
    ended = _run(root, "diff", "--no-ext-diff", "--no-color", "--submodule=diff", "HEAD", "--")
    return ended.stdout if ended is not None and ended.returncode == 0 else b""


def _list(root: Path, *options: str) -> list[str]:
    ended = _run(root, "ls-files", "-z", *options)
    if ended is None or ended.returncode != 0:
        said = "git is gone" if ended is None else ended.stderr.decode(errors="replace").strip()
        raise SubmissionError(
            what="git cannot list the files of the repository",
            found=f"{root}: {said}",
            fix="do as git says, or snapshot=false to run the files where they lie",
        )
    return [os.fsdecode(name) for name in ended.stdout.split(b"\0") if name]


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes] | None:
    """Run git in a folder; None where there is no git."""
    env = {name: value for name, value in os.environ.items() if name not in _LOCAL_VARIABLES}
    # No lock on the index, which the person may be using, and messages that can be told apart.
    env |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(  # noqa: S603 - the words are ours
            ["git", *words],  # noqa: S607 - the person's own
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError:
        return None
