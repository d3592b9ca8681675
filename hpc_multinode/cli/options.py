"""The words after a verb that looks at runs: a parser whose complaints have three parts like all others."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta, timezone
from typing import NoReturn

from hpc_multinode.errors import ConfigError

RUN_HELP = "a job id, a run folder, a name, or the beginning of a run's id (default: the newest run)"
_SPAN = re.compile(r"(\d+)\s*(s|min|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Parser(argparse.ArgumentParser):
    """The parser of one verb.

    Args:
        verb: The verb.
        text: What it does, one sentence.
        has_run: It takes a RUN.
    """

    def __init__(self, verb: str, text: str, *, has_run: bool = True) -> None:
        super().__init__(prog=f"python -m hpc_multinode {verb}", description=text, allow_abbrev=False)
        self._verb = verb
        if has_run:
            self.add_argument("run", nargs="?", metavar="RUN", help=RUN_HELP)
        self.add_argument("--json", action="store_true", help="for scripts")

    def list_options(self) -> list[str]:
        """Return the long names of its options."""
        return sorted(name for action in self._actions for name in action.option_strings if name.startswith("--"))

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong, in three parts."""
        raise ConfigError(
            what=f"{self._verb} does not understand this", found=message, fix=f"{self.prog} --help tells its options"
        )


def parse_ranks(text: str, *, option: str) -> frozenset[int]:
    """Read numbers such as ``3,8-11``.

    Raises:
        ConfigError: It is no such list.
    """
    found: set[int] = set()
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,7})(?:-(\d{1,7}))?\s*", item, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(what=f"{option} takes numbers", found=f"{option} {text}", fix=f"{option} 3,8-11")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def parse_count(text: str) -> int:
    """Read how many lines are wanted, for a parser that says which option it was.

    Raises:
        argparse.ArgumentTypeError: It is no number from 0.
    """
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        msg = f"{text!r} is no number from 0 to 999999999"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def parse_since(text: str, *, now: datetime) -> datetime:
    """Read a span back from now, or a date with or without a time.

    Raises:
        ConfigError: It is neither.
    """
    span = _SPAN.fullmatch(text.strip())
    try:
        if span is not None:
            return now - timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ConfigError(
            what="--since is neither a span nor a date", found=f"--since {text}", fix="--since 2d, 12h or 2026-12-01"
        ) from None


def read_now() -> datetime:
    """Return the time."""
    return datetime.now(timezone.utc).astimezone()
