"""The person's objects, loaded in a worker: their executor, and their work with its arguments bound."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.arguments import bind_work
from hpc_multinode.errors import WorkError
from hpc_multinode.executors.base import RunWorkExecutor
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from hpc_multinode.plan import LaunchPlan, StrategyPlan


def load_executor(strategy: StrategyPlan, *, folders: Sequence[str]) -> RunWorkExecutor:
    """Import the strategy's executor and make one.

    Args:
        strategy: Names the class as ``pkg.mod:Class``, and its file where it was given by path.
        folders: Where the person's modules lie, for the error text.

    Raises:
        WorkError: There is no such class, or it is no ``RunWorkExecutor``.
    """
    place, _, name = strategy.executor.rpartition(":")
    file = strategy.executor_file
    found: Any = importlib.import_module(place) if file is None else load_file(Path(file), place)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (inspect.isclass(found) and issubclass(found, RunWorkExecutor)):
        raise WorkError(
            what="strategy.executor names no RunWorkExecutor",
            found=f"strategy.executor={strategy.executor} is {found!r}; looked in {', '.join(folders) or 'sys.path'}",
            fix="name a subclass of hpc_multinode.RunWorkExecutor",
        )
    return found(strategy)


def load_work(plan: LaunchPlan, *, given: Mapping[str, Any]) -> Callable[[], Any]:
    """Import the work and bind its arguments.

    Args:
        plan: The run.
        given: Values for the names that the launcher gives.

    Returns:
        A callable without arguments that runs the work once.

    Raises:
        WorkError: The name is not there, cannot be called, or its signature cannot be met.
    """
    work = plan.work
    if plan.strategy.is_script:
        return lambda: run_script(str(work.file), [str(word) for word in work.args])
    label = work.name or "the work"
    if work.file is None or work.module is None:
        folder = RunFolder(path=Path(plan.run_dir), is_private=plan.is_private)
        # The person's own file in their own run folder, written by the process that submitted.
        target, args, kwargs = pickle.loads(folder.work_pickle.read_bytes())  # noqa: S301
        return bind_work(target, label=label, given=given, args=args, kwargs=kwargs)
    target = load_file(Path(work.file), work.module)
    for part in label.split("."):
        if not hasattr(target, part):
            raise WorkError(
                what=f"the work's module has no {label!r}", found=f"{work.file} after its import", fix="define it there"
            )
        target = getattr(target, part)
    return bind_work(target, label=label, given=given, args=work.args, kwargs=work.kwargs)


def load_file(file: Path, module: str) -> ModuleType:
    """Import a file under a module name, so that what it defines can be pickled and its siblings imported.

    Args:
        file: The source.
        module: Its dotted name; its folder stands on ``sys.path``.
    """
    loaded = sys.modules.get(module)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if "." in module:
        return importlib.import_module(module)
    # A file may bear the name of a module that is in use (queue.py, test.py): it must not take its place.
    name = module if loaded is None else f"work_{module}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise WorkError(what="the work's file is no Python source", found=str(file), fix="give it the ending .py")
    new = importlib.util.module_from_spec(spec)
    sys.modules[name] = new
    try:
        spec.loader.exec_module(new)
    except BaseException:
        del sys.modules[name]
        raise
    return new


def run_script(file: str, argv: Sequence[str]) -> None:
    """Run a file as ``__main__`` in this process, with its own command line."""
    main = sys.modules["__main__"]
    main.__file__ = file
    main.__dict__["__builtins__"] = builtins
    sys.argv = [file, *argv]
    code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - it is what running a script means
