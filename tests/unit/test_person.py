"""Who runs this, and where their files lie."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpc_multinode.errors import ConfigError
from hpc_multinode.person import expand, find_cwd, find_home, find_login_name


def test_user_without_a_name_is_a_number() -> None:
    """In a container with an arbitrary number as user there is no passwd entry."""
    code = (
        "import os; from hpc_multinode.person import find_login_name, find_home; os.environ.clear(); "
        "os.setuid(61999); print(find_login_name(), find_home({}))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "61999 None\n"


def test_name_and_home_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the shell says who we are, it is believed."""
    monkeypatch.setenv("LOGNAME", "ada")
    assert find_login_name() == "ada"
    assert find_home({"HOME": "/home/ada"}) == Path("/home/ada")


def test_home_of_nobody_is_an_error() -> None:
    """``~name`` of a person who is not there is told with its key."""
    with pytest.raises(ConfigError, match="run_root begins with the home folder of nobody") as caught:
        expand("~nobody-of-this-name/x", key="run_root")
    assert caught.value.found == "run_root=~nobody-of-this-name/x"
    assert caught.value.fix == "write the path in full"


def test_folder_that_is_gone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stands in a folder that was removed is told so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the current folder does not exist any more") as caught:
        find_cwd()
    assert (caught.value.found, caught.value.fix) == ("it was removed", "cd to one that does")
