"""The snapshot: the person's code as it is on disk, copied into the run folder, where the workers then run.

What belongs to it is found and measured before anything is written (``find_code``), the plan is pointed at the copy
(``move_plan``, pure), and the copy is made once the run folder is there (``take_snapshot``).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError, SubmissionError
from hpc_multinode.git import find_repository, list_files, read_commit, read_diff
from hpc_multinode.plan import CodePlan
from hpc_multinode.runs import CODE, holds_run
from hpc_multinode.work import find_package_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

# Beside the copy: what is known of its origin, and what had changed since the commit.
ORIGIN, DIFF = "code.json", "code.diff"
_MB = 10**6
_SHOWN = 3
_SHORT_COMMIT = 12
# The permission bits by which a file may be read; two places on are those by which it may be run.
_READ = 0o444


@dataclass(frozen=True, kw_only=True)
class Code:
    """What a snapshot copies.

    Attributes:
        root: Absolute folder.
        has_git: git has said what belongs to it.
        sizes: Its regular files and links by their path relative to the root, as far as they are on disk, each with its
            size in bytes.
        new: Those of them that git does not track.
    """

    root: Path
    has_git: bool
    sizes: dict[str, int]
    new: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum(self.sizes.values())

    @cached_property
    def folders(self) -> frozenset[str]:
        """The folders that hold files, relative to the root, which is a dot."""
        return frozenset(str(parent) for name in self.sizes for parent in PurePosixPath(name).parents)

    def holds(self, path: Path | str) -> bool:
        """Say whether a file, or a folder with files in it, is copied."""
        try:
            name = str(PurePosixPath(path).relative_to(self.root))
        except ValueError:
            return False
        return name in self.sizes or name in self.folders


def find_code(work: Path | None, *, cwd: Path, max_mb: float) -> Code:
    """Find what a snapshot is to copy: the repository that the work belongs to, else the work's folder.

    Args:
        work: The work's source; None for an object of the calling process, whose code is where the person stands.
        cwd: Where the person stands; their repository comes first, so that a work in a submodule comes with the rest.
        max_mb: Largest size, in MB.

    Raises:
        SubmissionError: git refuses to read a repository.
        ConfigError: It is too large.
    """
    places = [cwd] if work is None else [cwd, work.parent]
    for root in dict.fromkeys(find_repository(place) for place in places):
        if root is not None and (work is None or work.is_relative_to(root)):
            code = _list_repository(root)
            if work is None or code.holds(work):
                return _require_size(code, max_mb)
    return _walk(cwd if work is None else find_package_root(work), max_mb)


def move_plan(plan: LaunchPlan, code: Code, *, folder: str, import_folders: Iterable[str]) -> LaunchPlan:
    """Point a plan at the copy of its code. Pure.

    What the copy lacks stays where it is: a file of another folder, an installed package.

    Args:
        plan: The run, which names the files where they lie.
        code: What is copied.
        folder: Absolute folder of the copy.
        import_folders: Where this interpreter imports from. Those that are copied come after the plan's own, so that
            a package of the repository which is installed in place is imported from the copy.
    """

    def move(path: str) -> str:
        return str(PurePosixPath(folder) / PurePosixPath(path).relative_to(code.root)) if code.holds(path) else path

    work, strategy = plan.work, plan.strategy
    copied = [path for path in import_folders if code.holds(path)]
    return replace(
        plan,
        cwd=move(plan.cwd),
        code=CodePlan(root=str(code.root), folder=folder, has_git=code.has_git),
        work=replace(
            work,
            file=work.file and move(work.file),
            folders=tuple(dict.fromkeys(move(path) for path in (*work.folders, *copied))),
        ),
        strategy=replace(strategy, executor_file=strategy.executor_file and move(strategy.executor_file)),
    )


def take_snapshot(plan: CodePlan, folder: RunFolder) -> str:
    """Copy the code into a run folder, note where it came from, and return a line for people.

    The copy is made beside its place and moved there when it is whole.

    Args:
        plan: What is copied.
        folder: The run's folder, or that of a sweep.

    Raises:
        SubmissionError: A file cannot be read, or the copy not written.
    """
    root = Path(plan.root)
    code = _list_repository(root) if plan.has_git else _walk(root, math.inf)
    commit = read_commit(root) if plan.has_git else None
    diff = read_diff(root) if commit else b""
    staged = folder.path / f".{CODE}"
    try:
        if staged.exists():  # of an attempt that was killed meanwhile
            shutil.rmtree(staged)
        _copy(code, staged, folder)
        origin = {"root": plan.root, "commit": commit, "is_changed": bool(diff), "new": code.new}
        folder.write(ORIGIN, json.dumps(origin, indent=1).encode())
        if diff:
            folder.write(DIFF, diff)
        staged.rename(folder.path / CODE)
    except (OSError, shutil.Error) as error:
        raise SubmissionError(
            what="the snapshot of the code cannot be taken",
            found=str(error),
            fix="mend that, or snapshot=false to run the files where they lie",
        ) from None
    return _describe(code, commit, is_changed=bool(diff))


def _describe(code: Code, commit: str | None, *, is_changed: bool) -> str:
    size = f"{len(code.sizes)} file{'s' * (len(code.sizes) != 1)}, {code.num_bytes / _MB:.1f} MB"
    if not code.has_git:
        return f"{size} of {code.root}, which git does not know"
    more = ["its changes"] * is_changed + [f"{len(code.new)} new"] * bool(code.new)
    base = f"commit {commit[:_SHORT_COMMIT]}" if commit else "no commit yet"
    return f"{size} of {code.root}, {base}" + (f" with {' and '.join(more)}" if more else "")


# -- what belongs to it ----------------------------------------------------------------------------------------------


def _list_repository(root: Path) -> Code:
    listing = list_files(root)
    runs: dict[PurePosixPath, bool] = {}

    def is_of_a_run(name: str) -> bool:
        """Say whether a file lies in a run folder: those of earlier runs are no code."""
        for parent in PurePosixPath(name).parents:
            if parent not in runs:
                runs[parent] = holds_run(root / parent)
            if runs[parent]:
                return True
        return False

    new = [name for name in listing.new if not is_of_a_run(name)]
    return _measure(root, (*listing.tracked, *new), new=new, has_git=True)


def _walk(root: Path, max_mb: float) -> Code:
    """List a folder that git does not know, up to the size that is allowed."""
    names: list[str] = []
    num_bytes = 0
    for place, folders, files in os.walk(root):
        here = Path(place)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links and not _is_no_code(here / name)]
        for name in (*files, *links):
            names.append(str((here / name).relative_to(root)))
            num_bytes += (here / name).lstat().st_size
        if num_bytes > max_mb * _MB:  # a home folder may take minutes to its end
            break
    return _require_size(_measure(root, names, new=(), has_git=False), max_mb)


def _is_no_code(folder: Path) -> bool:
    return folder.name in {".git", "__pycache__"} or (folder / "pyvenv.cfg").exists() or holds_run(folder)


def _measure(root: Path, names: Iterable[str], *, new: Sequence[str], has_git: bool) -> Code:
    sizes: dict[str, int] = {}
    links: set[PurePosixPath] = set()
    for name in names:
        try:
            status = (root / name).lstat()
        except (FileNotFoundError, NotADirectoryError):  # git still tracks it, and on disk it is gone
            continue
        if stat.S_ISLNK(status.st_mode):
            links.add(PurePosixPath(name))
        if stat.S_ISLNK(status.st_mode) or stat.S_ISREG(status.st_mode):
            sizes[name] = status.st_size
    if links:  # a folder may have become a link, while git still tracks the files that were in it
        sizes = {name: size for name, size in sizes.items() if links.isdisjoint(PurePosixPath(name).parents)}
    return Code(root=root, has_git=has_git, sizes=sizes, new=tuple(name for name in new if name in sizes))


def _require_size(code: Code, max_mb: float) -> Code:
    if code.num_bytes <= max_mb * _MB:
        return code
    largest = sorted(code.sizes.items(), key=lambda item: -item[1])[:_SHOWN]
    shown = ", ".join(f"{name} ({size / _MB:.1f} MB)" for name, size in largest)
    way_out = "list data in .gitignore" if code.has_git else "git init with a .gitignore for data, or keep it elsewhere"
    raise ConfigError(
        what=f"the code is too large for a snapshot: more than {max_mb:g} MB",
        found=f"{code.root}{'' if code.has_git else ', which git does not know'}; the largest: {shown}",
        fix=f"{way_out}; or snapshot_max_mb=N, or snapshot=false",
    )


# -- the copy --------------------------------------------------------------------------------------------------------


def _copy(code: Code, staged: Path, folder: RunFolder) -> None:
    folder.make(staged)
    for name in sorted(code.folders - {"."}, key=lambda name: name.count("/")):
        folder.make(staged / name)
    for name in code.sizes:
        source, copy = code.root / name, staged / name
        if source.is_symlink():
            copy.symlink_to(_turn_link(code, name))
            continue
        try:
            shutil.copyfile(source, copy)
        except FileNotFoundError:  # removed just now, such as an editor's own file
            continue
        status = source.stat()
        is_program = bool(status.st_mode & stat.S_IXUSR)
        copy.chmod(folder.file_mode | (folder.file_mode & _READ) >> 2 if is_program else folder.file_mode)
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))


def _turn_link(code: Code, name: str) -> str:
    """Return where a copied link leads: into the copy if its end is copied, else to the same place as before."""
    link = code.root / name
    end = os.path.normpath(link.parent / link.readlink())
    return os.path.relpath(end, link.parent) if code.holds(end) else end
