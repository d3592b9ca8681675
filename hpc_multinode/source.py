"""What the source of a work says, parsed and never imported: its imports, its names, and whether its call can be met.

What source cannot tell (decorators, re-exports, base classes) is left to the worker, which asks again with the real
object.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES, bind_arguments
from hpc_multinode.errors import WorkError
from hpc_multinode.modules import is_found

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hpc_multinode.work import WorkTarget

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Call = tuple[inspect.Signature, "Sequence[Any]", "Mapping[str, Any]", str]
# What modules are found by: sys.path, sys.meta_path, sys.path_hooks, site.addsitedir.
_FINDING = frozenset({"path", "meta_path", "path_hooks", "addsitedir"})
_PLACEHOLDERS = dict.fromkeys((*RANK_NAMES, *OFFERED_NAMES))


def check_call(target: WorkTarget, *, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check by its source that a work can be called; for a script, that it parses.

    Args:
        target: The work.
        args: ``work.args``.
        kwargs: ``work.kwargs``.

    Raises:
        WorkError: The source does not parse, lacks the name, or its signature cannot be met.
    """
    tree = parse_source(Path(target.file))
    node = _find_definition(tree, target) if target.name is not None else None
    if node is not None and target.name is not None:
        for signature, call_args, call_kwargs, label in _calls(node, target.name, args, kwargs):
            bind_arguments(signature, work=label, given=_PLACEHOLDERS, args=call_args, kwargs=call_kwargs)


def check_class(target: WorkTarget) -> None:
    """Check by its source that a target may be an executor's class.

    Raises:
        WorkError: The source does not parse, lacks the name, gives it to a function, or its ``run`` takes other
            arguments.
    """
    node = _find_definition(parse_source(Path(target.file)), target)
    if isinstance(node, _Function):
        raise WorkError(
            what=f"{target.name} is a function", found=f"{target.file}, line {node.lineno}", fix="name a class"
        )
    run = _method(node, "run") if isinstance(node, ast.ClassDef) else None
    if run is None or run.decorator_list:
        return
    signature = _signature(run.args, is_bound=True)
    try:
        signature.bind("work", "context")
    except TypeError as error:
        raise WorkError(
            what=f"{target.name}.run cannot be called with the work and its context: {error}",
            found=f"{target.file}, line {run.lineno}: run{signature}",
            fix="def run(self, work, context)",
        ) from None


def check_imports(target: WorkTarget) -> None:
    """Check that this interpreter finds what a work imports at its top level.

    Raises:
        WorkError: The source does not parse, or a package is not installed.
    """
    for line, name in _top_level_imports(parse_source(Path(target.file))):
        if not is_found(name, target.folders):
            raise WorkError(
                what=f"the work imports {name!r}, which is not installed",
                found=f"{target.file}, line {line}",
                fix=f"install it for this interpreter, or run from the folder that holds {name}",
            )


def list_definitions(file: Path) -> list[str]:
    """Return the public functions and classes that a source defines at its top level."""
    return [n.name for n in parse_source(file).body if isinstance(n, _Definition) and n.name[0] != "_"]


def parse_source(file: Path) -> ast.Module:
    """Parse a source.

    Raises:
        WorkError: It cannot be read, or is not Python.
    """
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
    # Only what certainly runs on import: an import in a try or an if may be meant to fail. And only while modules are
    # looked for where this interpreter does.
    for node in tree.body:
        if _may_change_path(node):
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def _may_change_path(node: ast.stmt) -> bool:
    """Say whether a statement at the top may make more modules known, as ``sys.path.insert(0, ...)`` does."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any(alias.name in _FINDING for alias in node.names)
    return any(
        isinstance(inner, ast.Attribute) and inner.attr in _FINDING and not _is_name(inner.value, "os")  # os.path
        for inner in ast.walk(node)
    )


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


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
                fix=suggest(part, [n.name for n in body if isinstance(n, _Definition)])
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


def suggest(name: str, options: Sequence[str]) -> str:
    """Return a question after the option that comes closest to a name; nothing where none does."""
    close = difflib.get_close_matches(name, options, n=1)
    return f"did you mean {close[0]}?" if close else ""
