"""The table of all keys in ``docs/configuration.md``, made from the schema by ``python -m tests.configuration``.

A key's text is the comment above it in ``hpc_multinode/config.py``; there is no second place for it.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import json
import typing
from pathlib import Path

from hpc_multinode import config

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->"


def read_comments() -> dict[tuple[str, str], str]:
    """Return the comment above each field of the schema's classes, on one line."""
    source = Path(config.__file__).read_text()
    lines = source.splitlines()
    found = {}
    for cls in ast.parse(source).body:
        for item in cls.body if isinstance(cls, ast.ClassDef) else ():
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                first = item.lineno - 1
                while lines[first - 1].lstrip().startswith("#"):
                    first -= 1
                texts = [line.strip(" #") for line in lines[first : item.lineno - 1]]
                found[cls.name, item.target.id] = " ".join(texts)
    return found


def list_keys(cls: type = config.Config, prefix: str = "") -> dict[str, tuple[str, str]]:
    """Return the default and the text of every key, sections last."""
    comments, hints = read_comments(), typing.get_type_hints(cls)
    values: dict[str, tuple[str, str]] = {}
    sections: dict[str, tuple[str, str]] = {}
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        if dataclasses.is_dataclass(hint):
            sections |= list_keys(typing.cast("type", hint), f"{prefix}{item.name}.")
            continue
        choices = [one for one in (hint, *typing.get_args(hint)) if isinstance(one, enum.EnumMeta)]
        members = [f" One of {', '.join(one.__members__)}." for one in choices]
        default = item.default_factory() if item.default is dataclasses.MISSING else item.default  # type: ignore[misc]
        shown = default.name if isinstance(default, enum.Enum) else json.dumps(default)
        values[f"{prefix}{item.name}"] = shown.strip('"'), "".join([comments[cls.__name__, item.name], *members])
    return values | sections


def render_table() -> str:
    """Write the table as Markdown."""
    rows = [f"| `{key}` | `{default}` | {_escape(text)} |" for key, (default, text) in list_keys().items()]
    return "\n".join(["| key | default | |", "|---|---|---|", *rows, ""])


def render_page(page: str) -> str:
    """Put the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{render_table()}{END}{rest.partition(END)[2]}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
