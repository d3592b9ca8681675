"""Counts as Slurm writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.errors import MultiNodeError, SlurmEnvironmentError
from hpc_multinode.slurm.counts import parse_count, parse_counts_per_node


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4(x2),3", (4, 4, 3)),
        ("1(x2)", (1, 1)),
        ("2(x3),1", (2, 2, 2, 1)),
        ("1", (1,)),
        ("72(x1),36", (72, 36)),
        (" 1(x2), 3 ", (1, 1, 3)),
    ],
)
def test_reads_counts_per_node(text: str, counts: tuple[int, ...]) -> None:
    """Repetitions are written out, in node order."""
    assert parse_counts_per_node(text, variable="SLURM_TASKS_PER_NODE") == counts


@pytest.mark.parametrize(
    "text",
    ["", ",", "1,", "0", "1(x0)", "1(x)", "(x2)", "1(2)", "1x2", "-1", "1.5", "a", "1(x99999999999)", "1(x9999999)",
     "1(x131072),1", "9" * 5000, "\u0661", "99999999999", "1(x2"],
)  # fmt: skip
def test_refuses_malformed_counts(text: str) -> None:
    """A malformed list, a zero or an absurd repetition is an error with variable and value."""
    with pytest.raises(SlurmEnvironmentError, match="is not a list of counts") as caught:
        parse_counts_per_node(text, variable="SLURM_TASKS_PER_NODE")
    assert caught.value.found.startswith("SLURM_TASKS_PER_NODE=")


def test_reads_a_count() -> None:
    """Blanks around a number and leading zeros do not matter."""
    assert parse_count(" 007 ", variable="V") == 7


@pytest.mark.parametrize(
    "text", ["", " ", "abc", "-1", "+1", "1.0", "1e3", "0x1", "\u00b2", "\u0663", "1 2", "9" * 5000, "11"]
)
def test_refuses_what_is_no_count(text: str) -> None:
    """What is not a whole number of the range is an error with variable and value."""
    with pytest.raises(SlurmEnvironmentError, match="SLURM_NODEID is not a whole number from 0 to 10") as caught:
        parse_count(text, variable="SLURM_NODEID", maximum=10)
    assert caught.value.found.startswith("SLURM_NODEID=")


@given(st.one_of(st.text(max_size=30), st.text(alphabet="0123456789(x), ", max_size=30)))
def test_any_text_gives_counts_or_our_error(text: str) -> None:
    """No text makes anything but positive counts or our own error."""
    try:
        counts = parse_counts_per_node(text, variable="V")
    except MultiNodeError:
        return
    assert counts
    assert min(counts) >= 1
