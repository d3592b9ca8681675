"""What the documents say is true: commands run, keys and files exist."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import typing

import pytest

from hpc_multinode.config import Config
from tests.conftest import TESTS, Launcher

ROOT = TESTS.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HELP = ROOT / "hpc_multinode" / "cli" / "help.txt"


def schema_keys() -> set[str]:
    """Return every key of the schema, dotted."""

    def walk(cls: type, prefix: str) -> set[str]:
        hints = typing.get_type_hints(cls)
        found: set[str] = set()
        for item in dataclasses.fields(cls):
            key = f"{prefix}{item.name}"
            found |= {key} | (
                walk(hints[item.name], f"{key}.") if dataclasses.is_dataclass(hints[item.name]) else set()
            )
        return found

    return walk(Config, "")


def test_readme_program_prints_what_the_readme_shows(launcher: Launcher) -> None:
    """The first program of the README, started with its command, prints its lines, loss for loss."""
    text = (ROOT / "README.md").read_text()
    (source,) = re.findall(r"```python\n(import torch\n.*?)```", text, re.DOTALL)
    (launcher.cwd / "train.py").write_text(source)
    command, shown = re.findall(
        r"\$ python -m hpc_multinode (.*? work.target=train.py\S+ .*?)\n(.*?)```", text, re.DOTALL
    )[0]
    ended = launcher.local(*command.split())
    assert ended.code == 0, ended.out

    def fixed(lines: str) -> list[str]:
        return sorted(re.sub(r"train-\S{20}|\d+\.\d s", "_", line) for line in lines.splitlines())

    assert fixed(ended.out) == fixed(shown)


def test_readme_main_job_is_one_that_is_tested() -> None:
    """The command that the set-up line ends with is the demo of lite on two nodes, which ``test_strategies`` runs."""
    (line,) = re.findall(r"^python3 -m venv .*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert line.rpartition("hpc_multinode ")[2].split() == ["cluster=local", "strategy=lite", "nodes=2"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(path: typing.Any) -> None:
    """Every relative link of a document names a file that is there."""
    for link in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / link).exists(), link


@pytest.mark.parametrize("path", [*DOCUMENTS, HELP], ids=lambda path: path.name)
def test_keys_in_documents_are_in_the_schema(path: typing.Any) -> None:
    """A key that a document names can be set."""
    groups = "work|strategy|resources|cluster|launch|stop|restart|requeue|array"
    keys = schema_keys()
    for key in re.findall(rf"(?<![\w/.])((?:{groups})\.[a-z_]+)(?=[=\s`,.])", path.read_text()):
        if not key.endswith((".py", ".json", ".md", ".yaml", ".sh", ".pkl")):
            assert key in keys, key


def test_every_key_of_the_schema_says_what_it_is() -> None:
    """Each key has a comment above it, or shares the one of its neighbours that are passed on to sbatch."""
    source = (ROOT / "hpc_multinode" / "config.py").read_text()
    fields = re.findall(r"^((?:    #.*\n)*)    (\w+): .*= .*$", source, re.MULTILINE)
    bare = {name for comment, name in fields if not comment}
    passed_on = {"account", "qos", "constraint", "nodelist", "exclude", "reservation", "mem_per_cpu"}
    evident = {
        "work",
        "strategy",
        "resources",
        "cluster",
        "launch",
        "stop",
        "restart",
        "requeue",
        "array",
        "mode",
        "name",
        "start_method",
    }
    members = {"auto", "slurm", "local", "debug", "forkserver", "spawn"}
    assert bare <= passed_on | evident | members


def test_package_says_its_version_once() -> None:
    """``--version`` prints the version of the package."""
    command = [sys.executable, "-m", "hpc_multinode", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"hpc_multinode \d+\.\d+\.\d+\n", printed.stdout)
