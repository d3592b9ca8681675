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
# Each part of the package, and the parts it may import. What stands in no list may import nothing of the package.
SHARED = {"errors", "context", "arguments", "ports", "devices", "plan", "config", "report", "runs", "slurm"}
SHARED |= {"stopping", "assets", "person", "logs", "records", "registry", "resubmission"}
LOGIN = SHARED | {"after", "planning", "work", "source", "modules", "preparation", "snapshot", "wrapping", "templates"}
SWEEPS = {"points", "sweep", "sweep_record", "sweep_selection", "sweep_launch"}
ALLOWED = {
    "context": {"stopping"},
    "slurm": {"errors", "context", "ports", "devices", "config"},
    "ports": {"errors", "slurm"},
    "devices": {"errors", "slurm"},
    "arguments": {"errors"},
    "person": {"errors"},
    "plan": {"config"},
    "report": {"errors", "logs", "advice", "records"},
    "advice": {"report"},
    "runs": {"assets", "errors", "plan"},
    "registry": {"commit", "person", "plan", "records", "resubmission", "runs"},
    "resubmission": {"slurm"},
    "life": SHARED,
    "checkpointing": {"plan", "runs", "stopping"},
    "modules": {"errors"},
    "git": {"errors"},
    "after": {"errors", "life", "plan", "registry", "runs", "slurm", "sweep_record"},
    "snapshot": {"errors", "git", "plan", "runs", "work"},
    "source": {"errors", "arguments", "modules", "work"},
    "work": {"errors", "modules", "source"},
    "templates": {"errors"},
    "wrapping": {"assets", "errors", "config", "plan", "slurm", "templates"},
    "stop_times": {"errors", "config", "slurm"},
    "planning": {"stop_times", "errors", "config", "plan", "slurm", "work", "wrapping"},
    "keys": {"errors", "config"},
    "overrides": {"errors", "keys"},
    "compose_errors": {"errors", "keys"},
    "compose": {"errors", "person", "config", "assets", "keys", "overrides", "compose_errors", "yaml_files"},
    "sweep_words": {"errors", "keys"},
    "points": {"compose", "config", "keys", "overrides", "sweep_words"},
    "executors": SHARED,
    "node": SHARED | {"executors", "logs", "checkpointing"},
    "preparation": LOGIN,
    "submission": SHARED | {"node", "logs", "life", "wrapping", "templates", "preparation"},
    "yaml_files": {"keys"},
    "launching": SHARED | {"submission", "preparation", "life", "snapshot"},
    "multinode": SHARED | {"compose", "preparation", "launching", "submission"},
    "cli": SHARED | {"compose", "preparation", "launching", "submission", "node", "templates", "life"} | SWEEPS,
    "sweep_record": {"resubmission", "runs", "slurm"},
    "sweep": {"after", "config", "errors", "plan", "points", "preparation", "runs", "snapshot", "sweep_record"},
    "sweep_selection": {"errors", "life", "runs", "slurm", "sweep", "sweep_record"},
    "sweep_launch": SHARED | {"launching", "life", "preparation", "snapshot", "submission"} | SWEEPS,
}


def imports_of(path: Path) -> set[str]:
    """Return the parts of the package that a module imports, at its top level or anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("hpc_multinode.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_what_its_part_may(path: Path) -> None:
    """Data flows one way: login side and node side share plan, context, report and errors alone."""
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    assert imports_of(path) - {part} <= ALLOWED.get(part, set())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_says_what_it_is_for(path: Path) -> None:
    """Every file opens with a sentence."""
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import hpc_multinode", {"torch", "lightning", "hydra", "omegaconf", "submitit", "cloudpickle"}),
        ("from hpc_multinode import RunWorkExecutor", {"torch", "lightning", "hydra", "omegaconf", "submitit"}),
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
