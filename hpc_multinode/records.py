"""What JSON files of ours hold, checked when it is read: a file may be damaged, or of another version. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime
from typing import Any

_LINES = (list, tuple)
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "tuple[str, ...]": _LINES}
_OPTIONAL = " | None"
_ATTEMPT: dict[str, tuple[type, ...]] = {
    "attempt": (int,), "started": (str, type(None)), "ended": (str, type(None)), "nodes": (list, tuple),
    "ended_by": (str,), "phases": (dict,), "cause": (str, type(None)), "step": (int, type(None)),
}  # fmt: skip


def take_fields(cls: type, data: object) -> dict[str, Any]:
    """Return what a dataclass takes of a mapping; keys of other versions are passed over.

    Args:
        cls: A dataclass of a module with postponed annotations, so that its types are text.
        data: What JSON held.

    Raises:
        TypeError: It is no mapping, or a value has another type than the dataclass says.
    """
    if not isinstance(data, Mapping):
        msg = f"{cls.__name__} is a mapping"
        raise TypeError(msg)
    types = _find_types(cls)
    known = {name: data[name] for name in types if name in data}
    for name, value in known.items():
        is_fine = isinstance(value, types[name])
        if is_fine and isinstance(value, _LINES):
            is_fine = all(isinstance(one, str) for one in value) or types[name] is not _LINES
        if not is_fine:
            msg = f"{cls.__name__}.{name} cannot be {value!r}"
            raise TypeError(msg)
    return known


@functools.cache  # a list of runs reads thousands
def _find_types(cls: type) -> dict[str, tuple[type, ...]]:
    fields: dict[str, Any] = cls.__dataclass_fields__  # type: ignore[attr-defined]
    kinds = {name: _KINDS.get(field.type.removesuffix(_OPTIONAL), (object,)) for name, field in fields.items()}
    return {
        name: (*kinds[name], type(None)) if field.type.endswith(_OPTIONAL) else kinds[name]
        for name, field in fields.items()
    }


def check_attempt(record: object) -> dict[str, Any]:
    """Return the record of an attempt, as ``report.json`` has it.

    Raises:
        TypeError: It is none.
        ValueError: One of its times is none.
    """
    if not isinstance(record, dict) or not isinstance(record.get("attempt"), int):
        msg = "an attempt is a mapping with its number"
        raise TypeError(msg)
    for name, kinds in _ATTEMPT.items():
        if not isinstance(record.get(name, kinds[-1]()), kinds):
            msg = f"an attempt's {name} is not {record[name]!r}"
            raise TypeError(msg)
    for name in ("started", "ended"):
        read_time(record.get(name))
    return record


def read_time(text: str | None) -> datetime | None:
    """Read a time that we wrote, which has a zone; None for none.

    Raises:
        ValueError: It is no time, or has no zone.
    """
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        msg = f"{text} has no zone"
        raise ValueError(msg)
    return moment


def time_attempts(records: tuple[dict[str, Any], ...], *, submitted: str | None) -> tuple[dict[str, Any], ...]:
    """Add to each attempt how long it waited to start, from ``submitted`` or the end of the one before, and ran.

    One that was cancelled and yet had a next one was requeued, by hand or by the site.

    Args:
        records: Attempts as in the report, in order.
        submitted: When the run was, as ISO 8601; None where it is not known.
    """
    timed = []
    before = read_time(submitted)
    for index, record in enumerate(records):
        started, ended = read_time(record.get("started")), read_time(record.get("ended"))
        is_requeued = record.get("ended_by") == "cancelled" and index < len(records) - 1
        timed.append(
            {
                **record,
                **({"ended_by": "requeue"} if is_requeued else {}),
                "queued_s": _seconds(before, started),
                "ran_s": _seconds(started, ended),
            }
        )
        before = ended
    return tuple(timed)


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else round(max(0.0, (end - start).total_seconds()), 1)
