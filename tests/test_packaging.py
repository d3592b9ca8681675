"""The wheel: everything inside the package, and it works from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.conftest import TESTS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(out)]
    subprocess.run([*command, str(TESTS.parent)], check=True, timeout=120)
    (built,) = out.glob("*.whl")
    return built


def test_wheel_holds_everything_inside_the_package(wheel: Path) -> None:
    """conf, templates, demos, help and the type marker are there, and no top-level folder but the package."""
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hpc_multinode"}
    for needed in (
        "conf/config.yaml", "conf/strategy/lite.yaml", "examples/pytorch_ddp.py", "sbatch_templates/README.md",
        "sbatch_templates/multinode.sbatch", "sbatch_templates/wrapper/apptainer.sh.j2", "py.typed", "cli/help.txt",
        "life/page.css",
    ):  # fmt: skip
        assert f"hpc_multinode/{needed}" in names


def test_wheel_works_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """An installed wheel runs a demo where there is no checkout."""
    site, cwd = tmp_path / "site", tmp_path / "empty"
    cwd.mkdir()
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)],
        check=True, timeout=120,
    )  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(site), "XDG_CONFIG_HOME": str(tmp_path)}
    where = [sys.executable, "-c", "import hpc_multinode; print(hpc_multinode.__file__)"]
    found = subprocess.run(where, cwd=cwd, env=env, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(site))
    ran = subprocess.run(
        [str(site / "bin" / "hpc-multinode"), "cluster=local", "nodes=2", "strategy=pytorch_spawn"],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "[1] rank 1 step 49 loss" in ran.stdout
