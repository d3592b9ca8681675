"""What a process tells of an exception that ends it: bounded in size, and safe whatever the exception does."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from typing import Any

from hpc_multinode.errors import MultiNodeError

MAX_MESSAGE = 4_000
_MAX_LINES = 40
_MAX_LINE = 400
_PACKAGE = Path(__file__).resolve().parent.parent
_NOT_THEIRS = (
    "<frozen ",
    str(importlib.__file__),
    *(str(_PACKAGE / part) for part in ("node", "executors", "arguments.py")),
)


def make_words(error: BaseException) -> dict[str, Any]:
    """Return type, message and the traceback's lines, cut to a size that any pipe takes at once."""
    lines = [line[:_MAX_LINE] for line in format_failure(error).rstrip().splitlines()]
    if len(lines) > _MAX_LINES:
        left_out = len(lines) - _MAX_LINES
        lines = [*lines[: _MAX_LINES // 4], f"... {left_out} lines, see the log ...", *lines[-3 * _MAX_LINES // 4 :]]
    return {"exception": type(error).__name__, "message": make_text(error)[:MAX_MESSAGE], "traceback": lines}


def format_failure(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of ours and of import above the person's.

    An error of ours is written for its reader; where it was raised helps nobody.
    """
    if isinstance(error, MultiNodeError):
        return f"error: {error}\n"
    try:
        summary = traceback.TracebackException.from_exception(error)
        frames = [frame for frame in summary.stack if not frame.filename.startswith(_NOT_THEIRS)]
        summary.stack = traceback.StackSummary.from_list(frames)
        return "".join(summary.format())
    except BaseException:  # noqa: BLE001 - __str__ of the person's own exception may even exit
        return f"{type(error).__module__}.{type(error).__qualname__} (its text cannot be made)\n"


def make_text(value: object) -> str:
    """Return the text of a person's own object, or why there is none."""
    try:
        return str(value)
    except BaseException as unprintable:  # noqa: BLE001 - __str__ of the person's own may even exit
        return f"(its text cannot be made: {type(unprintable).__name__})"
