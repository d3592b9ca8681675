"""The folder for temporary files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpc_multinode.node.scratch import replace_missing_tmpdir

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["TMPDIR", "TEMP", "TMP"])
def test_a_folder_that_is_not_there_is_replaced(tmp_path: Path, name: str) -> None:
    """A worker gets a folder that exists, and a line says why."""
    env = {name: f"{tmp_path}/gone", "OTHER": "x"}
    assert replace_missing_tmpdir(env) == [
        f"warning: {name}={tmp_path}/gone does not exist on this node, so workers get {name}=/tmp"
    ]
    assert env == {name: "/tmp", "OTHER": "x"}  # noqa: S108


def test_a_folder_that_is_there_stays(tmp_path: Path) -> None:
    """Nothing is said of a good one, nor of none."""
    env = {"TMPDIR": str(tmp_path)}
    assert replace_missing_tmpdir(env) == []
    assert env == {"TMPDIR": str(tmp_path)}


def test_what_is_no_folder_is_replaced(tmp_path: Path) -> None:
    """A file is no place for files."""
    file = tmp_path / "file"
    file.touch(mode=0o600)
    env = {"TMPDIR": str(file)}
    (warning,) = replace_missing_tmpdir(env)
    assert f"TMPDIR={file} is no folder" in warning
