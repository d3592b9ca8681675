"""How plans, node lists, sweeps and logs grow with the number of nodes, points and ranks."""

from __future__ import annotations

import re
import resource
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.contestants import NUM_NODES, make_ours
from bench.figures import Figure, make_ratio
from bench.lab import BenchError, Values, pick, pick_both
from hpc_multinode.slurm.nodelist import expand_node_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.lab import Lab

_NODES = (2, 64, 4096)
_LISTS = (100, 1_000, 10_000)
_EXPANSIONS = 10
_POINTS = (10, 100, 1_000)
_RANKS = (8, 64, 512)
_LINE = re.compile(r"rank \d+ at ([\d.]+)$")
_LOGS_TIMEOUT_S = 120.0
_SWEEP_TIMEOUT_S = 240.0


def measure(lab: Lab) -> None:
    """Measure all of them in rounds."""
    contestants: dict[str, Callable[[], Values]] = {}
    for nodes in _NODES:
        contestants[f"render, {nodes} nodes"] = partial(_render, lab, nodes)
    for count in _LISTS:
        contestants[f"node list, {count} nodes"] = partial(_expand, count)
    for count in _POINTS:
        contestants[f"sweep, {count} points"] = partial(_sweep, lab, count)
    for count in _RANKS:
        contestants[f"logs -f, {count} ranks"] = partial(_follow, lab, count)
    rounds = lab.run_rounds(contestants)
    for who in contestants:
        for name in ("seconds", "delay_s", "cpu_s"):
            if values := pick(rounds, who, name):
                what = who if name == "seconds" else f"{who}: {name.rpartition('_')[0]}"
                lab.add(Figure(what=what, unit="s", values=values))
    # Ten times as large may cost ten times as much, with some room, and not a hundred times.
    largest = [(f"render, {_NODES[-1]} nodes", f"render, {_NODES[0]} nodes", "seconds", 1.5)]
    largest += [(f"node list, {_LISTS[-1]} nodes", f"node list, {_LISTS[-2]} nodes", "seconds", 30.0)]
    largest += [(f"sweep, {_POINTS[-1]} points", f"sweep, {_POINTS[-2]} points", "seconds", 15.0)]
    largest += [(f"logs -f, {_RANKS[-1]} ranks", f"logs -f, {_RANKS[-2]} ranks", "cpu_s", 15.0)]
    for more, less, name, most in largest:
        over, under = pick_both(rounds, more, less, name)
        if over:
            lab.add(make_ratio(f"{more} to {less.split(', ')[1]}", over, under, most=most, in_table=True))


def _render(lab: Lab, nodes: int) -> Values:
    words = make_ours("pytorch_spawn", "reduce.py:reduce_once", 8, lab.cluster.shared, f"nodes={nodes}").argv[3:]
    began = time.monotonic()
    lab.run(["python", "-m", "hpc_multinode", "render", *words], lab.cluster.shared)
    return {"seconds": time.monotonic() - began}


def _expand(count: int) -> Values:
    # Racks of a hundred, each in two ranges with a gap between them, and the rest as one.
    racks = ",".join(f"r{rack:03}n[001-049,051-101]" for rack in range(count // 100))
    times = []
    for _ in range(_EXPANSIONS):
        began = time.monotonic()
        names = expand_node_list(racks, variable="SLURM_JOB_NODELIST")
        times.append(time.monotonic() - began)
    if len(names) != count:
        raise BenchError(f"{len(names)} names for {count} nodes")
    # The least: in a millisecond what else the machine does may be most of it.
    return {"seconds": min(times)}


def _sweep(lab: Lab, count: int) -> Values:
    out = lab.make_folder("sweep")
    job = make_ours("pytorch_spawn", "reduce.py:reduce_once", 1, out, "resources.sbatch.hold=true")
    argv = (*job.argv[:3], "-m", f"env.POINT=range({count})", *job.argv[3:])
    lab.show_command("sweep", " ".join(argv))
    began = time.monotonic()
    try:
        lab.run(argv, out, timeout_s=_SWEEP_TIMEOUT_S)
        return {"seconds": time.monotonic() - began}
    finally:
        lab.cluster.run(["scancel", "--user=hpcuser"])
        lab.wait_until_idle()


def _follow(lab: Lab, ranks: int) -> Values:
    """Follow a run of so many ranks, without torch, and compare when each line was written and when it was shown."""
    out = lab.make_folder("logs")
    job = make_ours("script", "talk.py", ranks // NUM_NODES, out, "strategy.preload=[]")
    lab.launch("the run that logs -f shows", job, out)
    argv = ("python", "-m", "hpc_multinode", "logs", "-f", str(next(out.glob("runs/*"))))
    lab.show_command("logs -f", " ".join(argv))
    process = lab.cluster.popen(argv, cwd=out, env=lab.env(out))
    timer = threading.Timer(_LOGS_TIMEOUT_S, process.kill)
    timer.start()
    delays: list[float] = []
    before = _read_children_cpu()
    try:
        assert process.stdout is not None  # noqa: S101 - popen has piped it
        # Line by line, as they come.
        delays.extend(
            time.time() - float(found[1]) for line in process.stdout if (found := _LINE.search(line.rstrip()))
        )
    finally:
        timer.cancel()
        process.kill()
        process.communicate()
        used = _read_children_cpu() - before
        lab.wait_until_idle()
    if len(delays) < ranks:
        raise BenchError(f"{len(delays)} lines of {ranks} ranks were shown")
    return {"delay_s": max(delays), "cpu_s": used}


def _read_children_cpu() -> float:
    """Return the CPU seconds of all children that have ended: between two calls only the one that was started."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime
