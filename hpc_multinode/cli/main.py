"""Calls the verb that was typed, and turns errors into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode import __version__
from hpc_multinode.cli import completion
from hpc_multinode.cli.command_line import parse_command_line
from hpc_multinode.errors import EXIT_DETACHED, MultiNodeError

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: The words after the program's name.
    """
    try:
        code = _carry_out(argv)
        sys.stdout.flush()  # here, where a reader that has gone is understood, and not when the interpreter ends
    except MultiNodeError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_DETACHED
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _carry_out(argv: Sequence[str]) -> int:
    if argv and argv[0] in completion.OPTIONS:
        return completion.run(argv[1:])
    line = parse_command_line(argv)
    if line.wants_help:
        print((Path(__file__).parent / "help.txt").read_text(), end="")  # noqa: T201
        return 0
    if line.wants_version:
        print(f"hpc_multinode {__version__}")  # noqa: T201
        return 0
    verb = importlib.import_module(f"hpc_multinode.cli.{line.verb}")
    return int(verb.run(line))
