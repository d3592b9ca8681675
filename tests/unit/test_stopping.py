"""What a worker and its forkserver tell each other, and how ranks agree."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import hpc_multinode
from hpc_multinode import stopping
from hpc_multinode.stopping import Page, StopAgreement

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pages() -> Iterator[tuple[Page, Page]]:
    """The same page, as the forkserver and as the worker see it."""
    descriptor, page = Page.make()
    other = Page(descriptor)
    os.close(descriptor)
    yield page, other
    page.close()
    other.close()


def test_a_new_page_says_nothing(pages: tuple[Page, Page]) -> None:
    """Nobody has asked, nobody listens, nothing is saved."""
    page, _ = pages
    assert (page.is_stop_requested, page.listens, page.has_noticed, page.step) == (False, False, False, None)


def test_who_asks_listens_and_who_is_told_has_noticed(pages: tuple[Page, Page]) -> None:
    """The forkserver sees both."""
    page, worker = pages
    assert worker.ask() is False
    assert (page.listens, page.has_noticed) == (True, False)
    page.request_stop()
    assert worker.ask() is True
    assert page.has_noticed


@pytest.mark.parametrize("step", [0, 7, 2**62])
def test_a_step_arrives(pages: tuple[Page, Page], step: int) -> None:
    """Zero is a step too."""
    page, worker = pages
    worker.report(step)
    assert page.step == step


def test_outside_a_worker_nobody_is_told_to_stop() -> None:
    """The same code runs by itself."""
    assert hpc_multinode.stop_requested() is False
    hpc_multinode.report_progress(3)
    assert StopAgreement()() is False


def test_the_first_question_is_told_once(pages: tuple[Page, Page], monkeypatch: pytest.MonkeyPatch) -> None:
    """A work that asks whether to stop is in its first step; outside a worker nobody is told."""
    told: list[bool] = []
    monkeypatch.setattr(stopping._Own, "tell_first", None)  # noqa: SLF001 - this process is no worker
    stopping.on_first_ask(lambda: told.append(True))
    hpc_multinode.stop_requested()
    assert told == []
    monkeypatch.setattr(stopping._Own, "page", pages[1])  # noqa: SLF001
    for _ in range(3):
        assert hpc_multinode.stop_requested() is False
    assert told == [True]


def test_an_agreement_asks_about_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a step takes; every rank comes to the same number, since it follows from what all have told."""
    asked = []
    now = [0.0]

    def reduce_max(is_stop: object, seconds: float) -> tuple[object, float]:
        asked.append(now[0])
        return is_stop, seconds

    monkeypatch.setattr(stopping, "_reduce_max", reduce_max)
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    agree = StopAgreement()
    for _ in range(1000):
        now[0] += 0.01
        agree()
    gaps = [after - before for before, after in itertools.pairwise(asked)]
    assert asked[0] == 0.01
    assert max(gaps) == pytest.approx(1.0, abs=0.02)
    assert len(asked) == 11


def test_an_agreement_in_every_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call asks, so that a stop that came before is heard of at once."""
    asked = []
    monkeypatch.setattr(stopping, "_reduce_max", lambda is_stop, seconds: (asked.append(1), (is_stop, seconds))[1])
    agree = StopAgreement(every=4)
    for _ in range(9):
        agree()
    assert len(asked) == 3


def test_an_agreement_on_nothing_is_refused() -> None:
    """A count begins at 1."""
    with pytest.raises(ValueError, match="every=0"):
        StopAgreement(every=0)


def test_asking_costs_next_to_nothing() -> None:
    """No torch is loaded for it, and none for an agreement in one process that has none."""
    code = "import hpc_multinode, sys; hpc_multinode.stop_requested(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
