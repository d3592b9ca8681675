"""What a snapshot copies, how the plan is pointed at the copy, and the copy itself."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError, SubmissionError
from hpc_multinode.launching import fill_folder
from hpc_multinode.plan import CodePlan, LaunchPlan
from hpc_multinode.planning import make_plan
from hpc_multinode.runs import RunFolder
from hpc_multinode.snapshot import Code, find_code, move_plan, take_snapshot
from hpc_multinode.work import WorkTarget
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ODD_NAMES = ["a b", "it's", '"', "$HOME", "a\nb", "-rf", "é", "#", "tab\t", "a\\b", os.fsdecode(b"\xff")]


def _git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _write(root: Path, *names: str, text: str = "x\n") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with one commit: a work, a package, a rule of what is ignored; stand in it."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    root = tmp_path / "it's my $repo"
    _write(root, "train.py", "pkg/__init__.py", "pkg/mod.py", "old.py")
    _write(root, ".gitignore", text="data/\n*.pt\n")
    _git(root, "init", "-q")
    _git(root, "add", ".")
    _git(root, "commit", "-q", "-m", "first")
    monkeypatch.chdir(root)
    return root


def _find(root: Path, work: str | None = "train.py", *, cwd: Path | None = None, max_mb: float = 1) -> Code:
    return find_code(root / work if work else None, cwd=cwd or root, max_mb=max_mb)


def _names(code: Code) -> set[str]:
    return set(code.sizes) - {".gitignore", "train.py", "pkg/__init__.py", "pkg/mod.py"}


def _take(code: Code, run_dir: Path, *, is_private: bool = True) -> tuple[Path, str]:
    run_dir.mkdir(parents=True)
    plan = CodePlan(root=str(code.root), folder=str(run_dir / "code"), has_git=code.has_git)
    line = take_snapshot(plan, RunFolder(path=run_dir, is_private=is_private))
    return run_dir / "code", line


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., Path]:
    """Give a function that copies a code and returns the copy."""
    return lambda code, **options: _take(code, tmp_path / "runs/r", **options)[0]


# -- what belongs to it ----------------------------------------------------------------------------------------------


def test_what_git_tracks_and_what_is_new_belongs_to_it(repo: Path) -> None:
    """Tracked files as far as they are on disk and new ones; nothing that is ignored."""
    (repo / "old.py").unlink()
    _write(repo, "new.py", "data/big", "model.pt")
    code = _find(repo)
    assert _names(code) == {"new.py"}
    assert (code.has_git, code.new) == (True, ("new.py",))


def test_a_tracked_file_that_is_also_ignored_belongs_to_it(repo: Path) -> None:
    """A rule does not count for what is tracked, as everywhere in git."""
    _write(repo, "kept.pt")
    _git(repo, "add", "-f", "kept.pt")
    assert _names(_find(repo)) == {"kept.pt", "old.py"}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_stay_whole(repo: Path, take: Callable[..., Path], name: str) -> None:
    """No letter of a file's name means anything."""
    _write(repo, name, f"sub/{name}", text="odd")
    copy = take(_find(repo))
    assert [(copy / place).read_text() for place in (name, f"sub/{name}")] == ["odd", "odd"]


def test_the_whole_repository_belongs_to_it_from_a_subfolder(repo: Path) -> None:
    """A work in a package, started from there, comes with what lies above it."""
    code = find_code(repo / "pkg/mod.py", cwd=repo / "pkg", max_mb=1)
    assert code.root == repo
    assert {"train.py", "pkg/mod.py"} <= set(code.sizes)


def test_submodules_and_nested_repositories_belong_to_it(repo: Path) -> None:
    """Each is listed by its own rules; the files of git itself are not."""
    other = repo.parent / "other"
    _write(other, "lib.py")
    _write(other, ".gitignore", text="out\n")
    _git(other, "init", "-q")
    _git(other, "add", ".")
    _git(other, "commit", "-q", "-m", "x")
    _git(repo, "submodule", "--quiet", "add", str(other), "sub")
    shutil.copytree(other, repo / "nested")
    _write(repo, "sub/new.py", "sub/out", "nested/out")
    assert _names(_find(repo)) == {
        ".gitmodules", "old.py", "sub/lib.py", "sub/.gitignore", "sub/new.py", "nested/lib.py", "nested/.gitignore",
    }  # fmt: skip


def test_a_submodule_that_was_never_fetched_is_left_out(repo: Path) -> None:
    """Its empty folder is not taken for the repository around it."""
    other = repo.parent / "other"
    _write(other, "lib.py")
    _git(other, "init", "-q")
    _git(other, "add", ".")
    _git(other, "commit", "-q", "-m", "x")
    _git(repo, "submodule", "--quiet", "add", str(other), "sub")
    shutil.rmtree(repo / "sub")
    (repo / "sub").mkdir()
    assert _names(_find(repo)) == {".gitmodules", "old.py"}


def test_a_work_in_a_submodule_comes_with_the_repository_that_one_stands_in(repo: Path) -> None:
    """The code is that of the folder where the person stands, if the work lies in it."""
    _write(repo, "nested/work.py")
    _git(repo / "nested", "init", "-q")
    assert _find(repo, "nested/work.py").root == repo
    assert _find(repo, "nested/work.py", cwd=repo.parent).root == repo / "nested"


def test_earlier_runs_are_no_code(repo: Path) -> None:
    """Run folders inside the repository are left out, ignored or not."""
    _write(repo, "runs/r-1/plan.json", "runs/r-1/secret", "runs/r-1/attempt-0/rank0.log", "runs/notes.md")
    assert _names(_find(repo)) == {"old.py", "runs/notes.md"}


def test_a_file_in_conflict_is_listed_once(repo: Path) -> None:
    """The index then has it three times."""
    _git(repo, "checkout", "-q", "-b", "side")
    _write(repo, "old.py", text="side\n")
    _git(repo, "commit", "-q", "-am", "side")
    _git(repo, "checkout", "-q", "-")
    _write(repo, "old.py", text="main\n")
    _git(repo, "commit", "-q", "-am", "main")
    subprocess.run(["git", "merge", "side"], cwd=repo, capture_output=True, check=False)
    assert _git(repo, "ls-files", "-u").count("old.py") == 3
    assert _names(_find(repo)) == {"old.py"}


def test_a_folder_that_has_become_a_link_is_one(repo: Path, take: Callable[..., Path]) -> None:
    """Files that git still tracks behind it are not written through the link."""
    shutil.move(repo / "pkg", repo.parent / "elsewhere")
    (repo / "pkg").symlink_to(repo.parent / "elsewhere")
    copy = take(_find(repo))
    assert (copy / "pkg").readlink() == repo.parent / "elsewhere"


def test_gits_variables_of_a_hook_do_not_lead_elsewhere(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started from a hook of another repository, the work's own counts."""
    _git(repo.parent, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(repo.parent / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repo.parent))
    assert _find(repo).root == repo


def test_without_git_it_is_the_works_folder(tmp_path: Path) -> None:
    """Everything in it, but caches, virtual environments, run folders and what is git's own."""
    _write(tmp_path, "code/train.py", "code/data/big", "code/__pycache__/x.pyc", "code/.git/x", "other.py")
    _write(tmp_path, "code/venv/pyvenv.cfg", "code/venv/lib.py", "code/runs/r/plan.json", "code/runs/r/secret")
    code = _find(tmp_path, "code/train.py")
    assert (code.root, set(code.sizes), code.has_git) == (tmp_path / "code", {"train.py", "data/big"}, False)


def test_without_git_a_package_comes_whole(tmp_path: Path) -> None:
    """The folder that holds the outermost package, so that its relative imports work."""
    _write(tmp_path, "a/pkg/__init__.py", "a/pkg/sub/__init__.py", "a/pkg/sub/mod.py")
    assert _find(tmp_path, "a/pkg/sub/mod.py").root == tmp_path / "a"


def test_a_work_that_git_ignores_comes_with_its_folder(repo: Path) -> None:
    """A repository that does not know the work is not its code."""
    _write(repo, "data/try.py")
    code = _find(repo, "data/try.py")
    assert (code.root, set(code.sizes), code.has_git) == (repo / "data", {"try.py"}, False)


def test_where_there_is_no_git_it_is_the_works_folder(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the program is no error."""
    monkeypatch.setenv("PATH", str(repo.parent / "nothing"))
    code = _find(repo)
    assert (code.has_git, _names(code)) == (False, {"old.py"})


def test_what_git_refuses_is_told_in_its_words(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository that git does not want to read is not taken for a folder without git."""
    _write(tmp_path, "bin/git", text="#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    with pytest.raises(SubmissionError, match="git cannot read the repository of the work") as caught:
        _find(repo)
    assert caught.value.found == f"{repo}: fatal: detected dubious ownership"
    assert caught.value.fix == "do as git says, or snapshot=false to run the files where they lie"


@pytest.mark.parametrize(("has_git", "way_out"), [(True, "list data in .gitignore"), (False, "git init with")])
def test_too_large_a_code_is_refused(repo: Path, *, has_git: bool, way_out: str) -> None:
    """The error names the largest files and what to do about them."""
    if not has_git:
        shutil.rmtree(repo / ".git")
    _write(repo, "weights.bin", text="x" * 3_000_000)
    with pytest.raises(ConfigError, match="the code is too large for a snapshot: more than 1 MB") as caught:
        _find(repo)
    assert str(repo) in caught.value.found
    assert "the largest: weights.bin (3.0 MB), " in caught.value.found
    assert caught.value.fix.startswith(way_out)
    assert caught.value.fix.endswith("snapshot_max_mb=N, or snapshot=false")


# -- the plan --------------------------------------------------------------------------------------------------------


def _plan(repo: Path, **changes: Any) -> LaunchPlan:
    target = WorkTarget(file=f"{repo}/pkg/mod.py", module="pkg.mod", name="run", folders=(f"{repo}/pkg", f"{repo}"))
    executor = WorkTarget(file=f"{repo}/train.py", module="train", name="Executor", folders=(str(repo),))
    facts = make_facts(cwd=str(repo / "pkg"), python_path=("/elsewhere",))
    return dataclasses.replace(make_plan(Config(), facts=facts, target=target, executor=executor), **changes)


def test_a_moved_plan_names_the_copy(repo: Path) -> None:
    """Work, executor, import folders and current folder have their counterparts; other folders stay."""
    moved = move_plan(_plan(repo), _find(repo), folder="/r/code", import_folders=())
    assert (moved.work.file, moved.strategy.executor_file) == ("/r/code/pkg/mod.py", "/r/code/train.py")
    assert moved.work.folders == ("/r/code/pkg", "/r/code", "/elsewhere")
    assert moved.cwd == "/r/code/pkg"
    assert moved.code == CodePlan(root=str(repo), folder="/r/code", has_git=True)


def test_a_package_that_is_installed_in_place_is_imported_from_the_copy(repo: Path) -> None:
    """Folders of this interpreter's path that are copied come after the plan's own; others do not."""
    _write(repo, "src/lib/__init__.py", "data/ignored.py")
    folders = ["/usr/lib/python3", f"{repo}/data", f"{repo}/src", str(repo)]
    moved = move_plan(_plan(repo), _find(repo), folder="/r/code", import_folders=folders)
    assert moved.work.folders == ("/r/code/pkg", "/r/code", "/elsewhere", "/r/code/src")


def test_a_folder_without_a_copy_stays_the_current_one(repo: Path) -> None:
    """Who stands in an ignored folder, or outside of the repository, has the same current folder in the workers."""
    _write(repo, "data/x")
    for cwd in (f"{repo}/data", "/home/ada"):
        moved = move_plan(_plan(repo, cwd=cwd), _find(repo), folder="/r/code", import_folders=())
        assert moved.cwd == cwd


def test_a_moved_plan_survives_json(repo: Path) -> None:
    """The nodes read the same plan."""
    moved = move_plan(_plan(repo), _find(repo), folder="/r/code", import_folders=())
    assert LaunchPlan.from_json(moved.to_json()) == moved


# -- the copy --------------------------------------------------------------------------------------------------------


def test_files_are_copied_as_they_are_on_disk(repo: Path, take: Callable[..., Path]) -> None:
    """Neither the commit nor the index counts; bytes and times are those of the file."""
    _write(repo, "train.py", text="staged\n")
    _git(repo, "add", "train.py")
    _write(repo, "train.py", text="on disk\n")
    os.utime(repo / "train.py", ns=(5, 123456789))
    copy = take(_find(repo)) / "train.py"
    assert (copy.read_text(), copy.stat().st_mtime_ns) == ("on disk\n", 123456789)


@pytest.mark.parametrize(("is_private", "modes"), [(True, (0o700, 0o600, 0o700)), (False, (0o750, 0o640, 0o750))])
def test_the_copy_is_the_persons_alone(
    repo: Path, take: Callable[..., Path], *, is_private: bool, modes: tuple[int, int, int]
) -> None:
    """Folders, files and programs have the run folder's permission bits; a program stays one."""
    _write(repo, "run.sh")
    (repo / "run.sh").chmod(0o755)
    copy = take(_find(repo), is_private=is_private)
    paths = (copy / "pkg", copy / "train.py", copy / "run.sh")
    assert tuple(path.stat().st_mode & 0o777 for path in paths) == modes
    assert copy.stat().st_mode & 0o777 == modes[0]


@pytest.mark.parametrize(
    ("link", "target", "copied"),
    [
        ("here", "train.py", "train.py"),
        ("pkg/up", "../train.py", "../train.py"),
        ("folder", "pkg", "pkg"),
        ("pkg/absolute", "{root}/train.py", "../train.py"),
        ("ignored", "data/big", "{root}/data/big"),
        ("outside", "../outside", "{root}/../outside"),
        ("away", "/scratch/data", "/scratch/data"),
        ("nowhere", "gone", "{root}/gone"),
    ],
)
def test_links_lead_into_the_copy_or_to_where_they_led(
    repo: Path, take: Callable[..., Path], link: str, target: str, copied: str
) -> None:
    """A link to code leads to the copied code, and one to data to the data."""
    _write(repo, "data/big")
    (repo / link).symlink_to(target.format(root=repo))
    copy = take(_find(repo))
    assert os.fspath((copy / link).readlink()) == os.path.normpath(copied.format(root=repo))


def test_commit_and_changes_are_noted(repo: Path, tmp_path: Path) -> None:
    """The commit by its full name, what is new by its path, and the difference as a patch."""
    commit = _git(repo, "rev-parse", "HEAD")
    _write(repo, "train.py", text="changed\n")
    _write(repo, "new.py")
    copy, line = _take(_find(repo), tmp_path / "r")
    origin = json.loads((copy.parent / "code.json").read_text())
    assert origin == {"root": str(repo), "commit": commit, "is_changed": True, "new": ["new.py"]}
    patch = (copy.parent / "code.diff").read_text()
    assert "-x\n+changed\n" in patch
    assert line == f"6 files, 0.0 MB of {repo}, commit {commit[:12]} with its changes and 1 new"


def test_an_unchanged_repository_has_no_patch(repo: Path, tmp_path: Path) -> None:
    """The commit says all."""
    copy, line = _take(_find(repo), tmp_path / "r")
    assert not (copy.parent / "code.diff").exists()
    assert line.endswith(f", commit {_git(repo, 'rev-parse', 'HEAD')[:12]}")


def test_a_repository_without_a_commit_is_copied(tmp_path: Path) -> None:
    """What is not committed yet is code too."""
    _write(tmp_path, "new/train.py")
    _git(tmp_path / "new", "init", "-q")
    copy, line = _take(_find(tmp_path / "new"), tmp_path / "r")
    assert (copy / "train.py").exists()
    assert json.loads((copy.parent / "code.json").read_text())["commit"] is None
    assert line == f"1 file, 0.0 MB of {tmp_path}/new, no commit yet with 1 new"


def test_a_folder_without_git_is_called_that(tmp_path: Path) -> None:
    """Nobody believes in a commit that is not there."""
    _write(tmp_path, "new/train.py")
    _, line = _take(_find(tmp_path / "new"), tmp_path / "r")
    assert line == f"1 file, 0.0 MB of {tmp_path}/new, which git does not know"


def test_the_repository_is_left_as_it_was(repo: Path, take: Callable[..., Path]) -> None:
    """Neither the index nor anything else in it changes."""
    _write(repo, "train.py", text="changed\n")
    before = {path: path.stat().st_mtime_ns for path in repo.rglob("*")}
    take(_find(repo))
    assert {path: path.stat().st_mtime_ns for path in repo.rglob("*")} == before


def test_a_copy_that_was_cut_short_is_made_anew(repo: Path, tmp_path: Path) -> None:
    """What a killed attempt has left is no part of the next one."""
    _write(tmp_path, "r/.code/left")
    plan = CodePlan(root=str(repo), folder=f"{tmp_path}/r/code", has_git=True)
    take_snapshot(plan, RunFolder(path=tmp_path / "r"))
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == ["code", "code.json"]
    assert not (tmp_path / "r/code/left").exists()


def test_a_copy_that_fails_leaves_no_run(repo: Path) -> None:
    """The error has three parts, and the run folder is gone."""
    moved = move_plan(_plan(repo), _find(repo), folder=f"{repo}/pkg/runs/run-1/code", import_folders=())
    folder = RunFolder.create(moved, config_text="")
    (folder.path / ".code").write_text("in the way")
    with pytest.raises(SubmissionError, match="the snapshot of the code cannot be taken") as caught:
        fill_folder(moved, folder)
    assert ".code" in caught.value.found
    assert caught.value.fix == "mend that, or snapshot=false to run the files where they lie"
    assert not folder.path.exists()


def test_a_later_attempt_runs_what_the_first_one_copied(repo: Path) -> None:
    """A step that is requeued does not copy again."""
    moved = move_plan(_plan(repo), _find(repo), folder=f"{repo}/pkg/runs/run-1/code", import_folders=())
    folder = RunFolder.create(moved, config_text="")
    assert fill_folder(moved, folder).startswith("\ncode: ")
    _write(repo, "train.py", text="edited\n")
    assert fill_folder(moved, folder) == ""
    assert (folder.path / "code/train.py").read_text() == "x\n"
