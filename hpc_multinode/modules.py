"""Which modules this interpreter would find, told without importing any of the person's. Reads folders."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from typing import TYPE_CHECKING

from hpc_multinode.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def find_spec(top: str, folders: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    """Find a top-level module in some folders, else on the path; the folders win unless they hold a bare folder."""
    spec = importlib.machinery.PathFinder.find_spec(top, list(folders)) if folders else None
    if spec is not None and spec.origin is not None:
        return spec
    try:
        return importlib.util.find_spec(top) or spec
    except ValueError:  # a module in sys.modules without a spec, such as __main__
        return spec


def is_found(top: str, folders: Sequence[str]) -> bool:
    """Say whether a top-level module would be found."""
    return find_spec(top, folders) is not None


def check_modules(names: Sequence[str], *, folders: Sequence[str], wanted_by: str) -> None:
    """Check that this interpreter finds modules that the nodes will import.

    Args:
        names: Dotted names; the top-level package is looked for.
        folders: Where the person's modules lie.
        wanted_by: Who imports them, for the error text.

    Raises:
        WorkError: One is not installed.
    """
    for top in dict.fromkeys(name.partition(".")[0] for name in names):
        if not is_found(top, folders):
            raise WorkError(
                what=f"{wanted_by} needs the package {top!r}, which is not installed",
                found="this interpreter cannot find it",
                fix=f"pip install {top}",
            )


def find_below(folders: Sequence[Path], part: str) -> tuple[Path | None, list[Path]]:
    """Find a module in the folders of its package; return its source, if any, and its own folders."""
    for folder in folders:
        for source in (folder / part / "__init__.py", folder / f"{part}.py"):
            if source.is_file():
                return source, [folder / part]
    return None, [folder / part for folder in folders if (folder / part).is_dir()]
