"""Durations, memory and GPUs as Slurm writes them in options. Pure."""

from __future__ import annotations

import math
import re

from hpc_multinode.errors import ConfigError

UNLIMITED = "unlimited"

_MINUTES_OF_DAY = 24 * 60
_CLOCK = re.compile(r"(?:(?P<days>[0-9]{1,9})-)?(?P<fields>[0-9]{1,9}(?::[0-9]{1,9}){0,2})", re.ASCII)
_MEMORY = re.compile(r"(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?:(?P<unit>[KMGT])I?B?)?", re.ASCII | re.IGNORECASE)
_MEBIBYTES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024.0}
_GRES_GPU = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[^:,()=]*[^:,()=0-9][^:,()=]*))?(?:[:=](?P<count>[0-9]+))?")


def parse_time_limit(text: str, *, key: str) -> int | None:
    """Read a time limit in any of Slurm's forms.

    Args:
        text: ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S`` or ``unlimited``.
        key: Where it comes from, for the error.

    Returns:
        Minutes, rounded up, at least 1; None for ``unlimited``.

    Raises:
        ConfigError: It is none of these, or nothing at all, which Slurm would take for unlimited.

    Source:
        sbatch(1), --time.
    """
    if text.strip().lower() == UNLIMITED:
        return None
    match = _CLOCK.fullmatch(text.strip())
    seconds = 0
    if match is not None:
        fields = [int(field) for field in match["fields"].split(":")]
        if match["days"] is None:
            # One number is minutes, two are minutes and seconds.
            hours, minutes, rest = fields if len(fields) == len("HMS") else (0, *fields, 0)[:3]
        else:
            hours, minutes, rest = (*fields, 0, 0)[:3]
        seconds = ((int(match["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + rest
    if seconds == 0:
        raise ConfigError(
            what=f"{key} is no time limit",
            found=f"{key}={text}",
            fix="minutes, as in 90, or one of Slurm's forms: 90:00 (minutes and seconds), 1:30:00, 2-12, 1-12:30:45, "
            "or the word unlimited",
        )
    return math.ceil(seconds / 60)


def render_time_limit(minutes: int | None) -> str:
    """Write a time limit so that nobody can misread it: ``[D-]HH:MM:SS``, or ``unlimited`` for None."""
    if minutes is None:
        return UNLIMITED
    days, rest = divmod(minutes, _MINUTES_OF_DAY)
    clock = f"{rest // 60:02}:{rest % 60:02}:00"
    return f"{days}-{clock}" if days else clock


def parse_memory(text: str, *, key: str, is_zero_all: bool) -> int:
    """Read an amount of memory: GiB where it has no unit.

    Args:
        text: Such as ``2.5``, ``8G``, ``512M``.
        key: Where it comes from, for the error.
        is_zero_all: 0 has a meaning: all of the node's memory.

    Returns:
        MiB, rounded up, so that it is 0 only where 0 was written.

    Raises:
        ConfigError: It is none.

    Source:
        sbatch(1), --mem; Slurm's units are powers of 1024.
    """
    match = _MEMORY.fullmatch(text.strip())
    mebibytes = math.ceil(float(match["number"]) * _MEBIBYTES[(match["unit"] or "G").upper()]) if match else 0
    if match is None or (mebibytes == 0 and not is_zero_all):
        zero = "; 0 is all of the node's" if is_zero_all else ""
        raise ConfigError(
            what=f"{key} is no amount of memory",
            found=f"{key}={text}",
            fix=f"GiB, as in 2.5, or with a unit, as in 8G, 512M{zero}",
        )
    return mebibytes


def render_memory(mebibytes: int) -> str:
    """Write an amount of memory in the largest unit that needs no fraction; 0 stays 0."""
    if mebibytes == 0:
        return "0"
    return f"{mebibytes}M" if mebibytes % 1024 else f"{mebibytes // 1024}G"


def count_gres_gpus(gres: str) -> int | None:
    """Return the GPUs a node that a ``gres`` text asks for; None where it names none.

    Args:
        gres: Such as ``gpu:a100:4`` or ``lustre:1,gpu``.

    Source:
        sbatch(1), --gres: a count that is left out is 1.
    """
    found = [match for item in gres.split(",") if (match := _GRES_GPU.fullmatch(item.strip()))]
    return sum(int(match["count"] or 1) for match in found) if found else None
