"""Slurm's words for jobs: states, ids, rows of squeue and sacct."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.slurm.jobs import (
    ACCOUNTING_FIELDS,
    ACTIVE,
    FINAL,
    STATES,
    expand_job_ids,
    find_accounted,
    parse_accounting,
    parse_queue,
    parse_state,
    parse_time,
)


@pytest.mark.parametrize("state", sorted(STATES))
def test_every_state_is_known(state: str) -> None:
    """A state of Slurm's is read as it is, and is either active or final."""
    assert parse_state(state) == state
    assert (state in ACTIVE) != (state in FINAL)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 54321", "CANCELLED"),
        ("CANCELLED+", "CANCELLED"),
        ("OUT_OF_ME+", "UNKNOWN"),
        ("RESV_DEL_HOLD", "RESV_DEL_HOLD"),
        ("running", "RUNNING"),
        ("FROBNICATING", "UNKNOWN"),
        ("", "UNKNOWN"),
    ],
)
def test_state_is_its_first_word(text: str, state: str) -> None:
    """Who cancelled, a plus and case do not matter; a word that Slurm does not have is UNKNOWN."""
    assert parse_state(text) == state


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("4711", ["4711"]),
        ("4711_3", ["4711_3"]),
        ("4711+1", ["4711+1"]),
        ("123_[1-3%2]", ["123_1", "123_2", "123_3"]),
        ("123_[1,3-5]", ["123_1", "123_3", "123_4", "123_5"]),
        ("123_[7]", ["123_7"]),
        ("123_[0-9:2]", ["123_0", "123_2", "123_4", "123_6", "123_8"]),
        ("123_[1-3,5,...]", ["123_1", "123_2", "123_3", "123_5"]),
        ("123_[1-3,", ["123_1", "123_2", "123_3"]),
        ("123_4.batch", []),
        ("", []),
        ("x", []),
    ],
)
def test_job_ids_are_expanded(text: str, ids: list[str]) -> None:
    """Arrays, their waiting ranges, and het jobs; steps and what is no id give nothing."""
    assert list(expand_job_ids(text)) == ids


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    """Whatever a tool prints is read or passed over."""
    expand_job_ids(text[:20])
    parse_state(text)
    parse_queue(text)
    parse_accounting(text)


def test_queue_rows_are_read() -> None:
    """A row of squeue has id, state, times, size and reason; a reason may hold the separator."""
    text = (
        "4711|PENDING|2026-12-01T10:00:00|N/A|N/A|2|1:00:00|gpu||ReqNodeNotAvail, x|y\n"
        "12_[1-2]|RUNNING|2026-12-01T10:00:00|2026-12-01T10:05:00|N/A|1|UNLIMITED|cpu|n01|None\nnonsense\n"
    )
    jobs = parse_queue(text)
    assert sorted(jobs) == ["12_1", "12_2", "4711"]
    assert (jobs["4711"].state, jobs["4711"].reason, jobs["4711"].started) == ("PENDING", "ReqNodeNotAvail, x|y", None)
    assert (jobs["12_2"].reason, jobs["12_2"].nodes) == ("", "n01")
    assert jobs["12_1"].started == datetime.fromisoformat("2026-12-01T10:05:00").astimezone()


@pytest.mark.parametrize("text", ["N/A", "Unknown", "None", "", "tomorrow"])
def test_absent_time_is_none(text: str) -> None:
    """Slurm's words for no time are no time."""
    assert parse_time(text) is None


def _rows(*rows: tuple[str, str, str]) -> str:
    blank = [""] * (len(ACCOUNTING_FIELDS) - 3)
    return "\n".join("|".join([*row, *blank]) for row in rows)


@pytest.mark.parametrize(
    ("rows", "state", "code"),
    [
        ([("88", "PREEMPTED", "0:0"), ("88", "COMPLETED", "0:0")], "COMPLETED", 0),
        ([("88", "PREEMPTED", "0:0")], "PREEMPTED", 0),
        ([("88", "COMPLETED", "0:0"), ("88.0", "CANCELLED", "0:10")], "CANCELLED", 0),
        ([("88", "FAILED", "1:0"), ("88.0", "OUT_OF_MEMORY", "0:125")], "OUT_OF_MEMORY", 0),
        ([("88", "FAILED", "3:0"), ("88.batch", "FAILED", "3:0"), ("88.0", "FAILED", "3:0")], "FAILED", 3),
        ([("88", "COMPLETED", "0:0"), ("88.extern", "CANCELLED", "0:0")], "COMPLETED", 0),
        (
            [("88", "NODE_FAIL", "0:0"), ("88.0", "FAILED", "1:0"), ("88", "COMPLETED", "0:0"),
             ("88.0", "COMPLETED", "0:0")],
            "COMPLETED", 0,
        ),
        ([("88", "CANCELLED by 54321", "0:15")], "CANCELLED", 0),
    ],
)  # fmt: skip
def test_accounting_tells_the_last_run(rows: list[tuple[str, str, str]], state: str, code: int) -> None:
    """The last run of a requeued job counts, and a step where it knows better than its job."""
    found = find_accounted(parse_accounting(_rows(*rows)), "88")
    assert found is not None
    assert (found.state, found.exit_code) == (state, code)


def test_job_that_accounting_lacks_is_none() -> None:
    """No row is not an end."""
    assert find_accounted(parse_accounting(""), "88") is None
