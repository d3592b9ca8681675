"""Slurm's answer to a job that it would take."""

from __future__ import annotations

from datetime import datetime

import pytest

from hpc_multinode.submission.checking import render_answer

NOW = datetime(2026, 12, 1, 12, 0, 0)  # noqa: DTZ001 - as Slurm writes it


@pytest.mark.parametrize(
    ("start", "text"),
    [
        ("2026-12-01T12:00:00", "accepted: would start now on n[1-2] in partition main"),
        ("2026-12-01T11:59:58", "accepted: would start now on n[1-2] in partition main"),
        (
            "2026-12-02T13:30:00",
            "accepted: would start at 2026-12-02T13:30:00, in 1 day, 1:30:00 on n[1-2] in partition main",
        ),
        ("2027-12-01T12:00:00", "accepted: on n[1-2] in partition main, behind jobs whose end is not known"),
        ("3047-09-07T00:52:06", "accepted: on n[1-2] in partition main, behind jobs whose end is not known"),
        ("Unknown", "accepted: would start at Unknown on n[1-2] in partition main"),
    ],
)
def test_the_expected_start_is_told(start: str, text: str) -> None:
    """When, how long that is, and where; a guess of a year or more is none."""
    said = f"sbatch: Job 11 to start at {start} using 2 processors on nodes n[1-2] in partition main"
    assert render_answer(said, now=NOW) == text


def test_other_words_are_told_as_they_are() -> None:
    """A later Slurm may say it in another way."""
    assert render_answer("sbatch: fine", now=NOW) == "accepted: sbatch: fine"
