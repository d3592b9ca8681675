"""From a worker's death to the end of the job: how long, how many lines, and whether they name the right worker.

One rank of two nodes raises. The other ranks communicate (they lose their peer at once), sleep (work that is left, with
no word to each other), or hang (they ignore SIGTERM). All contestants are started first; then all die at one word, so
that none waits for another's start. The end is the last line of the batch script.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from bench.contestants import NUM_NODES, make_ours, make_srun, make_torchrun
from bench.figures import Figure, make_ratio
from bench.lab import FAILURES, Values, pick, pick_both

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.contestants import Job
    from bench.lab import Lab

_Seen = TypeVar("_Seen")

WHATS = ("communicate", "sleep", "hang")
OURS = "ours"
WHOS = (OURS, "torchrun", "srun")
WORKERS, DYING = 2, 3
_START_TIMEOUT_S, _END_TIMEOUT_S = 180.0, 150.0
# A stop takes about a second, and a hang is killed after stop.kill_s.
_MOST_S = {"communicate": 2.0, "sleep": 2.0, "hang": 7.0}
_MOST_LINES = 20.0
_RANK_OF_TORCHRUN = re.compile(r"Root Cause \(first observed failure\):\n\[0\]:\n(?:.*\n){2}\s*rank\s*: (\d+)")
_TASKS_OF_SRUN = re.compile(r"tasks? ([\d,-]+): Exited")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A job whose workers wait for the word once they are ready."""

    who: str
    what: str
    out: Path


def _make(who: str, what: str, out: Path) -> Job:
    words = f"die.py {what} {DYING}"
    if who == "torchrun":
        return make_torchrun(words, WORKERS, out)
    if who == "srun":
        return make_srun(words, WORKERS, out)
    return make_ours("script", "die.py", WORKERS, out, "--", what, str(DYING))


def measure(lab: Lab) -> None:
    """Measure all contestants in all three situations."""
    rounds = [_run_round(lab, f"round {number + 1}") for number in range(lab.repeats)]
    for what in WHATS:
        for who in WHOS:
            _add(lab, rounds, who, what)
        for rival in WHOS[1:]:
            theirs, own = pick_both(rounds, f"{rival}, {what}", f"{OURS}, {what}", "seconds")
            if own:
                lab.add(make_ratio(f"{rival} to ours, ranks that {what}, seconds", theirs, own, in_table=True))


def _add(lab: Lab, rounds: list[dict[str, Values]], who: str, what: str) -> None:
    is_ours = who == OURS
    seconds = pick(rounds, f"{who}, {what}", "seconds")
    if not seconds:
        return
    lines, right = (pick(rounds, f"{who}, {what}", name) for name in ("lines", "right"))
    name = f"{who}, ranks that {what}"
    is_first = what == WHATS[0]
    most_s, most_lines, least_right = (_MOST_S[what], _MOST_LINES, 1.0) if is_ours else (None, None, None)
    lab.add(
        Figure(what=f"{name}: death to end", unit="s", values=seconds, most=most_s, in_table=is_ours),
        Figure(what=f"{name}: output", unit="lines", values=lines, most=most_lines, in_table=is_first),
        Figure(what=f"{name}: root cause right", unit="of 1", values=right, least=least_right, in_table=is_first),
    )


def _run_round(lab: Lab, title: str) -> dict[str, Values]:
    """Start all, let those that communicate die, then the others, and return what was seen of each."""
    top = lab.make_folder("stop")
    started = [
        _attempt(lab, f"{who}, {what}, {title}", partial(_start, lab, top, who, what)) for what in WHATS for who in WHOS
    ]
    ready = [
        job
        for job in started
        if job is not None and _attempt(lab, f"{job.who}, {job.what}, {title}", partial(_wait_until_ready, lab, job))
    ]
    measured: dict[str, Values] = {}
    for group in (("communicate",), ("sleep", "hang")):
        for what in group:
            (top / f"go-{what}").touch()
        for job in ready:
            if job.what in group:
                values = _attempt(lab, f"{job.who}, {job.what}, {title}", partial(_see_end, lab, job))
                if values is not None:
                    measured[f"{job.who}, {job.what}"] = values
    lab.wait_until_idle()
    return measured


def _attempt(lab: Lab, who: str, act: Callable[[], _Seen]) -> _Seen | None:
    try:
        return act()
    except FAILURES as error:
        lab.fail(who, error)
        return None


def _start(lab: Lab, top: Path, who: str, what: str) -> _Started:
    out = top / f"{who}-{what}"
    out.mkdir()
    lab.give(out)
    job = _make(who, what, out)
    lab.launch(who, job, out)
    return _Started(who=who, what=what, out=out)


def _wait_until_ready(lab: Lab, job: _Started) -> bool:
    lab.wait_for_ranks(job.out, world=NUM_NODES * WORKERS, timeout_s=_START_TIMEOUT_S)
    return True


def _see_end(lab: Lab, job: _Started) -> Values:
    over = job.out / "over"
    lab.wait_for("end", lambda: over.exists() and bool(over.read_text()), timeout_s=_END_TIMEOUT_S, out=job.out)
    seconds = float(over.read_text()) - float((job.out / "died").read_text())
    files = [job.out / "job.out"] if job.who != OURS else sorted(job.out.glob("runs/*/submitit/*.out"))
    output = "".join(path.read_text(errors="replace") for path in files)
    named = find_named(job.who, output, job.out)
    names = ", ".join(map(str, named)) or "none"
    has_text = "has" if "the data of this rank is bad" in output else "lacks"
    lab.note(
        f"{job.who}, ranks that {job.what}: names rank {names}, {DYING} is right; output {has_text} the error's text"
    )
    return {"seconds": seconds, "lines": float(len(output.splitlines())), "right": float(named == [DYING])}


def find_named(who: str, output: str, out: Path) -> list[int]:
    """Return the ranks that a contestant names as the cause, each once, in order.

    Args:
        who: The contestant.
        output: All that it printed.
        out: The job's folder.
    """
    if who == OURS:
        report = json.loads(next(out.glob("runs/*/report.json")).read_text())
        return [report["root_cause"]["global_rank"]]
    if who == "torchrun":
        return list(dict.fromkeys(int(rank) for rank in _RANK_OF_TORCHRUN.findall(output)))
    # srun writes tasks of one node that end alike as one list, such as 0-1,3.
    ranges = [part.partition("-") for tasks in _TASKS_OF_SRUN.findall(output) for part in tasks.split(",")]
    ranks = [rank for first, _, last in ranges for rank in range(int(first), int(last or first) + 1)]
    return list(dict.fromkeys(ranks))
