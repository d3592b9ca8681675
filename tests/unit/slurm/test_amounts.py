"""Durations, memory and GPUs as Slurm writes them in options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.errors import ConfigError
from hpc_multinode.slurm.amounts import (
    count_gres_gpus,
    parse_memory,
    parse_time_limit,
    render_memory,
    render_time_limit,
)

TIMES = {
    "10": 10, "240": 240, "43200": 43200, "4:00": 4, "1:30": 2, "0:30": 1, "00:00:01": 1, "1:00:00": 60, "2-12": 3600,
    "3-0:00": 4320, "7-00": 10080, "1-12:30": 2190, "1-12:00:00": 2160, "1-12:30:45": 2191, "2-12:30:45": 3631,
    "0:240:0": 240, "0-1": 60, "unlimited": None, "UNLIMITED": None,
}  # fmt: skip


@pytest.mark.parametrize(("text", "minutes"), TIMES.items())
def test_reads_every_form_of_a_time(text: str, minutes: int | None) -> None:
    """Minutes, rounded up, and never 0 by rounding."""
    assert parse_time_limit(text, key="k") == minutes


@pytest.mark.parametrize(
    "text", ["", "0", "0:00", "0-0", "abc", "1:2:3:4", "-5", "1-", "10:", "1.5", "infinite", "1-2:3:4:5", "\u0661"]
)
def test_refuses_what_is_no_time(text: str) -> None:
    """Nothing stands for no limit but the word unlimited."""
    with pytest.raises(ConfigError, match="k is no time limit") as caught:
        parse_time_limit(text, key="k")
    assert caught.value.found == f"k={text}"
    assert "1-12:30:45" in caught.value.fix


@pytest.mark.parametrize(
    ("minutes", "text"), [(1, "00:01:00"), (240, "04:00:00"), (1440, "1-00:00:00"), (3631, "2-12:31:00")]
)
def test_writes_a_time_that_cannot_be_misread(minutes: int, text: str) -> None:
    """Every field is below 60, and the unit of each is plain."""
    assert render_time_limit(minutes) == text


@given(st.integers(min_value=1, max_value=10**6))
def test_a_written_time_is_read_back(minutes: int) -> None:
    """Writing and reading are each other's inverse."""
    assert parse_time_limit(render_time_limit(minutes), key="k") == minutes


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("2.5", 2560), ("64", 65536), ("8G", 8192), ("8GB", 8192), ("8gib", 8192), ("512M", 512), ("16384.0M", 16384),
     ("1T", 1048576), ("1K", 1), ("0.0001", 1), ("0", 0), ("0G", 0), (".5", 512)],
)  # fmt: skip
def test_reads_memory(text: str, mebibytes: int) -> None:
    """GiB without a unit, rounded up to MiB, and 0 only for 0."""
    assert parse_memory(text, key="k", is_zero_all=True) == mebibytes


@pytest.mark.parametrize("text", ["", "G", "-1", "inf", "nan", "4X", "1e3", "4 G", "1,5"])
def test_refuses_what_is_no_memory(text: str) -> None:
    """An amount is a decimal number and perhaps a unit."""
    with pytest.raises(ConfigError, match="k is no amount of memory") as caught:
        parse_memory(text, key="k", is_zero_all=True)
    assert caught.value.found == f"k={text}"
    assert caught.value.fix == "GiB, as in 2.5, or with a unit, as in 8G, 512M; 0 is all of the node's"


def test_refuses_zero_where_it_means_nothing() -> None:
    """Only a node's memory can be asked for as a whole."""
    with pytest.raises(ConfigError) as caught:
        parse_memory("0", key="k", is_zero_all=False)
    assert caught.value.fix == "GiB, as in 2.5, or with a unit, as in 8G, 512M"


@pytest.mark.parametrize(("mebibytes", "text"), [(0, "0"), (1, "1M"), (1536, "1536M"), (2048, "2G")])
def test_writes_memory_without_fractions(mebibytes: int, text: str) -> None:
    """The largest unit that fits; Slurm reads no decimal point."""
    assert render_memory(mebibytes) == text


@pytest.mark.parametrize(
    ("gres", "count"),
    [("gpu", 1), ("gpu:4", 4), ("gpu:a100:4", 4), ("gpu:a100", 1), ("gres:gpu:2", 2), ("lustre:1,gpu:h100:2", 2),
     ("gpu:a:2,gpu:b:1", 3), ("gpu:1g.5gb:2", 2), ("lustre:1", None), ("gpux:2", None)],
)  # fmt: skip
def test_counts_the_gpus_of_a_gres(gres: str, count: int | None) -> None:
    """With and without a type, beside other resources."""
    assert count_gres_gpus(gres) == count
