"""The shape of the package: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hpc_multinode

PACKAGE = Path(hpc_multinode.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not {"conf", "examples"} & set(path.parts))
# Each part of the package (a folder or a module at the top), and the parts that it imports: no others, and all of them.
ALLOWED: dict[str, set[str]] = {
    # Read by both sides.
    "errors": set(),
    "context": {"stopping"},
    "stopping": set(),
    "arguments": {"errors"},
    "ports": {"errors"},
    "devices": {"errors"},
    "config": set(),
    "plan": {"config"},
    "assets": set(),
    "person": {"errors"},
    "layout": set(),
    "logs": {"layout"},
    "records": set(),
    "runs": {"assets", "errors", "layout", "plan"},
    "report": {"advice", "errors", "layout", "logs", "records", "runs"},
    "advice": {"report"},
    "resubmission": {"slurm"},
    "registry": {"commit", "person", "plan", "records", "resubmission", "runs", "slurm"},
    "commit": set(),
    "slurm": {"config", "context", "devices", "errors", "ports"},
    "life": {
        "context",
        "errors",
        "layout",
        "logs",
        "person",
        "records",
        "registry",
        "report",
        "resubmission",
        "runs",
        "slurm",
    },
    # Login side: from words to a plan, and what carries it out.
    "keys": {"config", "errors"},
    "yaml_files": {"keys"},
    "overrides": {"errors", "keys"},
    "compose_errors": {"errors", "keys"},
    "compose": {"assets", "compose_errors", "config", "errors", "keys", "overrides", "person", "yaml_files"},
    "modules": {"errors"},
    "work": {"errors", "modules", "source"},
    "source": {"arguments", "errors", "modules", "work"},
    "templates": {"errors"},
    "wrapping": {"assets", "config", "errors", "plan", "slurm", "templates"},
    "stop_times": {"config", "errors", "slurm"},
    "values": {"config", "errors"},
    "planning": {"config", "errors", "plan", "slurm", "stop_times", "values", "work", "wrapping"},
    "git": {"errors"},
    "snapshot": {"errors", "git", "plan", "runs", "work"},
    "after": {"errors", "life", "plan", "registry", "runs", "slurm", "sweep_record"},
    "preparation": {
        "after",
        "assets",
        "config",
        "context",
        "devices",
        "errors",
        "modules",
        "person",
        "plan",
        "planning",
        "runs",
        "slurm",
        "snapshot",
        "source",
        "templates",
        "work",
        "wrapping",
    },
    "submission": {
        "context",
        "errors",
        "layout",
        "life",
        "logs",
        "node",
        "person",
        "plan",
        "ports",
        "registry",
        "report",
        "resubmission",
        "runs",
        "slurm",
        "templates",
        "wrapping",
    },
    "launching": {"context", "layout", "life", "person", "plan", "registry", "runs", "slurm", "snapshot", "submission"},
    "multinode": {"arguments", "compose", "errors", "launching", "plan", "preparation", "report", "runs", "submission"},
    "cli": {
        "compose",
        "config",
        "context",
        "errors",
        "launching",
        "layout",
        "life",
        "node",
        "person",
        "plan",
        "points",
        "preparation",
        "registry",
        "runs",
        "slurm",
        "submission",
        "sweep",
        "sweep_launch",
        "sweep_selection",
        "templates",
    },
    # Sweeps, on the login side as well.
    "sweep_words": {"errors", "keys"},
    "points": {"compose", "config", "keys", "overrides", "sweep_words"},
    "sweep_record": {"resubmission", "runs", "slurm"},
    "sweep": {"after", "config", "errors", "plan", "points", "preparation", "runs", "snapshot", "sweep_record"},
    "sweep_selection": {"errors", "life", "runs", "slurm", "sweep", "sweep_record"},
    "sweep_launch": {
        "errors",
        "launching",
        "life",
        "person",
        "plan",
        "registry",
        "runs",
        "slurm",
        "snapshot",
        "submission",
        "sweep",
        "sweep_record",
        "sweep_selection",
    },
    # Node side.
    "executors": {"arguments", "context", "errors", "plan", "runs"},
    "checkpointing": {"plan", "runs", "stopping"},
    "lite": set(),
    "node": {
        "arguments",
        "checkpointing",
        "context",
        "devices",
        "errors",
        "executors",
        "layout",
        "logs",
        "person",
        "plan",
        "ports",
        "records",
        "registry",
        "report",
        "resubmission",
        "runs",
        "slurm",
        "stopping",
    },
}
# What runs on nodes reads nothing of the login side, of which the plan is the word.
LOGIN_ALONE = {"compose", "keys", "overrides", "planning", "preparation", "launching", "submission", "cli", "multinode"}
NODE_SIDE = ("node", "executors", "checkpointing")


def name_part(module: str) -> str:
    """Return the part of the package that a module belongs to: ``slurm`` for ``hpc_multinode.slurm.jobs``."""
    return module.split(".")[1]


def name_module(path: Path) -> str:
    """Return a file's dotted name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


NAMES = {name_module(path): path for path in MODULES}


def imports_of(path: Path, *, for_types: bool) -> set[str]:
    """Return the modules of the package that a module imports, at its top or inside of a function.

    Args:
        path: Its file.
        for_types: Count those below ``TYPE_CHECKING`` too, which are never carried out.
    """
    tree = ast.parse(path.read_text())
    if not for_types:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE.name:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in NAMES else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in NAMES}
    return found - {PACKAGE.name, name_module(path)}


def find_cycle(imports: dict[str, set[str]]) -> list[str]:
    """Return names that lead back to themselves, in their order; empty where nothing does."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        found = next((cycle for one in sorted(imports.get(name, ())) if (cycle := walk(one, [*way, name]))), [])
        done.add(name)
        return found

    return next((cycle for name in sorted(imports) if (cycle := walk(name, []))), [])


def parts_of(*, for_types: bool) -> dict[str, set[str]]:
    """Map each part to the parts that it imports."""
    found: dict[str, set[str]] = {}
    for name, path in NAMES.items():
        if name not in (PACKAGE.name, f"{PACKAGE.name}.__main__"):
            part = name_part(name)
            found.setdefault(part, set())
            found[part] |= {name_part(one) for one in imports_of(path, for_types=for_types)} - {part}
    return found


PARTS = parts_of(for_types=True)


@pytest.mark.parametrize("part", sorted(PARTS.keys() | ALLOWED.keys()))
def test_part_imports_what_the_table_says(part: str) -> None:
    """Data flows one way, and the table tells which: no part imports more, or stands there with what it does not."""
    assert PARTS.get(part) == ALLOWED.get(part)


@pytest.mark.parametrize("part", NODE_SIDE)
def test_node_side_needs_nothing_of_the_login_side(part: str) -> None:
    """What the nodes know of a run is in its plan."""
    assert not ALLOWED[part] & LOGIN_ALONE


def test_no_module_imports_itself_through_others() -> None:
    """Modules stand in an order, those that are imported inside of functions too."""
    assert find_cycle({name: imports_of(path, for_types=False) for name, path in NAMES.items()}) == []


def test_no_part_imports_itself_through_others() -> None:
    """So do the parts of the package."""
    assert find_cycle(parts_of(for_types=False)) == []


def test_a_cycle_would_be_found() -> None:
    """The test for cycles sees one, behind names that are in none."""
    assert find_cycle({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"b"}}) == ["b", "d", "b"]


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=name_module)
def test_package_root_is_lazy(path: Path) -> None:
    """To import a package loads nothing of it, but for the command line's, which is there to be called."""
    assert imports_of(path, for_types=False) == ({"hpc_multinode.cli.main"} if path.parent.name == "cli" else set())


@pytest.mark.parametrize("path", MODULES, ids=name_module)
def test_module_says_what_it_is_for(path: Path) -> None:
    """Every file opens with a sentence."""
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import hpc_multinode", {"torch", "lightning", "hydra", "omegaconf", "submitit", "cloudpickle"}),
        ("from hpc_multinode import RunWorkExecutor", {"torch", "lightning", "hydra", "omegaconf", "submitit"}),
        # What an agent imports before it starts the forkserver, whose import of the framework all wait for.
        ("from hpc_multinode.node import local, server; import hpc_multinode.runs", {"asyncio", "psutil", "yaml"}),
        ("import hpc_multinode.node.agent", {"torch", "lightning", "hydra", "omegaconf", "submitit", "numpy", "yaml"}),
        ("from hpc_multinode.cli import run; run(['render', 'strategy=lite'])", {"torch", "lightning", "numpy"}),
        (
            "from hpc_multinode.cli import run; run(['list'])",
            {"torch", "hydra", "omegaconf", "submitit", "rich", "yaml"},
        ),
        ("from hpc_multinode import MultiNode", {"torch", "lightning", "numpy"}),
    ],
)
def test_import_loads_no_more_than_it_must(code: str, absent: set[str]) -> None:
    """PyTorch stays off the login side and out of the agent, and the package itself costs next to nothing."""
    probe = f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in printed.stdout.splitlines()[-1].split()}
    assert not loaded & absent
