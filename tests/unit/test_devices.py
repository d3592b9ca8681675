"""Devices by name and number."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.devices import (
    ANY_TYPE,
    check_devices_exist,
    count_machine_gpus,
    parse_gpus_option,
    parse_gres,
    parse_visible_devices,
)
from hpc_multinode.errors import ConfigError, MultiNodeError, SlurmEnvironmentError


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("2,3", ("2", "3")),
        ("3,2", ("3", "2")),
        (" 0, 1 ", ("0", "1")),
        ("0,1,", ("0", "1")),
        ("MIG-377e0049-554c-540b-93c6-d0976f8426cb", ("MIG-377e0049-554c-540b-93c6-d0976f8426cb",)),
        ("GPU-8932f937", ("GPU-8932f937",)),
        ("MIG-GPU-8932f937/1/0,GPU-1", ("MIG-GPU-8932f937/1/0", "GPU-1")),
        ("NoDevFiles", ()),
        ("nodevfiles", ()),
        ("", ()),
        (" ", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("0,,1", ("0",)),
        ("0,0", ()),
        ("none", ()),
    ],
)
def test_reads_visible_devices(value: str, devices: tuple[str, ...]) -> None:
    """Entries are opaque strings in their order; what is no device ends the list, as in CUDA."""
    assert parse_visible_devices({"CUDA_VISIBLE_DEVICES": value}) == devices


def test_unset_cannot_tell() -> None:
    """Without any of the variables the environment does not say what is visible."""
    assert parse_visible_devices({"SLURM_GPUS_ON_NODE": "4"}) is None


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_reads_the_names_of_amd(name: str) -> None:
    """The variables of ROCm count like CUDA's."""
    assert parse_visible_devices({name: "4,5"}) == ("4", "5")


def test_the_upper_layer_counts() -> None:
    """HIP's indices number what ROCR has left, so HIP's list is the one that workers take from."""
    environ = {"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "0,1"}
    assert parse_visible_devices(environ) == ("0", "1")


def test_a_mask_of_the_host_in_a_container_is_an_error() -> None:
    """Indices that do not exist here are an error with the mask and the number of usable devices."""
    with pytest.raises(SlurmEnvironmentError, match="CUDA_VISIBLE_DEVICES names devices that do not exist") as caught:
        check_devices_exist({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, present=4)
    assert caught.value.found == "CUDA_VISIBLE_DEVICES=4,5,6,7, but 4 usable devices, numbered from 0"


@pytest.mark.parametrize("value", ["0,1", "GPU-4", "MIG-9", "", None])
def test_a_mask_that_fits_is_accepted(value: str | None) -> None:
    """Indices below the number of devices, UUIDs, an empty mask and no mask fit."""
    check_devices_exist({} if value is None else {"CUDA_VISIBLE_DEVICES": value}, present=4)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("4", {ANY_TYPE: 4}),
        ("a100:4", {"a100": 4}),
        ("4090:2", {"4090": 2}),
        ("volta:3,kepler:5", {"volta": 3, "kepler": 5}),
        ("gpu:4", {ANY_TYPE: 4}),
        ("gpu:a100:2,gpu:v100:1", {"a100": 2, "v100": 1}),
        ("gres/gpu:a100=1,gres/gpu=1", {"a100": 1}),
        ("0", {}),
        ("", {}),
    ],
)
def test_reads_a_gpus_option(text: str, counts: dict[str, int]) -> None:
    """A count, or a type and a count, alone or in a list, with or without gpu: in front."""
    assert parse_gpus_option(text, source="resources.gpus_per_node") == counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("gpu", {ANY_TYPE: 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:a100:4", {"a100": 4}),
        ("gpu:p6000:1", {"p6000": 1}),
        ("gpu:1g.5gb:2", {"1g.5gb": 2}),
        ("gpu:nvidia_a100_3g.20gb:2(S:0-1)", {"nvidia_a100_3g.20gb": 2}),
        ("gpu:2(IDX:0,3)", {ANY_TYPE: 2}),
        ("nvme:1,gpu:2,shard:4", {ANY_TYPE: 2}),
        ("gpu:a100:1,gpu:1", {"a100": 1, ANY_TYPE: 1}),
        ("gres:gpu:2", {ANY_TYPE: 2}),
        ("gres/gpu:2", {ANY_TYPE: 2}),
        ("gres/gpu=1,gres/gpu:a100=1", {"a100": 1}),
        ("gres/gpu:a100=1,gres/gpu=3", {"a100": 1, ANY_TYPE: 2}),
        ("billing=8,cpu=8,gres/gpu:a40=1,gres/gpu=1,gres/gpumem=40960,mem=16G", {"a40": 1}),
        ("nvme:1", {}),
        ("(null)", {}),
        ("none", {}),
    ],
)
def test_reads_gres(text: str, counts: dict[str, int]) -> None:
    """GPUs are found among other resources; in the form of TRES the item without a type is the total."""
    assert parse_gres(text, source="resources.gres") == counts


@pytest.mark.parametrize(
    "text", ["four", "a100", "auto", "4,", "-1", "1.5", "gpu:a100:x", "gpu:", "a100:", ":4", "gpu::2"]
)
def test_refuses_a_malformed_request(text: str) -> None:
    """A request that is no number is an error that shows it and how to write it."""
    with pytest.raises(ConfigError, match=r"resources\.gpus_per_node is not a number of GPUs") as caught:
        parse_gpus_option(text, source="resources.gpus_per_node")
    assert caught.value.found == f"resources.gpus_per_node={text}"
    assert "gpu:a100:2,gpu:v100:1" in caught.value.fix


@given(st.one_of(st.text(max_size=30), st.text(alphabet="gpures/:=,(0129)a ", max_size=30)))
def test_any_request_gives_counts_or_our_error(text: str) -> None:
    """No text makes anything but positive counts or our own error."""
    for parse in (parse_gpus_option, parse_gres):
        try:
            counts = parse(text, source="S")
        except MultiNodeError:
            continue
        assert all(count > 0 for count in counts.values())


@given(st.text(max_size=30))
def test_any_mask_gives_distinct_devices(text: str) -> None:
    """No value of the variable makes an exception, an empty entry or a device twice."""
    devices = parse_visible_devices({"CUDA_VISIBLE_DEVICES": text})
    assert devices is not None
    assert len(set(devices)) == len(devices)
    assert all(devices)


def test_counting_needs_neither_torch_nor_a_driver() -> None:
    """Counting the machine's GPUs works anywhere, gives a count, and imports no torch."""
    code = (
        "import sys; from hpc_multinode.devices import count_machine_gpus; "
        "print(count_machine_gpus() >= 0, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
    assert count_machine_gpus() >= 0
