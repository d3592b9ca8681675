"""The work as the person named it, found as a file. Login side; nothing of the person's is imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hpc_multinode.errors import WorkError
from hpc_multinode.modules import find_below, find_spec
from hpc_multinode.source import list_definitions, suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTarget:
    """A work that was named, found as a file.

    Attributes:
        file: Absolute path of the source.
        module: Name under which workers import it, or None for a script.
        name: Function or class in it (dots for nested classes), or None for a script.
        folders: What stands first on ``sys.path`` of the workers.
    """

    file: str
    module: str | None
    name: str | None
    folders: tuple[str, ...]


def find_target(target: str, *, cwd: Path, is_script: bool, key: str = "work.target") -> WorkTarget:
    """Find the source of a work.

    Args:
        target: ``pkg.mod:Name``, ``path/to/train.py:Name``, or for a script ``path/to/train.py``.
        cwd: Absolute folder from which the person's relative paths are taken.
        is_script: The target is a file to run, not a callable in one.
        key: The setting that names it, for the error text.

    Raises:
        WorkError: The target is malformed, or no source lies there.
    """
    if is_script:
        return _find_script(target, cwd=cwd, key=key)
    place, _, name = target.rpartition(":")
    if not place or not all(part.isidentifier() for part in name.split(".")):
        raise _malformed(target, cwd=cwd, key=key)
    if place.endswith(".py") or "/" in place:
        file = _require_file(place, cwd=cwd, found=f"{key}={target}")
        if file.suffix != ".py":
            raise WorkError(
                what=f"the file {place} is no Python source", found=f"{key}={target}", fix="name a .py file"
            )
        folders, module = _place_in_packages(file)
        return WorkTarget(file=str(file), module=module, name=name, folders=folders)
    source = _find_module(place, target=target, cwd=cwd, key=key)
    return WorkTarget(file=str(source), module=place, name=name, folders=(str(cwd),))


def _find_script(target: str, *, cwd: Path, key: str) -> WorkTarget:
    place, _, name = target.rpartition(":")
    if place.endswith(".py") and name.isidentifier():
        raise WorkError(
            what="strategy=script runs a file, not a name in it",
            found=f"{key}={target}",
            fix=f"work.target={place}, or strategy=pytorch_spawn for the function {name}",
        )
    file = _require_file(target, cwd=cwd, found=f"{key}={target}")
    return WorkTarget(file=str(file), module=None, name=None, folders=(str(file.parent),))


def _require_file(place: str, *, cwd: Path, found: str) -> Path:
    try:
        file = (cwd / Path(place).expanduser()).resolve()
        is_file = file.is_file()
    except (ValueError, OSError, RuntimeError) as error:  # a NUL, a name too long, a ring of links
        raise WorkError(
            what="no file can have this path", found=f"{found}: {error}", fix="write it as path/to/train.py:Name"
        ) from None
    if is_file:
        return file
    raise WorkError(
        what=f"the file {place} does not exist",
        found=f"{found}, that is {file}" + (" (a folder)" if file.is_dir() else ""),
        fix=suggest(file.name, [p.name for p in file.parent.glob("*.py")]) or f"give a path that is right from {cwd}",
    )


def _place_in_packages(file: Path) -> tuple[tuple[str, ...], str]:
    """Return the ``sys.path`` folders and the module name that make relative imports of the file work."""
    folder, parts = file.parent, [] if file.name == "__init__.py" else [file.stem]
    if "." in file.stem:  # train.v2.py is no module of any package
        return (str(folder),), re.sub(r"\W", "_", file.stem)
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    folders = dict.fromkeys((str(file.parent), str(folder)))
    return tuple(folders), ".".join(parts)


def find_package_root(file: Path) -> Path:
    """Return the folder that holds a file, or the outermost package that it belongs to."""
    return Path(_place_in_packages(file)[0][-1])


def _find_module(place: str, *, target: str, cwd: Path, key: str) -> Path:
    parts = place.split(".")
    if not all(part.isidentifier() for part in parts):
        raise _malformed(target, cwd=cwd, key=key)
    spec = find_spec(parts[0], (str(cwd),))
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    for part in parts[1:]:  # not by importlib.util.find_spec, which would import the parent package
        origin, folders = find_below(folders, part)
    if origin is not None and origin.suffix == ".py" and origin.is_file():
        return origin.resolve()
    raise WorkError(
        what=f"the module {place} cannot be found",
        found=f"{key}={target}: no source of {place!r} in {cwd} nor on this interpreter's path",
        fix="run from the folder that holds it, install it, or give a path: path/to/file.py:Name",
    )


def _malformed(target: str, *, cwd: Path, key: str) -> WorkError:
    file = cwd / target
    if file.suffix == ".py" and file.is_file():
        names = list_definitions(file)
        options = [f"{key}={target}:{name}" for name in names[-3:]]
        return WorkError(
            what="a file is named without the function or class in it",
            found=f"{key}={target}",
            fix=" or ".join([*options, "strategy=script to run the whole file"]),
        )
    return WorkError(
        what=f"{key} is not in a form that can be found",
        found=f"{key}={target}",
        fix='write it as "pkg.mod:Name" or "path/to/train.py:Name", or for strategy=script as "path/to/train.py"',
    )
