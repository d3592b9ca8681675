"""From the command to the first all-reduce of all workers, beside what people would use instead.

Every round starts each contestant once, on two nodes of a real Slurm. Three clocks: from the command that a person
types; from the moment the script goes to sbatch; from the first process that Slurm has
started for the step on the nodes.
"""

from __future__ import annotations

import json
import time
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from bench.contestants import (
    NUM_NODES,
    PEERS,
    make_lightning,
    make_ours,
    make_srun,
    make_submitit,
    make_torchrun,
    make_torchrunx,
)
from bench.figures import Figure, make_ratio
from bench.lab import Values, pick, pick_both

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench.contestants import Job
    from bench.lab import Lab

SIZES = (1, 2, 4, 8, 16)
# Sizes that the README shows, and whose phases are told.
_SHOWN = (1, 4, 16)
OURS = "pytorch_spawn"
# Sizes at which each starts: the peers import torch in every worker, which on few cores takes most of a bench's time.
CONTESTANTS: dict[str, tuple[Callable[[int, Path], Job], tuple[int, ...]]] = {
    OURS: (lambda workers, out: make_ours(OURS, "reduce.py:reduce_once", workers, out), SIZES),
    "script": (lambda workers, out: make_ours("script", "reduce.py", workers, out), (4,)),
    "torchrun": (lambda workers, out: make_torchrun("reduce.py", workers, out), SIZES),
    "srun": (lambda workers, out: make_srun("reduce.py", workers, out), SIZES),
    "submitit": (make_submitit, (1, 4)),
    "torchrunx": (make_torchrunx, (1, 4)),
    "lite": (lambda workers, out: make_ours("lite", "reduce.py:reduce_with_fabric", workers, out), (4,)),
    "lightning": (lambda workers, out: make_ours("lightning", "trainer.py:fit", workers, out), (1, 4)),
    "Lightning under srun": (make_lightning, (1, 4)),
}
# Whose start is divided by which of ours.
_RIVALS = {"torchrun": OURS, "srun": OURS, "submitit": OURS, "torchrunx": OURS, "Lightning under srun": "lightning"}
# What others measured before, as ratios at 4 workers a node.
_LEAST = {"torchrun": 4.0, "srun": 3.0, "submitit": 3.0, "Lightning under srun": 3.0}
_TIMEOUT_S = 120.0
# What no launcher of torch workers can be faster than.
_FLOOR = "importing torch once on both nodes"
_IMPORT = "import torch, torch.distributed, torch.nn.parallel"
_PHASES = ("joined", "preloaded", "spawned", "process_group")


def measure(lab: Lab) -> None:
    """Measure all contestants at all sizes."""
    starts: dict[str, Callable[[], Values]] = {_FLOOR: partial(_import_once, lab)}
    if not (PEERS / "bin" / "python").exists():
        lab.note("torchrunx is not installed; python -m bench.peers does so")
    for workers in SIZES:
        for who, (make, sizes) in CONTESTANTS.items():
            if workers in sizes:
                starts[_name(who, workers)] = partial(start_once, lab, who, make, workers)
    # Once for nothing: the first import of a package reads it from the disk.
    lab.run(("python", "-c", f"{_IMPORT}, lightning.pytorch"), lab.cluster.shared)
    rounds = lab.run_rounds(starts)
    for workers in SIZES:
        _add_size(lab, rounds, workers)
    for clock in ("from_sbatch", "from_step"):
        last, first = pick_both(rounds, _name(OURS, SIZES[-1]), _name(OURS, SIZES[0]), clock)
        if first:
            what = f"growth from {_size(SIZES[0])} to {_size(SIZES[-1])} workers, {clock.replace('_', ' ')}"
            lab.add(make_ratio(what, last, first, in_table=clock == "from_step"))
    _add_floor(lab, rounds)
    for workers in _SHOWN:
        _add_phases(lab, rounds, workers)


def _name(who: str, workers: int) -> str:
    return f"{who}, {_size(workers)}"


def _size(workers: int) -> str:
    return f"{NUM_NODES} x {workers}"


def _add_size(lab: Lab, rounds: list[dict[str, Values]], workers: int) -> None:
    there = [
        who for who, (_, sizes) in CONTESTANTS.items() if workers in sizes and pick(rounds, _name(who, workers), "now")
    ]
    for who in there:
        for clock in ("from_command", "from_sbatch", "from_step"):
            values = pick(rounds, _name(who, workers), clock)
            what = f"{_name(who, workers)}, {clock.replace('_', ' ')}"
            lab.add(
                Figure(
                    what=what,
                    unit="s",
                    values=values,
                    in_table=who == OURS and clock == "from_sbatch" and workers in _SHOWN,
                )
            )
    for rival, ours in _RIVALS.items():
        for clock in ("from_command", "from_sbatch", "from_step"):
            theirs, own = pick_both(rounds, _name(rival, workers), _name(ours, workers), clock)
            if own:
                least = _LEAST.get(rival) if workers == 4 and clock == "from_sbatch" else None  # noqa: PLR2004
                what = f"{rival} to ours, {_size(workers)}, {clock.replace('_', ' ')}"
                lab.add(
                    make_ratio(what, theirs, own, least=least, in_table=clock == "from_sbatch" and workers in _SHOWN)
                )


def _add_floor(lab: Lab, rounds: list[dict[str, Values]]) -> None:
    if values := pick(rounds, _FLOOR, "from_step"):
        lab.add(Figure(what=_FLOOR, unit="s", values=values))
    ours, floor = pick_both(rounds, _name(OURS, 1), _FLOOR, "from_step")
    if ours:
        lab.add(make_ratio(f"ours, {_size(1)}, from step, to {_FLOOR}", ours, floor, most=1.5, in_table=True))


def _add_phases(lab: Lab, rounds: list[dict[str, Values]], workers: int) -> None:
    """Add where our own time goes, by phase in order, and name the largest."""
    who = _name(OURS, workers)
    names = [name for measured in rounds for name in measured.get(who, {}) if name.startswith("phase ")]
    figures = [Figure(what=f"{who}, {name}", unit="s", values=pick(rounds, who, name)) for name in dict.fromkeys(names)]
    lab.add(*figures)
    if figures:
        largest = max(figures, key=lambda figure: figure.median)
        lab.note(f"the largest phase of {who}: {largest.what.partition('phase ')[2]}, {largest.median:.2f} s")


def start_once(lab: Lab, who: str, make: Callable[[int, Path], Job], workers: int) -> Values:
    """Start one contestant, wait for its first all-reduce and its end, and return its times in seconds."""
    out = lab.make_folder("start")
    job = make(workers, out)
    began = time.time()
    lab.launch(who, job, out)
    told = lab.collect(out, world=NUM_NODES * workers, timeout_s=_TIMEOUT_S)
    ended = max(one["now"] for one in told)
    stepped = min(one["started"] for one in told)
    submitted = find_submitted(out) or began
    values = {
        "now": ended,
        "from_command": ended - began,
        "from_sbatch": ended - submitted,
        "from_step": ended - stepped,
    }
    events = sorted(out.glob("runs/*/attempt-0/events.jsonl"))
    if events:
        batch = float((out / "began").read_text())
        values |= {"phase command line": submitted - began, "phase queue": batch - submitted}
        values |= {"phase srun": stepped - batch, **read_phases(events[0], stepped=stepped, ended=ended)}
    return values


def _import_once(lab: Lab) -> Values:
    """Import torch in as many processes at once as there are nodes: they share this machine's cores."""
    argv = ("python", "-c", _IMPORT)
    lab.show_command(_FLOOR, f'python -c "{_IMPORT}"')
    began = time.monotonic()
    processes = [lab.cluster.popen(argv, host=name) for name in lab.cluster.node_names]
    for process in processes:
        process.communicate()
    return {"from_step": time.monotonic() - began}


def find_submitted(out: Path) -> float | None:
    """Return when a launcher had written the script that it gave to sbatch; None where the command was sbatch."""
    scripts = [*out.glob("runs/*/submission.sh"), *out.glob("submitit/*submission*.sh")]
    return scripts[0].stat().st_mtime if scripts else None


def read_phases(events: Path, *, stepped: float, ended: float) -> Mapping[str, float]:
    """Read from a run's events how long each phase of its start took, in seconds.

    A phase ends when node 0 has heard of it from the slowest node.

    Args:
        events: The file.
        stepped: When Slurm had started the first agent's process.
        ended: When the first all-reduce was over on all ranks.
    """
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    phases = [line for line in lines if line["kind"] == "phase"]
    own = next(line for line in phases if line["node_rank"] == 0 and line["name"] == "joined")
    began = _to_seconds(own["time"]) - own["seconds"]
    found, last = {"phase agent": began - stepped}, began
    for name in _PHASES:
        # Nodes find each other while the framework is being imported: only what comes on top counts.
        until = max(_to_seconds(line["time"]) for line in phases if line["name"] == name)
        found[f"phase {name.replace('_', ' ')}"] = max(0.0, until - last)
        last = max(last, until)
    return {**found, "phase first all-reduce": max(0.0, ended - last)}


def _to_seconds(time_text: str) -> float:
    return datetime.fromisoformat(time_text).timestamp()
