"""What a run asked for against what it used: from the plan, the agents' samples and Slurm's accounting. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpc_multinode.life.svg import Curve
from hpc_multinode.life.table import format_span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hpc_multinode.life.view import RunView
    from hpc_multinode.slurm.jobs import AccountedJob

    Samples = Mapping[int, Sequence[tuple[float, dict[str, Any]]]]

GIB = float(1 << 30)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SIZE = re.compile(r"([0-9.]+)([KMGTP]?)[nc]?")
# With more nodes than this the least, the middle and the most are drawn instead of each.
_MAX_CURVES = 12
_WINDOW_S = 10.0
_LIMITS = {"Partition_Limit": "the partition's", "UNLIMITED": "no limit"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One line of what was asked for and used.

    Attributes:
        name: What.
        asked: As asked for, or ``-``.
        used: As used, or ``-``.
    """

    name: str
    asked: str
    used: str


def compare(
    view: RunView, plan: Mapping[str, Any], samples: Samples, accounting: Mapping[str, AccountedJob]
) -> list[Resource]:
    """List what was asked for and what was used.

    Args:
        view: The run.
        plan: Its ``plan.json``.
        samples: What the agents measured, by node.
        accounting: Slurm's rows of the job and its steps.
    """
    sbatch = plan.get("sbatch") or {}
    job = accounting.get(view.entry.job_id or "")
    cpus = sbatch.get("cpus-per-task") or (f"{job.fields['AllocCPUS']} in all" if job is not None else None)
    memory = sbatch.get("mem") or sbatch.get("mem-per-cpu") or sbatch.get("mem-per-gpu")
    gpus = plan.get("gpus_per_node")
    time_limit = sbatch.get("time") or (job.fields["Timelimit"] if job is not None else None)
    rows = [
        Resource(
            name="time",
            asked=f"{time_limit} min"
            if isinstance(time_limit, int)
            else _LIMITS.get(str(time_limit), _text(time_limit)),
            used=format_span(view.running_s),
        ),
        Resource(name="CPUs a node", asked=_text(cpus), used=_describe_cpus(samples, job)),
        Resource(name="memory a node", asked=_text(memory), used=_describe_memory(samples, accounting)),
    ]
    if gpus or any(item.get("gpus") for points in samples.values() for _, item in points):
        rows.append(Resource(name="GPUs a node", asked=_text(gpus), used=_describe_gpus(samples)))
    return rows


def make_curves(samples: Samples, value: Callable[[dict[str, Any]], float | None]) -> list[Curve]:
    """Return curves of one value: each node's, or of many nodes the least, the middle and the most."""
    points = {
        node: tuple((time, found) for time, item in items if (found := value(item)) is not None)
        for node, items in sorted(samples.items())
    }
    points = {node: items for node, items in points.items() if items}
    if len(points) <= _MAX_CURVES:
        return [Curve(name=f"node {node}", points=items) for node, items in points.items()]
    windows: dict[int, list[float]] = defaultdict(list)
    for items in points.values():
        for time, found in items:
            windows[int(time // _WINDOW_S)].append(found)
    ordered = {index * _WINDOW_S: sorted(found) for index, found in sorted(windows.items())}
    return [
        Curve(name="least of all nodes", css="least", points=tuple((t, found[0]) for t, found in ordered.items())),
        Curve(
            name="middle node", css="most", points=tuple((t, found[len(found) // 2]) for t, found in ordered.items())
        ),
        Curve(name="most of all nodes", css="least", points=tuple((t, found[-1]) for t, found in ordered.items())),
    ]


def read_cpus(item: Mapping[str, Any]) -> float | None:
    """Return CPUs in use from a sample."""
    return _number(item.get("cpus"))


def read_memory(item: Mapping[str, Any]) -> float | None:
    """Return memory in use from a sample, in GiB."""
    found = _number(item.get("memory_bytes"))
    return None if found is None else found / GIB


def read_gpu_use(item: Mapping[str, Any]) -> float | None:
    """Return the mean use of a node's GPUs from a sample, in percent."""
    uses = [gpu.get("use_percent") for gpu in item.get("gpus") or ()]
    return sum(uses) / len(uses) if uses else None


def read_gpu_memory(item: Mapping[str, Any]) -> float | None:
    """Return the memory in use of a node's fullest GPU from a sample, in GiB."""
    return max((gpu.get("memory_bytes", 0) / GIB for gpu in item.get("gpus") or ()), default=None)


def parse_size(text: str) -> float | None:
    """Read a size of Slurm's, such as ``57892K`` or ``4Gn``, in bytes; None where it is none."""
    match = _SIZE.fullmatch(text.strip())
    return float(match[1]) * _UNITS[match[2]] if match else None


def _describe_cpus(samples: Samples, job: AccountedJob | None) -> str:
    found = [cpus for cpus in _all(samples, read_cpus) if cpus is not None]
    words = [f"{sum(found) / len(found):.1f} on average, {max(found):.1f} at most"] if found else []
    if job is not None and job.fields["TotalCPU"]:
        words.append(f"CPU time in all {job.fields['TotalCPU'].partition('.')[0]}, says Slurm")
    return "; ".join(words) or "-"


def _describe_memory(samples: Samples, accounting: Mapping[str, AccountedJob]) -> str:
    found = [memory for memory in _all(samples, read_memory) if memory is not None]
    words = [f"{_format_size(max(found))} at most"] if found else []
    sizes = [size for job in accounting.values() if (size := parse_size(job.fields["MaxRSS"])) is not None]
    if sizes:
        words.append(f"largest task {_format_size(max(sizes) / GIB)}, says Slurm")
    return "; ".join(words) or "-"


def _describe_gpus(samples: Samples) -> str:
    use = [found for found in _all(samples, read_gpu_use) if found is not None]
    memory = [found for found in _all(samples, read_gpu_memory) if found is not None]
    if not use or not memory:
        return "not measured: no NVIDIA driver was found" if samples else "-"
    return f"{sum(use) / len(use):.0f} % busy on average; memory {_format_size(max(memory))} at most"


def _format_size(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"


def _all(samples: Samples, value: Callable[[dict[str, Any]], float | None]) -> Iterable[float | None]:
    return (value(item) for points in samples.values() for _, item in points)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _text(value: object) -> str:
    return "-" if value in (None, "") else str(value)
