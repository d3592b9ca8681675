"""The words that were typed, sorted into verb, options, overrides and a script's own. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Verbs that look at runs: what follows them is their own, not Hydra's.
LIFE_VERBS = ("list", "status", "logs", "wait", "cancel", "report")
VERBS = ("submit", "render", "context", *LIFE_VERBS)
_WITH_JSON = ("context",)
_WITH_SCRIPT = ("render",)
_WITH_SWEEPS = ("submit", "render")
_FLAGS = {
    "--help": "wants_help", "-h": "wants_help", "--version": "wants_version", "--json": "wants_json",
    "--standalone": "is_standalone", "--check": "is_check", "-m": "is_sweep", "--multirun": "is_sweep",
}  # fmt: skip
_ONLY_WITH = {
    "--json": _WITH_JSON, "--standalone": _WITH_SCRIPT, "--check": _WITH_SCRIPT, "-m": _WITH_SWEEPS,
    "--multirun": _WITH_SWEEPS,
}  # fmt: skip
OPTIONS = ("--help", "--version", "--config-dir", "--json", "--standalone", "--check", "--multirun")


@dataclass(slots=True)
class CommandLine:
    """What was typed.

    Attributes:
        verb: One of ``VERBS``.
        overrides: Words for Hydra.
        config_dirs: Values of ``--config-dir``.
        script_argv: What stood after ``--``.
        wants_help: ``--help`` was among the words.
        wants_version: ``--version`` was.
        wants_json: ``--json`` was.
        is_standalone: ``--standalone`` was.
        is_check: ``--check`` was.
        words: All other words, where the verb is one of ``LIFE_VERBS``.
        is_sweep: ``-m`` or ``--multirun`` was.
    """

    verb: str = "submit"
    overrides: list[str] = field(default_factory=list)
    config_dirs: list[str] = field(default_factory=list)
    script_argv: list[str] | None = None
    wants_help: bool = False
    wants_version: bool = False
    wants_json: bool = False
    is_standalone: bool = False
    is_check: bool = False
    words: list[str] = field(default_factory=list)
    is_sweep: bool = False


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Sort the words into verb, options, overrides and a script's own.

    Raises:
        ConfigError: A verb or an option is not known.
    """
    line = CommandLine()
    words = list(argv)
    if "--" in words:
        cut = words.index("--")
        words, line.script_argv = words[:cut], words[cut + 1 :]
    place = _find_verb(words)
    if place is not None:
        line.verb = _require_verb(words.pop(place))
    if line.verb in LIFE_VERBS:
        line.words = [*words, *(["--", *line.script_argv] if line.script_argv is not None else [])]
        return line
    while words:
        word = words.pop(0)
        if word in _FLAGS and line.verb in _ONLY_WITH.get(word, VERBS):
            setattr(line, _FLAGS[word], True)
        elif word == "--config-dir" and words:
            line.config_dirs.append(words.pop(0))
        elif word.startswith("--config-dir="):
            line.config_dirs.append(word.partition("=")[2])
        elif word.startswith("-"):
            raise _unknown_option(word)
        elif word in VERBS:
            raise ConfigError(
                what="the verb is not the first word", found=word, fix=f"python -m hpc_multinode {word} ..."
            )
        else:
            line.overrides.append(word)
    return line


def _find_verb(words: Sequence[str]) -> int | None:
    """Return where the verb stands: the first word, options left out, if it has no =."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] == "--config-dir" else 1
    is_verb = index < len(words) and "=" not in words[index] and not words[index].startswith("~")
    return index if is_verb else None


def _require_verb(word: str) -> str:
    if word in VERBS:
        return word
    close = difflib.get_close_matches(word, VERBS, n=1)
    fix = f"did you mean {close[0]}?" if close else f"the verbs are {', '.join(VERBS)}; --help tells more"
    if word.endswith(".py") or ":" in word:
        fix = f"work.target={word}" + (" strategy=script" if word.endswith(".py") else "")
    raise ConfigError(what=f"unknown verb {word!r}", found="the first word has no =, so it is read as a verb", fix=fix)


def _unknown_option(word: str) -> ConfigError:
    if word == "--config-dir":
        return ConfigError(what="--config-dir names no folder", found="it is the last word", fix="--config-dir FOLDER")
    if word in _ONLY_WITH:
        fix = f"it goes with {', '.join(_ONLY_WITH[word])}"
        return ConfigError(what=f"this verb has no {word}", found=word, fix=fix)
    close = difflib.get_close_matches(word.partition("=")[0], OPTIONS, n=1)
    fix = f"options are {', '.join(OPTIONS)}; everything else is key=value; a script's own words come after --"
    if close:
        fix = f"did you mean {close[0]}? A script's own words come after --"
    return ConfigError(what=f"unknown option {word.partition('=')[0]}", found=word, fix=fix)
