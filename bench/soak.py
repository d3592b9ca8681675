"""A run that is interrupted again and again at random moments, beside one that nobody interrupts.

Preemption, time limit, a lost node and ``scontrol requeue`` on the real cluster of the tests. The weights at the end
have to be the same to the bit, and no step that was saved may be done twice.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.figures import Figure
from tests.slurm_cluster import ClusterError, ClusterSettings, SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.lab import Lab

_EXAMPLE = Path(__file__).parents[1] / "examples/resumable.py"
# Steps that the run takes; with the pause an uninterrupted run lasts about a minute for each 200 of them.
_PAUSE_S = 0.3
_STEPS_PER_EPOCH = 28
KINDS = ("preemption", "time limit", "lost node", "requeue")


# For each round that the bench is asked for.
_INTERRUPTIONS = 4


def measure(lab: Lab) -> None:
    """Interrupt a run some times for each round, in an order that is the same each time."""
    with tempfile.TemporaryDirectory(prefix="hpc-soak-", ignore_cleanup_errors=True) as root:
        cluster = SlurmCluster(ClusterSettings(root=Path(root) / "cluster", nodes=3, with_dbd=False))
        cluster.up()
        try:
            seen = run(cluster, interruptions=_INTERRUPTIONS * lab.repeats, seed=0)
        except (TimeoutError, ClusterError):
            print(f"runs and logs of Slurm are kept in {_keep(cluster)}", file=sys.stderr)
            raise
        finally:
            cluster.down()
    lab.note(f"{seen['what']}: ended by {seen['ended by']}")
    for name, most, least in (
        ("attempts", None, None),
        ("same to the bit", None, 1.0),
        ("saved steps done twice", 0.0, None),
        ("steps lost", None, None),
    ):
        lab.add(Figure(what=name, unit="", values=(float(seen[name]),), most=most, least=least))


def _keep(cluster: SlurmCluster) -> Path:
    """Copy what tells why, since the cluster's folder goes with it."""
    kept = Path(tempfile.mkdtemp(prefix="hpc-soak-kept-"))
    shutil.copytree(cluster.shared / "runs", kept / "runs")
    shutil.copytree(cluster.settings.root / "log", kept / "log")
    return kept


def run(
    cluster: SlurmCluster,
    *,
    interruptions: int,
    seed: int,
    kinds: tuple[str, ...] = KINDS,
    epochs: int | None = None,
    pause_s: float = _PAUSE_S,
    within_s: float = 8.0,
) -> dict[str, Any]:
    """Interrupt a run, and return what became of it.

    Args:
        cluster: Three nodes; the run takes the first two.
        interruptions: How often.
        seed: Of the moments and their order.
        kinds: What may happen to it, of ``KINDS``.
        epochs: Length of the training; None chooses one that outlasts the interruptions.
        pause_s: Of each step, in seconds.
        within_s: How long after an attempt's first step it is interrupted at the latest, in seconds.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be guessed
    epochs = epochs or max(4, interruptions * 2)
    whole = _submit(cluster, "whole", epochs=epochs, pause_s=0.0, more=())
    cluster.wait_for_job(whole.job_id, "COMPLETED", timeout_s=300)
    # Told 20 to 50 s after its start, when a slow one too has done a step: Slurm looks every 30 s, and warns rather too
    # early than too late.
    limit = ("resources.time=2", "stop.warn_s=70", "stop.grace_s=30") if "time limit" in kinds else ()
    soaked = _submit(
        cluster, "soaked", epochs=epochs, pause_s=pause_s, more=("requeue.enabled=true", "requeue.max=1000", *limit)
    )
    rounds = -(-interruptions // len(kinds))
    done = [kind for _ in range(rounds) for kind in chance.sample(kinds, len(kinds))][:interruptions]
    for kind in done:
        _interrupt(cluster, soaked, kind, chance=chance, within_s=within_s)
    if limit:  # what is left has to be done without another limit
        cluster.scontrol("update", f"JobId={soaked.job_id}", "TimeLimit=60")
    _wait(lambda: soaked.report.get("state") == "COMPLETED", what="the end of the run", timeout_s=1200)
    ends = [one["ended_by"] for one in soaked.report["attempts"]]
    return {
        "what": f"{interruptions} interruptions, seed {seed}: "
        + ", ".join(f"{kind} {done.count(kind)}" for kind in kinds),
        "attempts": len(ends),
        "ended by": {end: ends.count(end) for end in dict.fromkeys(ends)},
        "same to the bit": soaked.end == whole.end,
        "saved steps done twice": soaked.count_redone(),
        "steps lost": soaked.count_lost(),
    }


class _Run:
    """A run that was submitted, as its folder shows it."""

    def __init__(self, folder: Path, job_id: str) -> None:
        self.folder, self.job_id = folder, job_id

    @property
    def report(self) -> dict[str, Any]:
        """Its report; empty while there is none."""
        try:
            report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        except FileNotFoundError:
            return {}
        return report

    @property
    def logs(self) -> list[str]:
        """What rank 0 has printed, by attempt."""
        files = sorted(self.folder.glob("attempt-*/rank0.log"), key=lambda path: int(path.parent.name[8:]))
        return [file.read_text() for file in files]

    @property
    def num_attempts(self) -> int:
        """Attempts whose rank 0 has begun."""
        return len(self.logs)

    @property
    def end(self) -> str:
        """The line with loss and weights."""
        return str(re.findall(r"^done: .*$", self.logs[-1], re.MULTILINE)[-1])

    def count_redone(self) -> int:
        """Return how many steps were done again after they had been saved."""
        saved, redone = 0, 0
        for log in self.logs:
            for word, number in re.findall(r"^(step|saved) (\d+)$", log, re.MULTILINE):
                redone += word == "step" and int(number) < saved
                saved = max(saved, int(number)) if word == "saved" else saved
        return redone

    def count_lost(self) -> int:
        """Return how many steps nobody has done."""
        done = {int(step) for log in self.logs for step in re.findall(r"^step (\d+)$", log, re.MULTILINE)}
        return max(done) + 1 - len(done)


def _submit(cluster: SlurmCluster, name: str, *, epochs: int, pause_s: float, more: tuple[str, ...]) -> _Run:
    here = ",".join(cluster.node_names[:2])
    words = [
        "strategy=pytorch_spawn", "nodes=2", f"work.target={_EXAMPLE}:run", f"work.kwargs.epochs={epochs}",
        f"work.kwargs.pause_s={pause_s}", f"name={name}", f"run_root={cluster.shared}/runs",
        f"resources.nodelist=[{here}]", "launch.heartbeat_timeout_s=5", *more,
    ]  # fmt: skip
    ended = cluster.run([sys.executable, "-m", "hpc_multinode", *words], cwd=cluster.shared, check=True)
    job_id = re.findall(r"^submitted: job (\d+)", ended.stdout, re.MULTILINE)[0]
    (folder,) = cluster.shared.glob(f"runs/{name}-*")
    return _Run(folder, job_id)


def _interrupt(cluster: SlurmCluster, run: _Run, kind: str, *, chance: random.Random, within_s: float) -> None:
    """Let something happen to the attempt that runs, and wait until the next one has begun."""
    _wait(lambda: run.num_attempts >= 1 and "step" in run.logs[-1], what="a step")
    before = run.num_attempts
    time.sleep(chance.uniform(0.0, within_s))
    if kind == "preemption":
        urgent = cluster.submit_urgent("sleep 1", "-N2", "-w", ",".join(cluster.node_names[:2]))
        cluster.wait_for_job(urgent, "COMPLETED", timeout_s=120)
    elif kind == "lost node":
        index = chance.randrange(2)
        restarts = cluster.job(run.job_id)["Restarts"]
        cluster.kill_node(index)
        try:
            _wait(lambda: _is_requeued(cluster, run, since=restarts), what="Slurm's requeue", timeout_s=180)
        finally:
            cluster.revive_node(index)
    elif kind == "requeue":
        with contextlib.suppress(ClusterError):  # it waits already: its limit was faster
            cluster.scontrol("requeue", run.job_id)
    _wait(
        lambda: run.num_attempts > before and "step" in run.logs[-1], what=f"a step after attempt {before} met {kind}"
    )


def _is_requeued(cluster: SlurmCluster, run: _Run, *, since: str) -> bool:
    job = cluster.job(run.job_id)
    # It may have been waiting already when the node went: its limit was faster.
    return job["Restarts"] != since or job["JobState"] == "PENDING"


def _wait(is_there: Callable[[], bool], *, what: str, timeout_s: float = 240.0) -> None:
    until = time.monotonic() + timeout_s
    while not is_there():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come in {timeout_s:.0f} s")
        time.sleep(0.2)
