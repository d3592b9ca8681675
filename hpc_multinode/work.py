"""The work as the person named it: where its source lies, and whether its source can meet the call.

Login side only. Sources are parsed, never imported. What source cannot tell (decorators, re-exports, base classes) is
left to the worker, which asks again with the real object.
"""

from __future__ import annotations

import ast
import difflib
import importlib.machinery
import importlib.util
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES, bind_arguments
from hpc_multinode.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_PLACEHOLDERS = dict.fromkeys((*RANK_NAMES, *OFFERED_NAMES))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTarget:
    """A work that was named, found as a file.

    Attributes:
        file: Absolute path of the source.
        module: Name under which workers import it, or None for a script.
        name: Function or class in it (dots for nested classes), or None for a script.
        folders: What stands first on ``sys.path`` of the workers.
    """

    file: str
    module: str | None
    name: str | None
    folders: tuple[str, ...]


def find_target(target: str, *, cwd: Path, is_script: bool, key: str = "work.target") -> WorkTarget:
    """Find the source of a work.

    Args:
        target: ``pkg.mod:Name``, ``path/to/train.py:Name``, or for a script ``path/to/train.py``.
        cwd: Absolute folder from which the person's relative paths are taken.
        is_script: The target is a file to run, not a callable in one.
        key: The setting that names it, for the error text.

    Raises:
        WorkError: The target is malformed, or no source lies there.
    """
    if is_script:
        return _find_script(target, cwd=cwd, key=key)
    place, _, name = target.rpartition(":")
    if not place or not all(part.isidentifier() for part in name.split(".")):
        raise _malformed(target, cwd=cwd, key=key)
    if place.endswith(".py") or "/" in place:
        file = _require_file(place, cwd=cwd, found=f"{key}={target}")
        if file.suffix != ".py":
            raise WorkError(
                what=f"the file {place} is no Python source", found=f"{key}={target}", fix="name a .py file"
            )
        folders, module = _place_in_packages(file)
        return WorkTarget(file=str(file), module=module, name=name, folders=folders)
    source = _find_module(place, target=target, cwd=cwd, key=key)
    return WorkTarget(file=str(source), module=place, name=name, folders=(str(cwd),))


def check_call(target: WorkTarget, *, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check by its source that a work can be called; for a script, that it parses.

    Args:
        target: The work.
        args: ``work.args``.
        kwargs: ``work.kwargs``.

    Raises:
        WorkError: The source does not parse, lacks the name, or its signature cannot be met.
    """
    tree = _parse(Path(target.file))
    node = _find_definition(tree, target) if target.name is not None else None
    if node is not None and target.name is not None:
        for signature, call_args, call_kwargs, label in _calls(node, target.name, args, kwargs):
            bind_arguments(signature, work=label, given=_PLACEHOLDERS, args=call_args, kwargs=call_kwargs)


def check_class(target: WorkTarget) -> None:
    """Check by its source that a target may be a class.

    Raises:
        WorkError: The source does not parse, lacks the name, or gives it to a function.
    """
    node = _find_definition(_parse(Path(target.file)), target)
    if isinstance(node, _Function):
        raise WorkError(
            what=f"{target.name} is a function", found=f"{target.file}, line {node.lineno}", fix="name a class"
        )


def check_imports(target: WorkTarget) -> None:
    """Check that this interpreter finds what a work imports at its top level.

    Raises:
        WorkError: The source does not parse, or a package is not installed.
    """
    for line, name in _top_level_imports(_parse(Path(target.file))):
        if not _is_found(name, target.folders):
            raise WorkError(
                what=f"the work imports {name!r}, which is not installed",
                found=f"{target.file}, line {line}",
                fix=f"install it for this interpreter, or run from the folder that holds {name}",
            )


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
        if not _is_found(top, folders):
            raise WorkError(
                what=f"{wanted_by} needs the package {top!r}, which is not installed",
                found="this interpreter cannot find it",
                fix=f"pip install {top}",
            )


def _find_script(target: str, *, cwd: Path, key: str) -> WorkTarget:
    place, _, name = target.rpartition(":")
    if place.endswith(".py") and name.isidentifier():
        raise WorkError(
            what="strategy=script runs a file, not a name in it",
            found=f"{key}={target}",
            fix=f"work.target={place}, or strategy=pytorch_spawn for the function {name}",
        )
    file = _require_file(target, cwd=cwd, found=f"{key}={target}")
    return WorkTarget(file=str(file), module=None, name=None, folders=(str(file.parent),))


def _require_file(place: str, *, cwd: Path, found: str) -> Path:
    try:
        file = (cwd / Path(place).expanduser()).resolve()
        is_file = file.is_file()
    except (ValueError, OSError, RuntimeError) as error:  # a NUL, a name too long, a ring of links
        raise WorkError(what="the path of the work is none", found=f"{found}: {error}", fix="give a path") from None
    if is_file:
        return file
    raise WorkError(
        what=f"the file {place} does not exist",
        found=f"{found}, that is {file}" + (" (a folder)" if file.is_dir() else ""),
        fix=_suggest(file.name, [p.name for p in file.parent.glob("*.py")]) or f"give a path that is right from {cwd}",
    )


def _place_in_packages(file: Path) -> tuple[tuple[str, ...], str]:
    """Return the ``sys.path`` folders and the module name that make relative imports of the file work."""
    folder, parts = file.parent, [] if file.name == "__init__.py" else [file.stem]
    if "." in file.stem:  # train.v2.py is no module of any package
        return (str(folder),), re.sub(r"\W", "_", file.stem)
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    folders = dict.fromkeys((str(file.parent), str(folder)))
    return tuple(folders), ".".join(parts)


def _find_module(place: str, *, target: str, cwd: Path, key: str) -> Path:
    parts = place.split(".")
    if not all(part.isidentifier() for part in parts):
        raise _malformed(target, cwd=cwd, key=key)
    spec = _find_spec(parts[0], (str(cwd),))
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec is not None else []
    for part in parts[1:]:  # not by importlib.util.find_spec, which would import the parent package
        origin, folders = _find_below(folders, part)
    if origin is not None and origin.suffix == ".py" and origin.is_file():
        return origin.resolve()
    raise WorkError(
        what=f"the module {place} cannot be found",
        found=f"{key}={target}: no source of {place!r} in {cwd} nor on this interpreter's path",
        fix="run from the folder that holds it, install it, or give a path: path/to/file.py:Name",
    )


def _find_below(folders: Sequence[Path], part: str) -> tuple[Path | None, list[Path]]:
    """Find a module in the folders of its package; return its source, if any, and its own folders."""
    for folder in folders:
        for source in (folder / part / "__init__.py", folder / f"{part}.py"):
            if source.is_file():
                return source, [folder / part]
    return None, [folder / part for folder in folders if (folder / part).is_dir()]


def _find_spec(top: str, folders: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    spec = importlib.machinery.PathFinder.find_spec(top, list(folders)) if folders else None
    if spec is not None and spec.origin is not None:
        return spec
    try:
        return importlib.util.find_spec(top) or spec
    except ValueError:  # a module in sys.modules without a spec, such as __main__
        return spec


def _is_found(top: str, folders: Sequence[str]) -> bool:
    return _find_spec(top, folders) is not None


def _malformed(target: str, *, cwd: Path, key: str) -> WorkError:
    file = cwd / target
    if file.suffix == ".py" and file.is_file():
        names = [n.name for n in _parse(file).body if isinstance(n, _Definition) and n.name[0] != "_"]
        options = [f"{key}={target}:{name}" for name in names[-3:]]
        return WorkError(
            what="a file is named without the function or class in it",
            found=f"{key}={target}",
            fix=" or ".join([*options, "strategy=script to run the whole file"]),
        )
    return WorkError(
        what=f"{key} is not in a form that can be found",
        found=f"{key}={target}",
        fix='write it as "pkg.mod:Name" or "path/to/train.py:Name", or for strategy=script as "path/to/train.py"',
    )


def _parse(file: Path) -> ast.Module:
    try:
        source = file.read_bytes()
        compile(source, str(file), "exec", dont_inherit=True)  # sees what the parser alone does not
        return ast.parse(source, filename=str(file))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise WorkError(
            what=f"the source of the work is not Python: {getattr(error, 'msg', error)}",
            found=f"{file}{line}",
            fix="mend it; python -m py_compile on the file shows the place",
        ) from None
    except OSError as error:
        raise WorkError(
            what=f"the source of the work cannot be read: {error.strerror}", found=str(file), fix="make it readable"
        ) from None


def _top_level_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    # Only what certainly runs on import: an import in a try or an if may be meant to fail.
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def _find_definition(tree: ast.Module, target: WorkTarget) -> ast.AST | None:
    """Return the definition of the target's name; None where only the real object can tell."""
    body: list[ast.stmt] = tree.body
    node: ast.stmt | None = None
    for part in (target.name or "").split("."):
        defined = [n for n in body if isinstance(n, _Definition) and n.name == part]
        if not defined:
            if isinstance(node, ast.ClassDef) or _may_bind(body, part):
                return None
            raise WorkError(
                what=f"the work's source has no {target.name!r}",
                found=f"{target.file} defines {_names_of(body)}",
                fix=_suggest(part, [n.name for n in body if isinstance(n, _Definition)])
                or f"define {part!r} there, or name what is there",
            )
        node = defined[-1]
        if any(other is not node and _may_bind([other], part) for other in body):
            return None  # bound again, as in run = decorate(run)
        body = node.body if isinstance(node, ast.ClassDef) else []
    return node


def _may_bind(body: Sequence[ast.stmt], name: str) -> bool:
    """Say whether anything but a plain definition may give the module this name."""
    return any(
        _binds(inner, name) for node in body for inner in ([node] if isinstance(node, _Definition) else ast.walk(node))
    )


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return any(alias.name == "*" or (alias.asname or alias.name) == name for alias in node.names)
    if isinstance(node, _Definition):
        return node.name in (name, "__getattr__")
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _names_of(body: Sequence[ast.stmt]) -> str:
    names = [n.name for n in body if isinstance(n, _Definition) and not n.name.startswith("_")]
    return ", ".join(names) if names else "no function and no class"


_Call = tuple[inspect.Signature, "Sequence[Any]", "Mapping[str, Any]", str]


def _calls(node: ast.AST, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[_Call]:
    """List the calls that a worker will make, as (signature, args, kwargs, label); empty where source cannot tell."""
    if isinstance(node, _Function):
        _refuse_coroutine(node, name)
        return [] if node.decorator_list else [(_signature(node.args), args, kwargs, f"{name}()")]
    if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
        return []
    has_bases = any(not (isinstance(base, ast.Name) and base.id == "object") for base in node.bases)
    run = _method(node, "run")
    if run is not None:
        _refuse_coroutine(run, f"{name}.run")
        return _method_calls(node, run, args, kwargs, has_bases=has_bases)
    if has_bases or _may_bind(node.body, "run"):
        return []
    raise WorkError(
        what=f"the class {name} has no method run",
        found=f"it defines {_names_of(node.body)}",
        fix=f"add run to {name}: a static, class or instance method",
    )


def _method_calls(
    node: ast.ClassDef, run: _Function, args: Sequence[Any], kwargs: Mapping[str, Any], *, has_bases: bool
) -> list[_Call]:
    decorators = [d.id if isinstance(d, ast.Name) else "" for d in run.decorator_list]
    label = f"{node.name}.run()"
    if decorators in (["staticmethod"], ["classmethod"]):
        return [(_signature(run.args, is_bound=decorators == ["classmethod"]), args, kwargs, label)]
    init = _method(node, "__init__")
    if decorators or has_bases or (init is not None and init.decorator_list):
        return []
    bound_run = _signature(run.args, is_bound=True)
    if init is None:  # nothing to construct with: the arguments are run's
        return [(bound_run, args, kwargs, label)]
    return [(_signature(init.args, is_bound=True), args, kwargs, f"{node.name}()"), (bound_run, (), {}, label)]


def _method(node: ast.ClassDef, name: str) -> _Function | None:
    return next((n for n in reversed(node.body) if isinstance(n, _Function) and n.name == name), None)


def _refuse_coroutine(node: ast.AST, label: str) -> None:
    if isinstance(node, ast.AsyncFunctionDef):
        raise WorkError(
            what=f"{label} is a coroutine, which a worker would never start",
            found=f"async def at line {node.lineno}",
            fix=f"give a plain function that calls asyncio.run({label}(...))",
        )


def _signature(arguments: ast.arguments, *, is_bound: bool = False) -> inspect.Signature:
    """Rebuild a signature from source; a default stands as its own source text."""
    kinds = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    parameters = []
    for index, (arg, default) in enumerate(zip(positional, [*defaults, *arguments.defaults], strict=True)):
        kind = kinds.POSITIONAL_ONLY if index < len(arguments.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD
        parameters.append(_parameter(arg, kind, default))
    if is_bound:
        parameters = parameters[1:]
    if arguments.vararg:
        parameters.append(_parameter(arguments.vararg, kinds.VAR_POSITIONAL, None))
    for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parameters.append(_parameter(arg, kinds.KEYWORD_ONLY, default))
    if arguments.kwarg:
        parameters.append(_parameter(arguments.kwarg, kinds.VAR_KEYWORD, None))
    return inspect.Signature(parameters)


class _Source(str):
    """Source text of a default, shown as it was written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _parameter(arg: ast.arg, kind: Any, default: ast.expr | None) -> inspect.Parameter:  # noqa: ANN401 - private enum of inspect
    value = inspect.Parameter.empty if default is None else _Source(ast.unparse(default))
    return inspect.Parameter(arg.arg, kind, default=value)


def _suggest(name: str, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, options, n=1)
    return f"did you mean {close[0]}?" if close else ""
