"""Which arguments a work is called with."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES, bind_arguments
from hpc_multinode.errors import WorkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GIVEN = {name: f"our {name}" for name in (*RANK_NAMES, *OFFERED_NAMES)}


def _call(work: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
    bound = bind_arguments(inspect.signature(work), work="train()", given=GIVEN, args=args, kwargs=kwargs or {})
    return work(*bound.args, **bound.kwargs)


def _refuse(work: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> WorkError:
    with pytest.raises(WorkError) as caught:
        _call(work, args, kwargs)
    return caught.value


@pytest.mark.parametrize("name", [*RANK_NAMES, *OFFERED_NAMES])
def test_gives_each_of_our_names(name: str) -> None:
    """A parameter with one of our names and no default receives our value."""
    scope: dict[str, Any] = {}
    exec(f"def work({name}): return {name}", scope)  # noqa: S102 - the name is a literal of ours
    assert _call(scope["work"]) == f"our {name}"


def test_ranks_are_ours_in_any_place_and_order() -> None:
    """Names, not places, decide which parameter is a rank."""

    def work(local_rank: str, lr: float, *, world_size: str) -> tuple[str, float, str]:
        return local_rank, lr, world_size

    assert _call(work, (0.5,)) == ("our local_rank", 0.5, "our world_size")


def test_a_rank_with_a_default_is_ours() -> None:
    """A default for a rank never wins: it would be wrong on all processes but one."""
    assert _call(lambda global_rank=0: global_rank) == "our global_rank"


@pytest.mark.parametrize("name", OFFERED_NAMES)
def test_an_offered_name_with_a_default_is_the_persons(name: str) -> None:
    """``context``, ``attempt`` and ``run_dir`` with a default of the person's own are left alone."""
    scope: dict[str, Any] = {}
    exec(f"def work({name}=7): return {name}", scope)  # noqa: S102
    assert _call(scope["work"]) == 7


@pytest.mark.parametrize("name", OFFERED_NAMES)
def test_an_offered_name_in_kwargs_is_the_persons(name: str) -> None:
    """A value in ``work.kwargs`` wins over what is merely offered."""
    scope: dict[str, Any] = {}
    exec(f"def work({name}): return {name}", scope)  # noqa: S102
    assert _call(scope["work"], (), {name: "mine"}) == "mine"


def test_args_fill_what_is_no_rank_in_order() -> None:
    """``work.args`` pass over the ranks that stand between them."""
    assert _call(lambda a, node_rank, b: (a, node_rank, b), (1, 2)) == (1, "our node_rank", 2)


def test_args_beyond_the_parameters_go_to_the_variadic() -> None:
    """``*args`` takes the rest, behind a rank as well."""
    assert _call(lambda world_size, *rest: (world_size, rest), (1, 2)) == ("our world_size", (1, 2))


def test_kwargs_without_a_parameter_go_to_the_variadic() -> None:
    """``**kwargs`` takes the rest and no rank."""
    assert _call(lambda a, **rest: (a, rest), (), {"a": 1, "b": 2}) == (1, {"b": 2})


def test_a_variadic_named_like_a_rank_is_no_rank() -> None:
    """``*world_size`` and ``**attempt`` are only names."""
    assert _call(lambda *world_size, **attempt: (world_size, attempt), (1,), {"x": 2}) == ((1,), {"x": 2})


def test_a_keyword_named_like_the_variadic_stays_in_it() -> None:
    """``work.kwargs.rest`` for ``**rest`` is a key in it."""
    assert _call(lambda **rest: rest, (), {"rest": 3}) == {"rest": 3}


def test_defaults_stay() -> None:
    """What nobody gives keeps its default, positional-only and keyword-only too."""

    def work(a: int = 1, /, b: int = 2, *, c: int = 3) -> tuple[int, int, int]:
        return a, b, c

    assert _call(work) == (1, 2, 3)


def test_a_keyword_behind_a_positional_only_default() -> None:
    """A default of a positional-only parameter does not stand in the way of a keyword."""

    def work(a: int = 1, /, b: int = 2, world_size: str = "") -> tuple[int, int, str]:
        return a, b, world_size

    assert _call(work, (), {"b": 5}) == (1, 5, "our world_size")


def test_a_positional_only_rank_behind_a_default() -> None:
    """A rank behind a positional-only parameter that keeps its default still reaches its place."""

    def work(lr: float = 0.1, world_size: str = "", /) -> tuple[float, str]:
        return lr, world_size

    assert _call(work) == (0.1, "our world_size")


def test_a_keyword_named_like_a_positional_only_parameter() -> None:
    """With ``**rest`` a keyword may have the name of a positional-only parameter."""

    def work(a: int, /, **rest: int) -> tuple[int, dict[str, int]]:
        return a, rest

    assert _call(work, (1,), {"a": 2}) == (1, {"a": 2})


def test_refuses_a_rank_in_kwargs() -> None:
    """A rank that the person sets is refused even where the work would take it."""
    error = _refuse(lambda world_size, **rest: (world_size, rest), (), {"world_size": 2, "node_rank": 1})
    assert error.what == ("work.kwargs sets 'world_size', 'node_rank', which the launcher gives to every worker itself")
    assert error.found == "work.kwargs={'world_size': 2, 'node_rank': 1} for train()"
    assert error.fix == (
        "remove 'world_size', 'node_rank' from work.kwargs; the sizes follow from nodes and resources.workers_per_node"
    )


def test_refuses_a_parameter_without_a_value() -> None:
    """A parameter that nobody gives is named, with the signature and all that we give."""
    error = _refuse(lambda rank, lr=0.1: (rank, lr))
    assert error.what == "train() asks for 'rank', which nobody gives"
    assert error.found == "its signature is (rank, lr=0.1)"
    assert error.fix == (
        "set work.kwargs.rank=..., or give it a default; the launcher itself gives world_size, node_rank, "
        "global_rank, local_rank, local_world_size, num_nodes, main_address, main_port, attempt, run_dir, context"
    )


def test_a_positional_only_parameter_is_not_met_by_a_keyword() -> None:
    """A keyword cannot reach a positional-only parameter."""

    def work(a: int, /) -> int:
        return a

    assert _refuse(work, (), {"a": 1}).what == "train() asks for 'a', which nobody gives"


def test_refuses_kwargs_without_a_parameter() -> None:
    """Keywords that the work does not take are all named."""
    error = _refuse(lambda a: a, (), {"a": 1, "b": 2, "c": 3})
    assert error.what == "train() does not take 'b', 'c' of work.kwargs"
    assert error.found == "its signature is (a)"
    assert error.fix == "remove 'b', 'c' from work.kwargs, or add it to the signature"


def test_refuses_too_many_args() -> None:
    """Values in ``work.args`` without a parameter are counted; ranks are not among their places."""
    error = _refuse(lambda a, world_size: (a, world_size), (1, 2, 3))
    assert error.what == "train() takes 1 of the 3 values in work.args"
    assert error.found == "its signature is (a, world_size)"
    assert error.fix == "give fewer values in work.args, or name them in work.kwargs"


def test_refuses_a_value_given_twice() -> None:
    """One parameter from ``work.args`` and ``work.kwargs`` is refused."""
    error = _refuse(lambda a: a, (1,), {"a": 2})
    assert error.what == "train() gets 'a' twice"
    assert error.found == "in work.args and in work.kwargs; its signature is (a)"
    assert error.fix == "give 'a' in one of the two"


@st.composite
def _signatures(draw: st.DrawFn) -> inspect.Signature:
    kinds = inspect.Parameter
    names = draw(st.lists(st.sampled_from(["a", "b", "c", *RANK_NAMES[:3], *OFFERED_NAMES]), unique=True, max_size=6))
    chosen = sorted(
        draw(
            st.lists(
                st.sampled_from([kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY]),
                min_size=len(names),
                max_size=len(names),
            )
        )
    )
    num_positional = chosen.count(kinds.POSITIONAL_OR_KEYWORD)
    num_required = draw(st.integers(0, num_positional))
    parameters = []
    for index, (name, kind) in enumerate(zip(names, chosen, strict=True)):
        has_default = index >= num_required if index < num_positional else draw(st.booleans())
        parameters.append(kinds(name, kind, default=f"default {name}" if has_default else kinds.empty))
    if draw(st.booleans()):
        parameters.insert(num_positional, kinds("rest", kinds.VAR_POSITIONAL))
    if draw(st.booleans()):
        parameters.append(kinds("more", kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)


@given(
    _signatures(),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "c", "z", *OFFERED_NAMES]), st.integers(), max_size=3),
)
def test_every_parameter_gets_exactly_one_value(
    signature: inspect.Signature, args: list[int], kwargs: dict[str, int]
) -> None:
    """Whatever the signature: every value arrives once, no parameter is without one, or it is a WorkError."""
    try:
        bound = bind_arguments(signature, work="w", given=GIVEN, args=args, kwargs=kwargs)
    except WorkError:
        return
    again = signature.bind(*bound.args, **bound.kwargs)  # Python itself takes the call
    again.apply_defaults()
    values = dict(again.arguments)
    flat = [*values.pop("rest", ()), *values.pop("more", {}).values(), *values.values()]
    assert sorted(v for v in flat if isinstance(v, int)) == sorted([*args, *kwargs.values()])
    assert all(values[name] == GIVEN[name] for name in values if name in RANK_NAMES)
