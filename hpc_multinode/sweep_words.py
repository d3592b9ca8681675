"""Words of the command line that name several values, as ``-m`` takes them: Hydra's syntax, cut into one word a value.

Pure, but for ``glob``, which lists the files of a group.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from hpc_multinode.errors import ConfigError
from hpc_multinode.keys import text_keys

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader

_SWEEP = re.compile(r"(choice|range|glob|sort|shuffle|tag|interval)\(.*\)", re.DOTALL)
_OPENING, _CLOSING, _QUOTES, _BEFORE_QUOTES = "([{", ")]}", "'\"", " ,:([{"


class Choice(NamedTuple):
    """One word of the command line.

    Attributes:
        words: The word, or one for each of its values.
        is_swept: It names values to go through, be it a single one.
    """

    words: tuple[str, ...]
    is_swept: bool

    @property
    def key(self) -> str:
        """The key that it sets."""
        return self.words[0].partition("=")[0].lstrip("+~").strip()


def expand_word(word: str, *, loader: ConfigLoader | None = None) -> Choice:
    """Cut a word into one for each of its values.

    ``key=a,b`` and ``key=choice(a,b)`` are split at their commas, but for those in quotes or brackets, and each value
    is then read as if it stood alone; ``range()``, ``glob()``, ``sort()`` and ``shuffle()`` are left to Hydra.

    Args:
        word: As typed.
        loader: Knows the files of the groups, for ``glob``.

    Raises:
        ConfigError: A value is empty, or they cannot be counted.

    Source:
        https://hydra.cc/docs/advanced/override_grammar/extended/
    """
    key, equals, value = word.partition("=")
    if not equals or key.startswith("~"):
        return Choice((word,), is_swept=False)
    value = value.strip() if _SWEEP.fullmatch(value.strip()) else value
    is_choice = value.startswith("choice(") and value.endswith(")")
    if _SWEEP.fullmatch(value) and not is_choice:
        return _expand_function(word, loader)
    values = _split(value[len("choice(") : -1] if is_choice else value)
    if (is_choice or len(values) > 1) and "" in (one.strip() for one in values):
        raise ConfigError(
            what="one of the values of a sweep is empty",
            found=word,
            fix="""write an empty text as '', and a text with a comma in quotes of its own: 'key="a,b"'""",
        )
    return Choice(tuple(f"{key}={one}" for one in values), is_swept=is_choice or len(values) > 1)


def _expand_function(word: str, loader: ConfigLoader | None) -> Choice:
    key = word.partition("=")[0]
    try:
        (override,) = OverridesParser.create(config_loader=loader).parse_overrides([word])
        if not override.is_sweep_override():
            return Choice((word,), is_swept=False)
        if not override.is_discrete_sweep():
            raise ConfigError(what="the values of a sweep cannot be counted", found=word, fix=f"{key}=range(1,4)")
        if text_keys().get(key.lstrip("+"), False):
            # The text itself: Hydra's own form of it has backslashes, and a text is taken letter by letter.
            return Choice(tuple(f"{key}={value}" for value in override.sweep_iterator()), is_swept=True)
        return Choice(tuple(f"{key}={value}" for value in override.sweep_string_iterator()), is_swept=True)
    except HydraException as error:
        raise ConfigError(
            what="the values of a sweep cannot be read",
            found=f"{word}: {str(error).splitlines()[0]}",
            fix=f"{key}=choice(a,b), {key}=range(1,4), {key}=glob(*), or {key}=a,b",
        ) from None


def _split(value: str) -> list[str]:
    """Split at the commas outside of quotes and brackets."""
    parts, depth, quote, is_escaped = [""], 0, "", False
    for before, letter in zip(f",{value}", value, strict=False):
        if letter == "," and not depth and not quote and not is_escaped:
            parts.append("")
            continue
        parts[-1] += letter
        if is_escaped:
            is_escaped = False
        elif letter == "\\":
            is_escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES and before in _BEFORE_QUOTES:  # else it is an apostrophe
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
    return parts if not depth and not quote else [value]
