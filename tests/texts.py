"""All texts that people read, found in the package's source: ``python -m tests.texts`` lists them to be read in one go.

What a text has in place of a value is shown as ``...``. Errors come with their three parts.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hpc_multinode

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(hpc_multinode.__file__).parent
HOLE = "..."
_PARTS = ("what", "found", "fix")
_MIN_WORDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One text of the package.

    Attributes:
        place: Module and line.
        part: ``what``, ``found`` or ``fix`` of an error, else empty.
        text: The text, with ``...`` for values.
    """

    place: str
    part: str
    text: str


def list_texts() -> list[Text]:
    """Return every text of at least three words, and every part of an error, by module and line."""
    found: list[Text] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if not {"conf", "examples"} & set(path.relative_to(PACKAGE).parts):
            found += _find_texts(path)
    return found


def _find_texts(path: Path) -> Iterator[Text]:
    tree = ast.parse(path.read_text())
    parts: dict[int, str] = {}
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts |= {id(word.value): word.arg for word in node.keywords if word.arg in _PARTS}
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            inner |= {id(child) for child in ast.walk(node) if child is not node}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            inner.add(id(node.value))
    for node in ast.walk(tree):
        text = _read(node)
        if id(node) in parts or (text and id(node) not in inner and len(text.split()) >= _MIN_WORDS):
            place = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            yield Text(place=place, part=parts.get(id(node), ""), text=text or HOLE)


def _read(node: ast.AST) -> str:
    """Return the text that an expression makes, empty where it makes none that can be read here."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_read(value) or HOLE for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_read(node.left) or HOLE}{_read(node.right) or HOLE}"
    return ""


if __name__ == "__main__":
    for one in list_texts():
        print(f"{one.place:36} {one.part:6}{one.text!r}")  # noqa: T201 - the listing
