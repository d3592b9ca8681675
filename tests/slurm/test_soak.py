"""A run that is interrupted at random moments ends as if nobody had; the long form is ``python -m bench soak``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.soak import run

if TYPE_CHECKING:
    from tests.slurm.conftest import OnSlurm

pytestmark = pytest.mark.slurm


def test_a_run_that_is_interrupted_ends_as_one_that_is_not(on_slurm: OnSlurm) -> None:
    """Loss and weights to the bit, every step done, none again that was saved."""
    kinds = ("preemption", "lost node", "requeue")
    seen = run(on_slurm.cluster, interruptions=3, seed=3, kinds=kinds, epochs=6, pause_s=0.1, within_s=3.0)
    assert seen["same to the bit"], seen
    assert (seen["saved steps done twice"], seen["steps lost"]) == (0, 0), seen
    assert seen["attempts"] >= 4, seen
