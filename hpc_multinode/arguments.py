"""Which arguments a work is called with: ours by name, the person's from ``work.args`` and ``work.kwargs``.

Pure, and the same on both sides: the login side binds a signature that was read from source, a worker the real one.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
            if parameter.name in kwargs:
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
