"""Where the figures are taken: the real cluster of the tests, and rounds in which all contestants take their turn."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.results import PartResult
from tests.slurm_cluster import ClusterError, ClusterSettings, SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.contestants import Job
    from bench.figures import Figure

PROJECT = Path(__file__).resolve().parents[1]
WORKS = Path(__file__).with_name("works")
POLL_S = 0.02
# A contestant that has failed so often is asked no more.
_MAX_FAILURES = 2
_END_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 3.0
_ROOT_PREFIX = "hpc-bench-"

Values = dict[str, float]


class BenchError(Exception):
    """A contestant did not do what was to be measured; the text says what it did."""


# What a contestant may do to the bench; the others go on.
FAILURES = (BenchError, ClusterError, OSError, subprocess.SubprocessError, ValueError, KeyError)


@dataclass(slots=True, kw_only=True)
class Lab:
    """The place and the record of one part.

    Attributes:
        repeats: Rounds.
        result: What has been found so far.
    """

    repeats: int
    result: PartResult = field(default_factory=PartResult)
    _cluster: SlurmCluster | None = None

    @property
    def cluster(self) -> SlurmCluster:
        """The cluster, started at the first use: 2 nodes that claim CPUs and memory enough for all of a round."""
        if self._cluster is None:
            remove_stale_clusters()
            root = Path(tempfile.gettempdir()).resolve() / f"{_ROOT_PREFIX}{os.getpid()}"
            settings = ClusterSettings(
                root=root, nodes=2, gpus=0, cpus=600, mem_mb=4_000_000, extra_conf=("DefMemPerCPU=6000",)
            )
            self._cluster = SlurmCluster(settings)
            self._cluster.up()
        return self._cluster

    def close(self) -> None:
        """Take the cluster down."""
        if self._cluster is not None:
            self._cluster.down()
            self._cluster = None

    def make_folder(self, name: str) -> Path:
        """Make a fresh folder of the cluster's user that all nodes share."""
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.cluster.shared))
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        """Make a file or folder the cluster's user's."""
        uid = self.cluster.settings.uid
        os.chown(path, uid, uid)

    def env(self, out: Path) -> dict[str, str]:
        """Return what every contestant finds in its environment on top of a fresh login's."""
        return {"BENCH_OUT": str(out), "PYTHONPATH": str(PROJECT)}

    def run(self, argv: Sequence[str | Path], out: Path, *, timeout_s: float = 120.0) -> str:
        """Run a command on the login side and return what it printed.

        Raises:
            BenchError: It failed.
        """
        done = self.cluster.run(argv, cwd=out, env=self.env(out), timeout_s=timeout_s)
        if done.returncode:
            raise BenchError(f"exit code {done.returncode} of {' '.join(map(str, argv))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def wait_for(self, what: str, is_there: Callable[[], bool], *, timeout_s: float, out: Path) -> None:
        """Wait until something is there.

        Raises:
            BenchError: It does not come; its text ends with what jobs wrote into the folder.
        """
        until = time.monotonic() + timeout_s
        while not is_there():
            if time.monotonic() > until:
                raise BenchError(f"no {what} after {timeout_s:.0f} s\n{read_output(out)}")
            time.sleep(POLL_S)

    def launch(self, who: str, job: Job, out: Path) -> None:
        """Hand in a contestant's job and print its command, once.

        Raises:
            BenchError: It is refused.
        """
        self.show_command(who, job.render())
        if job.script is not None:
            (out / "job.sh").write_text(job.script)
        self.run(job.argv, out)

    def collect(self, out: Path, *, world: int, timeout_s: float) -> list[dict[str, Any]]:
        """Wait for the words of all ranks, then for the end of all jobs, and return the words.

        Raises:
            BenchError: Some rank does not speak.
        """
        try:
            self.wait_for_ranks(out, world=world, timeout_s=timeout_s)
        finally:
            self.wait_until_idle()
        return [json.loads(path.read_text()) for path in sorted(out.glob("rank-*.json"))]

    def wait_for_ranks(self, out: Path, *, world: int, timeout_s: float) -> None:
        """Wait until all ranks have spoken.

        Raises:
            BenchError: Some rank does not.
        """
        until, look_at = time.monotonic() + timeout_s, time.monotonic() + _LOOK_EVERY_S
        while True:
            # Asked before the files: a rank that speaks last speaks before its job is gone.
            is_late = time.monotonic() > until
            is_over = is_late
            if time.monotonic() > look_at:
                is_over, look_at = is_late or not self.find_jobs(), time.monotonic() + _LOOK_EVERY_S
            told = len(list(out.glob("rank-*.json")))
            if told == world:
                return
            if is_over:
                why = f"after {timeout_s:.0f} s" if is_late else "and no job is left"
                raise BenchError(f"{told} of {world} ranks have spoken {why}\n{read_output(out)}")
            time.sleep(POLL_S)

    def find_jobs(self) -> list[str]:
        """Return the jobs that wait or run."""
        return self.cluster.run(["squeue", "--noheader", "--format=%i"], check=True).stdout.split()

    def wait_until_idle(self) -> None:
        """Wait until no job is left, and end those that stay."""
        until = time.monotonic() + _END_TIMEOUT_S
        while self.find_jobs():
            if time.monotonic() > until:
                self.cluster.run(["scancel", "--user=hpcuser"])
                self.cluster.run(["scancel", "--signal=KILL", "--user=hpcuser"])
                until = time.monotonic() + _END_TIMEOUT_S
            time.sleep(0.2)

    def add(self, *figures: Figure) -> None:
        """Add figures to the record."""
        self.result.figures += figures

    def note(self, text: str) -> None:
        """Add what was seen and is no number."""
        if text not in self.result.notes:
            self.result.notes.append(text)

    def show_command(self, who: str, text: str) -> None:
        """Print and keep a contestant's command, once."""
        if who not in self.result.commands:
            self.result.commands[who] = text
            print(f"  $ {who}:\n" + "\n".join(f"      {line}" for line in text.splitlines()), flush=True)

    def fail(self, who: str, error: Exception) -> None:
        """Print and keep why something could not be measured."""
        text = f"{who}: {type(error).__name__}: {error}"
        self.result.failures.append(text)
        print(f"  FAILED {text}", flush=True)

    def run_rounds(self, contestants: Mapping[str, Callable[[], Values]]) -> list[dict[str, Values]]:
        """Let all contestants take their turn, as many rounds as there are to be.

        Returns:
            For each round, what each contestant that did not fail in it has measured.
        """
        failed = dict.fromkeys(contestants, 0)
        rounds: list[dict[str, Values]] = []
        for number in range(self.repeats):
            measured: dict[str, Values] = {}
            # Each round begins with another one, so that nobody always comes after the same neighbour.
            first = number * len(contestants) // self.repeats
            for who, measure in [*contestants.items()][first:] + [*contestants.items()][:first]:
                if failed[who] >= _MAX_FAILURES:
                    continue
                try:
                    measured[who] = measure()
                except FAILURES as error:
                    failed[who] += 1
                    self.fail(f"{who}, round {number + 1}", error)
            rounds.append(measured)
        return rounds


def remove_stale_clusters() -> None:
    """Take down the clusters of benches that were killed: their roots name a process that is gone."""
    for root in Path(tempfile.gettempdir()).resolve().glob(f"{_ROOT_PREFIX}*"):
        owner = root.name.removeprefix(_ROOT_PREFIX)
        if owner.isdigit() and not Path("/proc", owner).exists():
            SlurmCluster(ClusterSettings(root=root)).down()


def read_output(out: Path) -> str:
    """Return the ends of what jobs have written below a folder."""
    logs = [path for path in sorted(out.rglob("*")) if path.suffix in {".out", ".err", ".log"} and path.is_file()]
    return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-800:]}" for path in logs[:8])


def pick(rounds: Sequence[Mapping[str, Values]], who: str, name: str) -> tuple[float, ...]:
    """Return one value of a contestant by round, without the rounds in which it failed."""
    return tuple(measured[who][name] for measured in rounds if who in measured and name in measured[who])


def pick_both(
    rounds: Sequence[Mapping[str, Values]], one: str, other: str, name: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return one value of two contestants, of the rounds in which both were there."""
    both = [measured for measured in rounds if one in measured and other in measured]
    return pick(both, one, name), pick(both, other, name)
