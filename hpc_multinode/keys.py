"""The keys of the schema: which there are, which hold text, and which comes closest to a wrong one. Pure."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from enum import EnumMeta as EnumType
from typing import TYPE_CHECKING, Any, cast

from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GROUPS = ("strategy", "resources", "cluster", "experiment")
# Keys under these are the person's own, so they need no + in front.
OPEN_KEYS = ("work.kwargs", "env", "resources.sbatch", "cluster.vars")


@functools.cache
def _walk() -> tuple[tuple[str, dataclasses.Field[Any], object], ...]:
    """List every key of the schema, sections too, with its field and the type that is written there."""

    def walk(cls: type, prefix: str) -> Iterator[tuple[str, dataclasses.Field[Any], object]]:
        hints = typing.get_type_hints(cls)
        for item in dataclasses.fields(cls):
            hint = hints[item.name]
            yield f"{prefix}{item.name}", item, hint
            if dataclasses.is_dataclass(hint):
                yield from walk(cast("type", hint), f"{prefix}{item.name}.")

    return tuple(walk(Config, ""))


def _options(hint: object) -> tuple[object, ...]:
    """Return the types that a value may have."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


@functools.cache
def text_keys() -> dict[str, bool]:
    """Map every key of the schema to whether its value is a text."""
    return {key: str in _options(hint) or bool(item.metadata.get("is_text")) for key, item, hint in _walk()}


@functools.cache
def text_lists() -> frozenset[str]:
    """List the keys that hold, or may hold, a list of texts."""
    return frozenset(key for key, item, hint in _walk() if item.metadata.get("is_text") or hint == list[str])


def is_text(key: str, value: str) -> bool:
    """Say whether what is written for a key is text to be taken letter by letter, wherever it is written.

    Args:
        key: Dotted, without a sign in front.
        value: What is written.
    """
    if key.startswith("env."):
        return True
    if key.startswith(("resources.sbatch.", "cluster.vars.")):
        return value.lower() not in ("true", "false")
    return text_keys().get(key, False)


def holds_texts(key: str, value: str) -> bool:
    """Say the same of a value of the key or of one item in its list."""
    return key in text_lists() or is_text(key, value)


@functools.cache
def list_choices(key: str) -> tuple[str, ...]:
    """Return the values that a key of the schema may have, where they can be counted."""
    options = next((_options(hint) for name, _, hint in _walk() if name == key), ())
    if bool in options:
        return ("true", "false")
    return next((tuple(one.__members__) for one in options if isinstance(one, EnumType)), ())


def require_key(key: str, *, found: str) -> None:
    """Check that a key is in the schema, or one of the person's own below an open key.

    Raises:
        ConfigError: It is neither.
    """
    known = text_keys()
    if key in known or any(key.startswith(f"{open_key}.") for open_key in OPEN_KEYS):
        return
    raise ConfigError(what=f"unknown key {key!r}", found=found, fix=suggest_key(key, known))


def suggest_key(key: str, known: Mapping[str, bool]) -> str:
    """Return a question after the key that comes closest to a wrong one."""
    last = key.rpartition(".")[2]
    close = [k for k in known if k.startswith(f"{key}_") or k.rpartition(".")[2] == last]  # cut short, or misplaced
    close = close or difflib.get_close_matches(key, [*known, *GROUPS], n=1)
    close = close or [k for k in known if difflib.get_close_matches(last, [k.rpartition(".")[2]])]
    return f"did you mean {close[0]}?" if close else "python -m hpc_multinode --help lists the keys"
