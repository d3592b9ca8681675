"""Who runs this, and where their own files lie, also where there is no passwd entry and no home, as in containers."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def find_login_name() -> str:
    """Return the login name, else the number of the user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # KeyError until Python 3.13
        return str(os.getuid())


def find_home(environ: Mapping[str, str]) -> Path | None:
    """Return the home folder, or None where there is none."""
    try:
        return Path(environ["HOME"] if environ.get("HOME") else "~").expanduser()
    except RuntimeError:
        return None


def find_cwd() -> Path:
    """Return the folder where the person stands.

    Raises:
        ConfigError: It is gone.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            what="the current folder does not exist any more", found="it was removed", fix="cd to one that does"
        ) from None


def expand(path: str, *, key: str) -> str:
    """Replace a leading ``~`` or ``~name``.

    Raises:
        ConfigError: There is no such person.
    """
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        raise ConfigError(
            what=f"{key} begins with the home folder of nobody", found=f"{key}={path}", fix="write the path in full"
        ) from None


def find_state(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of what we keep for this person from run to run, or None where there is no home."""
    home = find_home(environ)
    state = environ.get("XDG_STATE_HOME") or (home / ".local" / "state" if home else None)
    return None if state is None else Path(state) / "hpc_multinode"


def shorten(path: str) -> str:
    """Write a path as the person would: relative to where they stand, if it lies below."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the current folder is gone
        return path
