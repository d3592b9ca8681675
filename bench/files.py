"""What a node reads while it starts: files opened, names looked up, bytes read. What a shared file system would feel.

Counted by strace(1) from the first process of the step to the first all-reduce, everything below the root folder but
the kernel's own file systems; pages that are mapped and not read are not seen. Counts do not depend on other people's
work on the machine, so one round is enough.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.contestants import NUM_NODES, Job, make_ours, make_srun, make_torchrun
from bench.figures import Figure, make_ratio
from bench.lab import BenchError, Values, pick, pick_both

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.lab import Lab

_WORKERS = 4
_OURS = "ours"
_CALLS = "open,openat,read,pread64,stat,lstat,newfstatat,statx,access,faccessat2,readlink,readlinkat,getdents64"
_TIMEOUT_S = 300.0
_UNITS = {"files opened": "files", "names looked up": "calls", "MB read": "MB"}
_KERNEL = ("/proc", "/sys", "/dev", "/run")
_OPENED = re.compile(r'^(?:open|openat)\(.*?"([^"]*)".*\) = \d+')
_READ = re.compile(r"^(?:read|pread64)\(\d+<(/[^>]*)>.*\) = (\d+)")
_LOOKED_UP = re.compile(
    r'^(?:open|openat|stat|lstat|newfstatat|statx|access|faccessat2|readlink|readlinkat)\(.*?"(/[^"]*)"'
)
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>")


@dataclass(slots=True)
class Counts:
    """What a trace says."""

    opened: int = 0
    looked_up: int = 0
    bytes_read: int = 0
    _unfinished: dict[str, str] = field(default_factory=dict)

    def add(self, lines: Iterable[str]) -> None:
        """Count the lines of one file of ``strace -f -y``."""
        for line in lines:
            pid, _, call = line.strip().partition(" ")
            call = call.strip()
            if call.endswith("<unfinished ...>"):
                self._unfinished[pid] = call.removesuffix("<unfinished ...>")
                continue
            if resumed := _RESUMED.match(call):
                call = self._unfinished.pop(pid, "") + call[resumed.end() :]
            self._count(call)

    def _count(self, call: str) -> None:
        if (found := _READ.match(call)) is not None and not found[1].startswith(_KERNEL):
            self.bytes_read += int(found[2])
        if (found := _LOOKED_UP.match(call)) is not None and not found[1].startswith(_KERNEL):
            self.looked_up += 1
            self.opened += _OPENED.match(call) is not None


def measure(lab: Lab) -> None:
    """Count for ours, torchrun and srun."""
    if shutil.which("strace") is None:
        raise BenchError("strace is not installed")
    lab.repeats = 1
    contestants: dict[str, Callable[[], Values]] = {
        _OURS: lambda: _trace(lab, _OURS, _make_ours),
        "torchrun": lambda: _trace(lab, "torchrun", lambda out, wrapper: make_torchrun(
            "reduce.py", _WORKERS, out, wrapper=f"{wrapper} ")),
        "srun": lambda: _trace(lab, "srun", lambda out, wrapper: make_srun(
            "reduce.py", _WORKERS, out, wrapper=f"{wrapper} ")),
    }  # fmt: skip
    rounds = lab.run_rounds(contestants)
    for name, unit in _UNITS.items():
        for who in contestants:
            if values := pick(rounds, who, name):
                lab.add(Figure(what=f"{who}, {NUM_NODES} x {_WORKERS}: {name} a node", unit=unit, values=values))
        for rival in ("torchrun", "srun"):
            theirs, own = pick_both(rounds, rival, _OURS, name)
            if own:
                lab.add(
                    make_ratio(
                        f"{rival} to ours, {name} a node", theirs, own, least=1.0, in_table=name != "names looked up"
                    )
                )


def _make_ours(out: Path, wrapper: Path) -> Job:
    return make_ours("pytorch_spawn", "reduce.py:reduce_once", _WORKERS, out, f"cluster.python={wrapper} python")


def _trace(lab: Lab, who: str, make: Callable[[Path, Path], Job]) -> Values:
    out = lab.make_folder("files")
    wrapper = out / "traced"
    wrapper.write_text(
        f'#!/bin/bash\nexec strace -f -y -qq --seccomp-bpf -o "{out}/trace.$SLURM_PROCID" -e trace={_CALLS} "$@"\n'
    )
    wrapper.chmod(0o755)
    job = make(out, wrapper)
    lab.show_command(f"{who}'s wrapper", wrapper.read_text())
    lab.launch(who, job, out)
    lab.collect(out, world=NUM_NODES * _WORKERS, timeout_s=_TIMEOUT_S)
    counts = Counts()
    for trace in out.glob("trace.*"):
        with trace.open(errors="replace") as lines:
            counts.add(lines)
    if not counts.opened:
        raise BenchError(f"strace saw nothing: {[path.name for path in out.iterdir()]}")
    return {
        "files opened": counts.opened / NUM_NODES,
        "names looked up": counts.looked_up / NUM_NODES,
        "MB read": counts.bytes_read / NUM_NODES / 2**20,
    }
