"""Words of the command line, brought into the form in which Hydra reads them as they were meant. Pure."""

from __future__ import annotations

import re

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from hpc_multinode.errors import ConfigError
from hpc_multinode.keys import GROUPS, OPEN_KEYS, is_text, require_key, text_lists

_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=@]+)(?P<package>@[^=]*)?=(?P<value>.*)", re.DOTALL)
_AS_HYDRA_READS = re.compile(r"""['"\[{]|null$|$""")


def prepare_override(word: str) -> str:
    """Bring one word of the command line into the form in which Hydra reads it as it was meant."""
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        if word.startswith("~"):
            return word
        raise ConfigError(
            what="an override has no =",
            found=word,
            fix="write key=value; a script's own arguments come after --",
        )
    sign, key, value = match["sign"] or "", match["key"].strip(), match["value"]
    if key in GROUPS and (value.startswith("[") or (value == "null" and key != "experiment")):
        raise ConfigError(what=f"{key} is one name", found=word, fix=f"{key}=NAME, one of those that --help lists")
    if key in GROUPS or match["package"] or key.startswith("hydra.") or "/" in key:
        return word
    require_key(key, found=word)
    is_own = key in OPEN_KEYS or any(key.startswith(f"{open_key}.") for open_key in OPEN_KEYS)
    if is_own and sign != "~":
        sign = "++"
    may_be_list = key in text_lists() or key.startswith("cluster.vars.")
    items = _split_items(value) if may_be_list else None
    if items is not None:
        value = f"[{','.join(map(_quote, items))}]"
    elif _is_text(key, value) or (key.startswith("work.kwargs.") and not _is_readable(f"{key}={value}")):
        value = _quote(value)
    return f"{sign}{key}={value}"


def _is_readable(word: str) -> bool:
    """Say whether Hydra's grammar takes a word; what it does not take is text."""
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True


def _is_text(key: str, value: str) -> bool:
    """Say whether a value is text to be taken letter by letter, so that Hydra's grammar must not read it."""
    if "${" in value or value == "???" or _AS_HYDRA_READS.match(value):
        return False
    return is_text(key, value)


def _split_items(value: str) -> list[str] | None:
    """Split a list of plain texts, ``[node[01-03],x]``, at its own commas; None where it is none, or quoted already."""
    if not re.fullmatch(r"""\[[^'"{}$\\]+\]""", value):
        return None
    items, depth = [""], 0
    for letter in value[1:-1]:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    texts = [item.strip() for item in items]
    return texts if depth == 0 and all(texts) else None


def _quote(value: str) -> str:
    # A backslash stands for itself unless quotes follow it, those at the end included.
    escaped = re.sub(r"(\\*)'", lambda match: match[1] * 2 + "\\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - trailing :]}'"
