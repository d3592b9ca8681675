"""The folder for temporary files: that of the login side may not exist on a node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

# What Python and others look at, in this order.
_NAMES = ("TMPDIR", "TEMP", "TMP")
_FALLBACK = "/tmp"  # noqa: S108 - where a node has its own, and where programs look without any variable


def replace_missing_tmpdir(env: MutableMapping[str, str]) -> list[str]:
    """Replace each folder for temporary files that is not there or cannot be written to, and say so.

    Args:
        env: The workers' variables, changed in place.

    Returns:
        A warning for each variable that was replaced.
    """
    warnings = []
    for name in _NAMES:
        folder = env.get(name)
        reason = None if folder is None else _find_fault(folder)
        if reason is not None:
            env[name] = _FALLBACK
            warnings.append(f"warning: {name}={folder} {reason} on this node, so workers get {name}={_FALLBACK}")
    return warnings


def _find_fault(folder: str) -> str | None:
    if not os.path.exists(folder):  # noqa: PTH110 - false, and no error, where a folder above it is closed to us
        return "does not exist"
    if not os.path.isdir(folder):  # noqa: PTH112 - the same
        return "is no folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else "cannot be written to"
