"""Fixtures of the unit tests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clean_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave modules and path as they were: a worker is a process of its own, this is not."""
    before = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.clear()
    sys.modules.update(before)
