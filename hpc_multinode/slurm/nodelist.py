"""Node lists as Slurm writes them: ``n[098-101]``, ``rack[0-1]_blade[0-1],x``.

Pure; no ``scontrol`` is run. The order is kept as written and nothing is sorted: the first name is node 0.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from hpc_multinode.errors import SlurmEnvironmentError, format_variable
from hpc_multinode.slurm.counts import MAX_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GROUP = re.compile(r"(\[[^\[\]]*\])")
_LITERAL = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)


class _MalformedListError(ValueError):
    """Says what is wrong with a list; the caller adds the variable and its value."""


def expand_node_list(text: str, *, variable: str) -> tuple[str, ...]:
    """Expand a compact node list into names, in the order in which it is written.

    In a name with several bracket groups the leftmost is the outer loop. A range is padded to the width of its
    lower end.

    Args:
        text: The list. Blanks around a name are ignored.
        variable: The variable (or option) it comes from, for the error.

    Returns:
        The names, at least one; a name that is listed twice is returned twice.

    Raises:
        SlurmEnvironmentError: The list is empty or malformed, or has more than ``MAX_NODES`` names.

    Source:
        The inverse of ``scontrol show hostlistsorted=no``. https://slurm.schedmd.com/scontrol.html
    """
    try:
        return tuple(_expand(text))
    except _MalformedListError as error:
        raise SlurmEnvironmentError(
            what=f"{variable} is not a node list: {error}",
            found=format_variable(variable, text),
            fix="a list looks like n[01-04],gpu7; srun and sbatch set it, do not set it by hand",
        ) from None


def find_named_node(address: str, hosts: Iterable[str]) -> str | None:
    """Return the one of ``hosts`` that an address speaks of, or None where it speaks of none.

    A node is named by its own name, by that name with a domain (``n2.cluster``), or with a suffix as clusters use it
    for their fast network (``n2i``, ``n2-ib``). ``n12`` does not name ``n1``, and the longest match wins. Case does
    not matter, as in host names.
    """
    wanted = address.lower()
    best = ""
    for host in hosts:
        name = host.lower()
        if not wanted.startswith(name) or len(name) <= len(best):
            continue
        rest = wanted[len(name) :]
        # After a digit a letter is a suffix; after a letter it would be another word (alpha, alphabet).
        if not rest or rest[0] in ".-_" or (name[-1].isdigit() and not rest[0].isdigit()):
            best = host
    return best or None


def is_same_host(name: str, host: str) -> bool:
    """Compare two host names of which one may carry a domain."""
    left, right = name.lower(), host.lower()
    return left == right or left.split(".", 1)[0] == right or left == right.split(".", 1)[0]


def _expand(text: str) -> list[str]:
    names: list[str] = []
    parts: list[Sequence[str]] = []
    size = 1
    # Pieces at odd positions are the bracket groups; commas between the others part the names.
    for position, piece in enumerate(_GROUP.split(text.strip())):
        if position % 2:
            group = _expand_group(piece, MAX_NODES - len(names))
            size *= len(group)
            _check_size(len(names) + size)
            parts.append(group)
            continue
        first, *others = piece.split(",")
        parts.append((first,))
        for literal in others:
            _add_names(names, parts)
            parts, size = [(literal,)], 1
    _add_names(names, parts)
    return names


def _add_names(names: list[str], parts: Sequence[Sequence[str]]) -> None:
    """Append the names that one item of the list stands for."""
    _check_size(len(names) + 1)
    if len(parts) == 1:
        name = parts[0][0].strip()
        _check_literal(name)
        _check_name(name)
        names.append(name)
        return
    # Literals and groups alternate, and only the outer ends may carry blanks.
    trimmed = [(parts[0][0].lstrip(),), *parts[1:-1], (parts[-1][0].rstrip(),)]
    for literal in trimmed[::2]:
        _check_literal(literal[0])
    added = ["".join(pieces) for pieces in itertools.product(*trimmed)]
    _check_name(added[0])
    names.extend(added)


def _expand_group(group: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for item in group[1:-1].split(","):
        match = _RANGE.fullmatch(item)
        if not match:
            raise _MalformedListError(f"{item!a} in brackets is neither a number nor a range")
        low, high = match[1], match[2] or match[1]
        first, last = int(low), int(high)
        if last < first:
            raise _MalformedListError(f"the range {item} runs backwards")
        _check_size(len(numbers) + last - first + 1, limit)
        width = len(low)
        numbers.extend([low] if first == last else [f"{number:0{width}d}" for number in range(first, last + 1)])
    return numbers


def _check_size(size: int, limit: int = MAX_NODES) -> None:
    if size > limit:
        raise _MalformedListError(f"it has more than {MAX_NODES} names")


def _check_literal(text: str) -> None:
    if not _LITERAL.fullmatch(text):
        raise _MalformedListError(f"{text[:80]!a} does not belong into a host name")


def _check_name(name: str) -> None:
    if not name:
        raise _MalformedListError("it has an empty name")
    if name[0] in "-.":
        raise _MalformedListError(f"the name {name[:80]} begins with {name[0]!r}")
