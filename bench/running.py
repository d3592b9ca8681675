"""What the launcher costs while the work runs: CPU, memory, the step time with and without it, a worker's USS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.contestants import NUM_NODES, make_ours, make_srun
from bench.figures import Figure, make_ratio
from bench.lab import Values, pick, pick_both

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.contestants import Job
    from bench.lab import Lab

_FORKSERVER, _SPAWN, _SRUN = "ours, forkserver", "ours, spawn", "srun"
_TIMEOUT_S = 180.0
_MANY = 4


def measure(lab: Lab) -> None:
    """Measure with one worker a node, where no worker waits for another's core, and memory with several."""
    one: dict[str, Callable[[Path], Job]] = {
        _FORKSERVER: lambda out: make_ours("pytorch_spawn", "loop.py:run", 1, out, "work.kwargs.watch_s=12"),
        _SRUN: lambda out: make_srun("loop.py", 1, out),
    }
    many: dict[str, Callable[[Path], Job]] = {
        f"{_FORKSERVER}, 2 x {_MANY}": lambda out: make_ours("pytorch_spawn", "loop.py:run", _MANY, out),
        f"{_SPAWN}, 2 x {_MANY}": lambda out: make_ours(
            "pytorch_spawn", "loop.py:run", _MANY, out, "launch.start_method=spawn"
        ),
    }
    contestants: dict[str, Callable[[], Values]] = {}
    for who, make in one.items():
        contestants[who] = lambda who=who, make=make: _run(lab, who, make, 1)  # type: ignore[misc]
    for who, make in many.items():
        contestants[who] = lambda who=who, make=make: _run(lab, who, make, _MANY)  # type: ignore[misc]
    rounds = lab.run_rounds(contestants)
    _add(lab, rounds)


def _add(lab: Lab, rounds: list[dict[str, Values]]) -> None:
    for who in (_FORKSERVER, _SRUN):
        if values := pick(rounds, who, "step_ms"):
            lab.add(Figure(what=f"all-reduce, {who}", unit="ms", values=values))
    ours, theirs = pick_both(rounds, _FORKSERVER, _SRUN, "step_ms")
    if ours:
        lab.add(make_ratio("step time with us to that under srun", ours, theirs, most=1.05, in_table=True))
    for name, unit, most in (
        ("agent_cpu_percent", "% of a core", 1.0),
        ("forkserver_cpu_percent", "% of a core", 1.0),
        ("agent_rss_mb", "MB", 60.0),
        ("agent_uss_mb", "MB", None),
        ("forkserver_uss_mb", "MB", None),
    ):
        if values := pick(rounds, _FORKSERVER, name):
            what = name.rpartition("_")[0].replace("_", ", ")
            lab.add(Figure(what=f"{what} while it runs", unit=unit, values=values, most=most, in_table="agent" in name))
    forked, spawned = (f"{start}, 2 x {_MANY}" for start in (_FORKSERVER, _SPAWN))
    for who in (forked, spawned):
        if values := pick(rounds, who, "uss_mb"):
            lab.add(Figure(what=f"a worker's own memory (USS), {who}", unit="MB", values=values))
    less, more = pick_both(rounds, forked, spawned, "uss_mb")
    if less:
        lab.add(make_ratio("a worker's own memory, forkserver to spawn", less, more, most=1.0, in_table=True))


def _run(lab: Lab, who: str, make: Callable[[Path], Job], workers: int) -> Values:
    """Run one and return the largest value of all ranks."""
    out = lab.make_folder("running")
    lab.launch(who, make(out), out)
    told = lab.collect(out, world=NUM_NODES * workers, timeout_s=_TIMEOUT_S)
    return {name: max(one[name] for one in told) for name in told[0] if name != "rank"}
