"""Which arguments a work is called with: ours by name, the person's from ``work.args`` and ``work.kwargs``.

Nothing of the work runs here. The same on both sides: the login side binds what it has read from source, a worker the
real object.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Always ours: a rank that the person could set would be wrong on every process but one.
RANK_NAMES = (
    "world_size",
    "node_rank",
    "global_rank",
    "local_rank",
    "local_world_size",
    "num_nodes",
    "main_address",
    "main_port",
)
# Ours unless the person gives them or has a default of their own.
OFFERED_NAMES = ("attempt", "run_dir", "context")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def bind_work(
    target: Any,  # noqa: ANN401 - the person's own object
    *,
    label: str,
    given: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Callable[[], Any]:
    """Bind the arguments of a work: a function, or a class with a static, class or instance method ``run``.

    An instance is made from ``args`` and ``kwargs`` where the class takes any, else they are ``run``'s.

    Args:
        target: The work.
        label: Its name, for error texts.
        given: A value for each of ``RANK_NAMES`` and ``OFFERED_NAMES``.
        args: ``work.args``.
        kwargs: ``work.kwargs``.

    Returns:
        A callable without arguments that runs the work once. Nothing of the work has run before.

    Raises:
        WorkError: It cannot be called, or not with these arguments.
    """
    if not inspect.isclass(target):
        is_object = not inspect.isroutine(target) and hasattr(target, "run")
        return _bind_call(target.run if is_object else target, label, given, args, kwargs)
    method = inspect.getattr_static(target, "run", None)
    if method is None:
        raise WorkError(what=f"the class {label} has no method run", found=repr(target), fix=f"add run to {label}")
    cls: Any = target
    if isinstance(method, (staticmethod, classmethod)):
        return _bind_call(cls.run, f"{label}.run", given, args, kwargs)
    # Its signature without self is known before there is an instance.
    run = functools.partial(method, None) if callable(method) else method
    if cls.__init__ is object.__init__:  # nothing to construct with: the arguments are run's
        return _bind_call(run, f"{label}.run", given, args, kwargs, call=lambda *a, **k: cls().run(*a, **k))
    make = _bind_call(cls, label, given, args, kwargs)
    _bind_call(run, f"{label}.run", given, (), {})

    def construct_and_run() -> Any:  # noqa: ANN401
        return _bind_call(make().run, f"{label}.run", given, (), {})()

    return construct_and_run


def _bind_call(
    function: Any,  # noqa: ANN401
    label: str,
    given: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    call: Callable[..., Any] | None = None,
) -> Callable[[], Any]:
    if not callable(function):
        raise WorkError(
            what=f"{label} cannot be called", found=f"a {type(function).__name__}", fix="give a function or a class"
        )
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        raise WorkError(
            what=f"{label} would return without having run",
            found="it is a generator or a coroutine",
            fix="name a plain function that runs it",
        )
    run: Any = call or function
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin that does not tell
        return lambda: run(*args, **kwargs)
    bound = bind_arguments(signature, work=f"{label}()", given=given, args=args, kwargs=kwargs)
    return lambda: run(*bound.args, **bound.kwargs)


def bind_arguments(
    signature: inspect.Signature,
    *,
    work: str,
    given: Mapping[str, Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> inspect.BoundArguments:
    """Decide what each parameter of a work receives.

    Args:
        signature: Parameters of the callable, without ``self``.
        work: The work's name, for the error text.
        given: A value for each of ``RANK_NAMES`` and ``OFFERED_NAMES``.
        args: ``work.args``: for the parameters that are not ranks, in order.
        kwargs: ``work.kwargs``.

    Returns:
        Arguments for ``callable(*bound.args, **bound.kwargs)``.

    Raises:
        WorkError: A parameter is left without a value, or a value without a parameter.
    """
    _refuse_ranks(kwargs, work=work)
    parameters = list(signature.parameters.values())
    left = list(args)
    values = _bind_positional(parameters, left, given=given, kwargs=kwargs, work=work, signature=signature)
    rest = dict(kwargs)
    for parameter in parameters:
        name = parameter.name
        if name in values or parameter.kind in _VARIADIC:
            continue
        if name in rest and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            values[name] = rest.pop(name)
        elif name in RANK_NAMES or (name in OFFERED_NAMES and parameter.default is parameter.empty):
            values[name] = given[name]
        elif parameter.default is parameter.empty:
            raise _missing(name, work=work, signature=signature)
    _fill_positional_only(parameters, values)
    if rest:
        _bind_rest(parameters, values, rest, work=work, signature=signature)
    ordered = OrderedDict((name, values[name]) for name in signature.parameters if name in values)
    return inspect.BoundArguments(signature, ordered)


def _refuse_ranks(kwargs: Mapping[str, Any], *, work: str) -> None:
    ranks = [name for name in kwargs if name in RANK_NAMES]
    if ranks:
        raise WorkError(
            what=f"work.kwargs sets {_join(ranks)}, which the launcher gives to every worker itself",
            found=f"work.kwargs={dict(kwargs)} for {work}",
            fix=f"remove {_join(ranks)} from work.kwargs; the sizes follow from nodes and resources.workers_per_node",
        )


def _bind_positional(
    parameters: list[inspect.Parameter],
    left: list[Any],
    *,
    given: Mapping[str, Any],
    kwargs: Mapping[str, Any],
    work: str,
    signature: inspect.Signature,
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    num_given = len(left)
    for parameter in parameters:
        if parameter.kind not in _POSITIONAL:
            continue
        if parameter.name in RANK_NAMES:
            values[parameter.name] = given[parameter.name]
        elif left:
            if parameter.name in kwargs and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
                raise WorkError(
                    what=f"{work} gets {parameter.name!r} twice",
                    found=f"in work.args and in work.kwargs; its signature is {signature}",
                    fix=f"give {parameter.name!r} in one of the two",
                )
            values[parameter.name] = left.pop(0)
    variadic = [p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL]
    if left and variadic:
        values[variadic[0]] = tuple(left)
    elif left:
        raise WorkError(
            what=f"{work} takes {num_given - len(left)} of the {num_given} values in work.args",
            found=f"its signature is {signature}",
            fix="give fewer values in work.args, or name them in work.kwargs",
        )
    return values


def _fill_positional_only(parameters: list[inspect.Parameter], values: dict[str, Any]) -> None:
    """Give defaults to what stands before a value that can be passed by its position alone."""
    given = [p.name in values for p in parameters if p.kind is inspect.Parameter.POSITIONAL_ONLY]
    last = max((index for index, is_given in enumerate(given) if is_given), default=0)
    for parameter in parameters[:last]:
        values.setdefault(parameter.name, parameter.default)


def _bind_rest(
    parameters: list[inspect.Parameter],
    values: dict[str, Any],
    rest: dict[str, Any],
    *,
    work: str,
    signature: inspect.Signature,
) -> None:
    variadic = [p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    if not variadic:
        raise WorkError(
            what=f"{work} does not take {_join(rest)} of work.kwargs",
            found=f"its signature is {signature}",
            fix=f"remove {_join(rest)} from work.kwargs, or add it to the signature",
        )
    values[variadic[0]] = rest


def _missing(name: str, *, work: str, signature: inspect.Signature) -> WorkError:
    return WorkError(
        what=f"{work} asks for {name!r}, which nobody gives",
        found=f"its signature is {signature}",
        fix=f"set work.kwargs.{name}=..., or give it a default; "
        f"the launcher itself gives {', '.join((*RANK_NAMES, *OFFERED_NAMES))}",
    )


def _join(names: Mapping[str, Any] | Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
