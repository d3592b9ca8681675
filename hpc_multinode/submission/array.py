"""Job arrays: the points of a sweep that ask for the same, as one job of which each task is a run of its own.

The text is that of a single job. Only ``--array`` is added, the logs bear the array's numbers, and where a single job
has its run folder, each task finds its own by its number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpc_multinode.submission.slurm import render_slurm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan

# Stands for a point's number while the text is rendered; its braces make sure of the quotes that it is taken out of.
_POINT = "{HPC_MULTINODE_POINT}"
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """One job array.

    Attributes:
        folder: Absolute folder of the sweep, which holds the run folders of its points.
        plan: The run of its first point, which asks for the same as the others.
        numbers: Its points, ascending.
        first: The point of task 0, whether it is one of them or not.
        parallel: How many tasks run at a time, or None. Count, at least 1.
    """

    folder: Path
    plan: LaunchPlan
    numbers: tuple[int, ...]
    first: int
    parallel: int | None


def make_arrays(
    plans: Mapping[int, LaunchPlan], *, folder: Path, parallel: int | None, max_size: int
) -> tuple[Array, ...]:
    """Put points that ask for the same into one array each, and into more where one would be too large.

    Args:
        plans: The points' runs by their numbers, ascending.
        folder: Absolute folder of the sweep.
        parallel: How many tasks of an array run at a time, or None.
        max_size: Slurm's MaxArraySize: one more than the largest number of a task.
    """
    kinds: dict[tuple[str, int], list[int]] = {}
    for number, plan in plans.items():
        kinds.setdefault((_render(plan, folder), number // max_size), []).append(number)
    return tuple(
        Array(
            folder=folder,
            plan=plans[numbers[0]],
            numbers=tuple(numbers),
            first=block * max_size,
            parallel=parallel,
        )
        for (_, block), numbers in kinds.items()
    )


def render_array(array: Array) -> str:
    """Return the sbatch text of an array, without asking Slurm or writing anything."""
    limit = f"%{array.parallel}" if array.parallel is not None else ""
    tasks = render_numbers([number - array.first for number in array.numbers])
    plan = replace(array.plan, sbatch={**array.plan.sbatch, "array": f"{tasks}{limit}"})
    point = f"$((SLURM_ARRAY_TASK_ID + {array.first}))" if array.first else "$SLURM_ARRAY_TASK_ID"
    # Out of the single quotes, into double ones, and back where there is more.
    text = _render(plan, array.folder).replace(f"{_POINT}'", f"""'"{point}\"""")
    return text.replace(_POINT, f"""'"{point}"'""")


def render_numbers(numbers: Sequence[int]) -> str:
    """Write ascending numbers as Slurm does: ``0-2,7,9-10``, and ``0-8:2`` for those in steps."""
    parts: list[str] = []
    rest = list(numbers)
    while rest:
        step = rest[1] - rest[0] if len(rest) > 1 else 1
        size = 1
        while size < len(rest) and rest[size] - rest[size - 1] == step:
            size += 1
        if size <= _PAIR and step > 1:  # no range, and the second may begin one
            size = 1
        first, last = rest[0], rest[size - 1]
        parts.append(f"{first}" if size == 1 else f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        rest = rest[size:]
    return ",".join(parts)


def _render(plan: LaunchPlan, folder: Path) -> str:
    text = render_slurm(replace(plan, run_dir=f"{folder}/{_POINT}"))
    # The batch script's own log is opened before the script can say where; agents' logs are in each run's folder.
    text = text.replace(f"/{_POINT}/submitit/%j_", "/submitit/%j_", 1)
    return text.replace("submitit/%j_", "submitit/%A_%a_")
