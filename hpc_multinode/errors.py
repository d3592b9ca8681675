"""The errors that a person sees: what happened, what was found, how to fix it.

Pure. Library code raises these; only the verbs and the agent's entry turn them into exit codes.
"""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_USAGE = 2
# Of who no longer watches a run, which goes on.
EXIT_DETACHED = 130
_SHOWN_CHARACTERS = 300


class MultiNodeError(Exception):
    """An error with the three parts that its reader needs.

    Args:
        what: What is wrong, one line without a full stop.
        found: The value that was found, and where it came from.
        fix: What to write or do instead.
    """

    exit_code = EXIT_USAGE

    def __init__(self, *, what: str, found: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what}\n  found: {_indent(self.found)}\n  fix:   {_indent(self.fix)}"

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the three parts through a pickle, which drops keyword arguments."""
        return _rebuild, (type(self), self.what, self.found, self.fix)


class ConfigError(MultiNodeError):
    """A key, an option or a value of the configuration is wrong."""


class WorkError(MultiNodeError):
    """The work cannot be found, or its signature cannot be met."""


class SubmissionError(MultiNodeError):
    """The job could not be handed to Slurm or to this machine."""


class SlurmEnvironmentError(MultiNodeError):
    """A variable of Slurm is absent, malformed or contradicts another."""


class RendezvousError(MultiNodeError):
    """The nodes of a run did not find each other, or lost each other."""

    exit_code = EXIT_FAILED


def format_value(value: str) -> str:
    """Show a value in an error: cut where it is long, quoted where blanks or broken bytes would mislead."""
    shown = value[:_SHOWN_CHARACTERS]
    if not shown.isprintable() or shown != shown.strip() or not shown:
        shown = ascii(shown)
    return shown if len(value) <= _SHOWN_CHARACTERS else f"{shown}... ({len(value)} characters)"


def format_variable(name: str, value: str) -> str:
    """Show a variable in an error: ``NAME=value``."""
    return f"{name}={format_value(value)}"


def _indent(text: str) -> str:
    return text.replace("\n", "\n         ")


def _rebuild(cls: type[MultiNodeError], what: str, found: str, fix: str) -> MultiNodeError:
    return cls(what=what, found=found, fix=fix)
