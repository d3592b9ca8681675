"""A sweep: one run for each point, each with a plan, a run folder and a configuration of its own.

Login side. Decides and checks; reads this machine and the person's sources, writes nothing, submits nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.after import wait_after
from hpc_multinode.config import Mode
from hpc_multinode.errors import ConfigError
from hpc_multinode.preparation import list_import_folders, prepare_live_plan
from hpc_multinode.runs import CODE
from hpc_multinode.snapshot import find_code, move_plan
from hpc_multinode.sweep_record import RecordedPoint, SweepRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.config import Config
    from hpc_multinode.plan import CodePlan, LaunchPlan
    from hpc_multinode.points import Point
    from hpc_multinode.snapshot import Code
    from hpc_multinode.sweep_record import SubmittedArray

# What there is once for a sweep, so that no point can have its own.
_COMMON = (
    "cluster.mode", "run_id", "run_root", "private", "snapshot", "snapshot_max_mb", "array.parallel", "rerun", "after",
    "wait",
)  # fmt: skip
_MODES = (Mode.slurm.value, Mode.local.value, Mode.step.value)
# Swept words that the plan has word for word, so that they tell a point from others by their values.
_IN_PLAN = ("work.", "env.", "strategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One point of a sweep.

    Attributes:
        number: Its place in the sweep, from 0; the name of its run folder, and its place in a job array.
        words: What tells it from the other points, as typed.
        identity: Equal for points that compute the same, of this sweep or an earlier one.
        plan: Its run.
        config_text: Its configuration as YAML, resolved.
    """

    number: int
    words: tuple[str, ...]
    identity: str
    plan: LaunchPlan
    config_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The points of one command line.

    Attributes:
        sweep_id: The sweep's id and its folder's name.
        folder: Absolute folder that holds the run folders.
        is_private: As of the plans.
        mode: As of the plans.
        user: Who submits.
        points: In their order.
        parallel: How many run at a time in each job array, or None. Count, at least 1.
        code: What is copied into the sweep's folder for all of them, or None.
    """

    sweep_id: str
    folder: Path
    is_private: bool
    mode: str
    user: str
    points: tuple[SweepPoint, ...]
    parallel: int | None
    code: CodePlan | None


def prepare_sweep(points: Sequence[Point], *, cwd: Path, config_dirs: Sequence[Path] = ()) -> Sweep:
    """Turn composed points into a sweep whose every run is known to be sound.

    Args:
        points: At least one.
        cwd: Where the person stands.
        config_dirs: The person's configuration folders, whose ``sbatch_templates`` come before ours.

    Raises:
        MultiNodeError: A value is wrong, or cannot differ between points.
    """
    configs = [point.config for point in points]
    _require_common(configs)
    plans = [prepare_live_plan(config, cwd=cwd, config_dirs=config_dirs) for config in configs]
    first = plans[0]
    if first.mode not in _MODES:
        raise ConfigError(
            what=f"cluster={first.mode} runs one point, not a sweep",
            found=f"-m with {len(points)} point{'s' * (len(points) != 1)}",
            fix="cluster=local, cluster=slurm, or leave -m out",
        )
    swept = _place(points, plans, code=_find_code(plans, configs[0], cwd=cwd))
    return Sweep(
        sweep_id=first.run_id,
        folder=Path(first.run_dir),
        is_private=first.is_private,
        mode=first.mode,
        user=first.user,
        points=swept,
        parallel=configs[0].array.parallel,
        code=swept[0].plan.code,
    )


def _place(points: Sequence[Point], plans: Sequence[LaunchPlan], *, code: Code | None) -> tuple[SweepPoint, ...]:
    """Give each point its place in the sweep: folder, name, what it waits for, and the copy that it runs from."""
    first, config = plans[0], points[0].config
    # For all of them at once: squeue is asked but once.
    waiting = wait_after(first, config.after).sbatch if config.after is not None else {}
    dependency = {option: value for option, value in waiting.items() if option not in first.sbatch}
    folders = list_import_folders() if code is not None else ()
    swept = []
    for number, (point, plan) in enumerate(zip(points, plans, strict=True)):
        # A name that nobody has given is no reason for a job array of its own.
        name = plan.name if point.config.name else first.name
        placed = replace(
            plan,
            run_id=f"{first.run_id}-{number}",
            run_dir=f"{first.run_dir}/{number}",
            sbatch={**plan.sbatch, "job-name": name, **dependency},
        )
        if code is not None:
            placed = move_plan(placed, code, folder=f"{first.run_dir}/{CODE}", import_folders=folders)
        identity = _identify(plan, point.words)
        swept.append(
            SweepPoint(number=number, words=point.words, identity=identity, plan=placed, config_text=point.text)
        )
    return tuple(swept)


def make_record(points: Sequence[SweepPoint], jobs: Sequence[SubmittedArray] = ()) -> SweepRecord:
    """Compose what is written down of a sweep.

    Args:
        points: Those that are started.
        jobs: The job arrays that they are so far.
    """
    recorded = (RecordedPoint(number=one.number, words=one.words, identity=one.identity) for one in points)
    return SweepRecord(points=tuple(recorded), jobs=tuple(jobs))


def _require_common(configs: Sequence[Config]) -> None:
    for key in _COMMON:
        values = {str(_get(config, key)) for config in configs}
        if len(values) > 1:
            raise ConfigError(
                what=f"{key} cannot have several values: there is one for the whole sweep",
                found=f"{key}={','.join(sorted(values))}",
                fix=f"give one, or start a sweep for each value of {key}",
            )


def _get(config: Config, key: str) -> Any:  # noqa: ANN401 - values of any type
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def _find_code(plans: Sequence[LaunchPlan], config: Config, *, cwd: Path) -> Code | None:
    if not config.snapshot:
        return None
    files = list(dict.fromkeys(plan.work.file for plan in plans if plan.work.file))
    code = find_code(Path(files[0]), cwd=cwd, max_mb=config.snapshot_max_mb)
    outside = next((file for file in files if not code.holds(file)), None)
    if outside is not None:
        raise ConfigError(
            what="the works of a sweep do not belong to the same code, of which there is one snapshot",
            found=f"{outside} is no part of {code.root}",
            fix="start a sweep for each, or snapshot=false",
        )
    return code


def _identify(plan: LaunchPlan, words: Sequence[str]) -> str:
    """Digest what a point computes: its work and arguments, its strategy, its variables, and what else is swept.

    Not what it runs on, unless that is swept: whoever starts failed points again may give them more memory.
    """
    strategy = plan.strategy
    what = {
        "work": [plan.work.file, plan.work.name, plan.work.args, plan.work.kwargs],
        "strategy": [strategy.name, strategy.executor, strategy.executor_file],
        "env": plan.env,
        "words": sorted(word for word in words if not word.lstrip("+").startswith(_IN_PLAN)),
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
