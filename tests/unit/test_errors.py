"""How errors show what was found."""

from __future__ import annotations

import pytest

from hpc_multinode.errors import format_variable


@pytest.mark.parametrize(
    ("value", "shown"),
    [("2", "V=2"), ("", "V=''"), (" 2", "V=' 2'"), ("a\nb", "V='a\\nb'"), ("\udcff", "V='\\udcff'")],
)
def test_shows_a_variable(value: str, shown: str) -> None:
    """Blanks, control characters and broken bytes are made visible, and nothing breaks the terminal."""
    assert format_variable("V", value) == shown
