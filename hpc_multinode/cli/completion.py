"""Shell completion: Hydra's own for configuration words, extended to verbs, their options and runs.

``-sc install=bash`` prints what a shell evaluates once; that asks ``-sc query=bash`` at each press of the tab key, with
the line as it stands in ``COMP_LINE``.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from hpc_multinode.cli import command_line
from hpc_multinode.cli.command_line import LIFE_VERBS, VERBS
from hpc_multinode.errors import ConfigError, MultiNodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.cli.options import Parser

OPTIONS = ("-sc", "--shell-completion")
_SHELLS = ("bash", "zsh", "fish")
_MAX_RUNS = 50


def run(words: Sequence[str]) -> int:
    """Carry out ``install=SHELL``, ``uninstall=SHELL`` or ``query=SHELL`` and return 0.

    Raises:
        ConfigError: It is none of these.
    """
    command, _, shell = (words[0] if words else "").partition("=")
    if shell not in _SHELLS or command not in ("install", "uninstall", "query") or len(words) != 1:
        raise ConfigError(
            what="shell completion takes a command and a shell",
            found=" ".join(words) or "nothing",
            fix='eval "$(hpc-multinode -sc install=bash)", or zsh; for fish: hpc-multinode -sc install=fish | source',
        )
    if command == "query":
        print("\n".join(complete(os.environ.get("COMP_LINE", ""))))  # noqa: T201
        return 0
    from hpc_multinode.compose import make_completion  # noqa: PLC0415 - Hydra

    getattr(make_completion(shell), command)()
    return 0


def complete(line: str) -> list[str]:
    """Return what may stand where the cursor is.

    Args:
        line: The command line up to the cursor, with the program's name.
    """
    *before, word = line.split(" ")
    before = [one for one in before[1:] if one]
    verb = next((one for one in before if not one.startswith("-")), None)
    if verb in LIFE_VERBS:
        return _complete_life(str(verb), word)
    found = [one for one in VERBS if one.startswith(word)] if verb is None and "=" not in word else []
    if word.startswith("-"):
        return [option for option in command_line.OPTIONS if option.startswith(word)]
    try:
        return [*found, *_complete_override(word, [one for one in before if "=" in one])]
    except MultiNodeError:  # a line that is not complete yet may be wrong
        return found


def _complete_life(verb: str, word: str) -> list[str]:
    parser: Parser = importlib.import_module(f"hpc_multinode.cli.{verb}").make_parser()
    if word.startswith("-"):
        return [option for option in parser.list_options() if option.startswith(word)]
    if verb == "list":
        return []
    from hpc_multinode.registry import read_entries  # noqa: PLC0415 - only for runs

    entries = read_entries()[:_MAX_RUNS]
    names = [name for entry in entries for name in (entry.job_id, entry.run) if name is not None]
    return list(dict.fromkeys(name for name in names if name.startswith(word)))


def _complete_override(word: str, others: Sequence[str]) -> list[str]:
    from hpc_multinode.compose import complete_override, find_config_dirs  # noqa: PLC0415 - Hydra

    return complete_override(word, others, config_dirs=find_config_dirs((), os.environ))
