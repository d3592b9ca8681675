"""GPUs by name and by number, without ever importing torch or touching CUDA.

Three questions: which devices does this process see (pure, from its environment), how many does a request of sbatch's
ask for (pure), how many has this machine (``count_machine_gpus``, which asks the driver through NVML).
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError, SlurmEnvironmentError, format_variable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

# In the order in which they count. HIP reads CUDA's too, and numbers what ROCR, the layer below, has left.
DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

# What a GPU without a type is called in a parsed request.
ANY_TYPE = ""

_CONTROL_DEVICE = Path("/dev/nvidiactl")
_NOT_A_DEVICE = re.compile(r"-[0-9]+|nodevfiles|none|void|", re.ASCII | re.IGNORECASE)
_GPU_COUNT = re.compile(r"(?:gres[/:])?gpu(?::([A-Za-z0-9_.+-]+?))??(?:[:=]([0-9]{1,6}))?", re.ASCII)
_TYPE_COUNT = re.compile(r"(?:([A-Za-z_][A-Za-z0-9_.+-]*|[0-9][A-Za-z0-9_.+-]*):)?([0-9]{1,6})", re.ASCII)


def find_device_variable(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return name and value of the variable that says which devices are visible, or None where none is set.

    An empty one counts as set: it is how CUDA is told to show nothing.
    """
    return next(((name, environ[name]) for name in DEVICE_VARIABLES if name in environ), None)


def parse_visible_devices(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Read the visible devices as opaque strings, in the order in which local ranks take them.

    Pure. An entry is an index, a GPU or MIG UUID, or whatever the vendor invents next: it is never turned into a
    number.

    Args:
        environ: Variables of the process, normally ``os.environ``.

    Returns:
        The entries; ``()`` where the variable hides all devices (empty, ``-1``, ``NoDevFiles``, an entry twice);
        None where no variable is set, so that the environment alone cannot tell.

    Source:
        CUDA stops at the first entry that is no device and shows nothing if one comes twice.
        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#env-vars
    """
    found = find_device_variable(environ)
    if found is None:
        return None
    devices: list[str] = []
    for entry in found[1].split(","):
        device = entry.strip()
        if _NOT_A_DEVICE.fullmatch(device):
            break
        devices.append(device)
    return tuple(devices) if len(set(devices)) == len(devices) else ()


def check_devices_exist(environ: Mapping[str, str], *, present: int) -> None:
    """Check that a mask of indices fits the devices that exist where this process runs.

    Containers and cgroups number their devices from 0; a mask of the host's numbers laid on top of that hides them
    all, which looks like a broken node.

    Args:
        environ: Variables of the process.
        present: Devices that exist here, as ``count_machine_gpus`` says. Count from 0.

    Raises:
        SlurmEnvironmentError: The mask names an index that is not below ``present``.
    """
    found = find_device_variable(environ)
    devices = parse_visible_devices(environ) or ()
    missing = [device for device in devices if device.isdecimal() and int(device[:9]) >= present]
    if found is None or not missing:
        return
    raise SlurmEnvironmentError(
        what=f"{found[0]} names devices that do not exist here",
        found=f"{format_variable(*found)}, but {present} usable devices, numbered from 0",
        fix=f"do not pass the host's numbers into a container or cgroup that has its own: unset {found[0]} there",
    )


def parse_gpus_option(text: str, *, source: str) -> dict[str, int]:
    """Read the value of ``--gpus-per-node`` and its kin: ``4``, ``a100:4``, ``volta:3,kepler:5``, ``gpu:a100:2``.

    Args:
        text: The value.
        source: The option, key or variable it comes from, for the error.

    Returns:
        Counts by type, ``ANY_TYPE`` for those without one; empty for none at all.

    Raises:
        ConfigError: It is malformed.

    Source:
        sbatch(1), ``--gpus-per-node=[type:]number``. https://slurm.schedmd.com/sbatch.html
    """
    if "gpu" in re.split(r"[:/=,]", text):
        return parse_gres(text, source=source)
    counts: dict[str, int] = {}
    for item in _split_items(text):
        match = _TYPE_COUNT.fullmatch(item)
        if match is None:
            raise _malformed(text, source)
        _add(counts, match[1] or ANY_TYPE, int(match[2]))
    return counts


def parse_gres(text: str, *, source: str) -> dict[str, int]:
    """Read the GPUs of a list of generic resources, and pass over everything else in it.

    Two forms are known: ``gpu:a100:2,gpu:v100:1``, whose items add up, and the form of TRES with ``=``
    (``gres/gpu:a100=1,gres/gpu=1``), in which the item without a type is the total of all types.

    Args:
        text: The value of ``--gres``, ``--tres-per-node`` or of a TRES field.
        source: The option, key or variable it comes from, for the error.

    Returns:
        Counts by type, ``ANY_TYPE`` for those without one; empty for no GPU.

    Raises:
        ConfigError: An item speaks of GPUs and is malformed.

    Source:
        https://slurm.schedmd.com/gres.html, https://slurm.schedmd.com/tres.html
    """
    counts: dict[str, int] = {}
    total = 0
    for item in _split_items(text):
        if not re.match(r"(?:gres[/:])?gpu(?:[:=]|$)", item):
            continue
        match = _GPU_COUNT.fullmatch(item)
        if match is None:
            raise _malformed(text, source)
        # "gpu" and "gpu:a100" mean one.
        count = int(match[2]) if match[2] else 1
        if "=" in item and not match[1]:
            total = max(total, count)
        else:
            _add(counts, match[1] or ANY_TYPE, count)
    _add(counts, ANY_TYPE, max(0, total - sum(counts.values())))
    return counts


def count_machine_gpus() -> int:
    """Count the NVIDIA GPUs that this process may open. Impure: asks the driver through NVML, never CUDA.

    Returns:
        Count from 0; 0 also where there is no driver, it does not answer, or ``nvidia-ml-py`` is not installed.
        ``*_VISIBLE_DEVICES`` is not considered.
    """
    if not _CONTROL_DEVICE.exists():
        return 0
    try:
        # Only here: a machine without GPUs need not have it, nor pay for it.
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        return 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        return sum(_can_open(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return 0
    finally:
        pynvml.nvmlShutdown()


def _can_open(pynvml: ModuleType, index: int) -> bool:
    """NVML counts devices that a cgroup denies as well; only opening one tells."""
    try:
        pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return False
    return True


def _split_items(text: str) -> Sequence[str]:
    """Part a list at its commas; what follows a count in parentheses, ``gpu:2(S:0-1)``, is dropped."""
    bare = re.sub(r"\([^()]*\)", "", text).strip()
    if bare.lower() in {"", "none", "(null)", "n/a"}:
        return ()
    return [item.strip() for item in bare.split(",")]


def _add(counts: dict[str, int], gpu_type: str, count: int) -> None:
    if count:
        counts[gpu_type] = counts.get(gpu_type, 0) + count


def _malformed(text: str, source: str) -> ConfigError:
    return ConfigError(
        what=f"{source} is not a number of GPUs",
        found=format_variable(source, text),
        fix="write a count, or a type and a count: 4, a100:4, gpu:a100:2,gpu:v100:1",
    )
