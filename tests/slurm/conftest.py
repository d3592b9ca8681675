"""The cluster that the tests of this folder run on, the launcher on it, and the logs that a failed test shows.

``HPC_MULTINODE_TESTS_SLURM`` (22.05, 24.11) and ``HPC_MULTINODE_TESTS_TRACKER`` (auto, cgroup, linuxproc) choose it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import PLAIN_CONFIG, WORKS, Ended, wait_until
from tests.slurm_cluster import ClusterError, ClusterSettings, SlurmCluster, SlurmVersion, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

_ROOT_PREFIX = "hpc-tests-"
_TAIL_LINES = 40
_JOB_LOGS = 4
_CALL_START = pytest.StashKey[float]()
_END_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")

# Works and a script that tell where they are, and train where that can be. The login side never imports them.
_WORK = f"""
import json
import os
import socket
import sys
import time

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


def tell(**more):
    place = {{name: os.environ[name] for name in NAMES}}
    place["host"] = socket.gethostname()
    place["devices"] = os.environ.get("CUDA_VISIBLE_DEVICES")
    place["main_ip"] = socket.gethostbyname(os.environ["MASTER_ADDR"])
    print(json.dumps({{**place, **more}}))


def training():
    sys.path.insert(0, {str(WORKS)!r})
    import training

    return training


def tell_place():
    tell()


def plain(main_address, main_port, context):
    tell(main_address=main_address, main_port=main_port, devices_of_context=context.devices)


def base(main_address, main_port, node_rank, num_nodes):
    import torch.distributed as dist

    tell()
    dist.init_process_group(
        "gloo", init_method=f"tcp://{{main_address}}:{{main_port}}", rank=node_rank, world_size=num_nodes
    )
    training().ddp(num_nodes, node_rank)
    dist.destroy_process_group()


def pytorch_spawn(world_size, global_rank):
    tell()
    training().ddp(world_size, global_rank)


def lite():
    tell()
    training().fabric()


def lightning(run_dir):
    tell()
    training().trainer(run_dir)


def list_tmp(run_id, global_rank):
    open(f"/tmp/{{run_id}}-{{global_rank}}", "w").close()
    time.sleep(0.5)
    print(json.dumps({{"own": [name for name in os.listdir("/tmp") if name.startswith(run_id)]}}))


def script():
    import torch.distributed as dist

    tell()
    dist.init_process_group("gloo")
    training().ddp(dist.get_world_size(), dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    script()
"""


@pytest.fixture(scope="session")
def cluster() -> Iterator[SlurmCluster]:
    """Start the suite's cluster once: 3 nodes with 2 GPUs."""
    yield from _run_cluster(make_settings("main"))


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., SlurmCluster]]:
    """Return a function that prepares, but does not start, a small cluster of the test's own."""
    made: list[SlurmCluster] = []

    def _make(**changes: object) -> SlurmCluster:
        small = {"nodes": 1, "with_dbd": False} | changes
        made.append(SlurmCluster(make_settings(f"own{len(made)}", **small)))
        return made[-1]

    yield _make
    for own in made:
        own.down()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedOnSlurm(Ended):
    """A launcher that has ended on the cluster's login side or in a step, and how long it took in seconds."""

    seconds: float

    @property
    def job_id(self) -> str:
        """The job that was submitted."""
        found = re.search(r"^submitted: job (\d+)$", self.out, re.MULTILINE)
        assert found is not None, self.out + self.err
        return found[1]

    def logged(self) -> dict[int, dict[str, Any]]:
        """What each rank has written as JSON into its log, all lines together."""
        told: dict[int, dict[str, Any]] = {}
        for log in sorted((self.run_dir / "attempt-0").glob("rank*.log")):
            lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
            told[int(log.stem[4:])] = {key: value for line in lines for key, value in json.loads(line).items()}
        return told

    def read_logs(self) -> str:
        """Ends of all logs of the run, and its report, for the text of a failed assertion."""
        files = [path for path in sorted(self.run_dir.rglob("*")) if path.suffix in {".log", ".out", ".err", ".txt"}]
        return "\n".join(f"== {path.relative_to(self.run_dir)}\n{_read_tail(path)}" for path in files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A launcher that runs: its process on this machine, its folder, and when it began."""

    process: subprocess.Popen[str]
    cwd: Path
    began: float

    def count_logs_with(self, text: str) -> int:
        """Count the ranks whose log has a text by now."""
        logs = self.cwd.glob("runs/*/attempt-0/rank*.log")
        return sum(text in log.read_text(errors="replace") for log in logs)


@dataclass(slots=True)
class OnSlurm:
    """Starts ``python -m hpc_multinode`` as the cluster's user, each time in a fresh folder that all hosts share."""

    cluster: SlurmCluster
    folders: Iterator[int] = field(default_factory=itertools.count)
    started: list[Started] = field(default_factory=list)

    def make_folder(self) -> Path:
        """Make a folder of the cluster's user whose name is hard on shell scripts."""
        path = Path(
            tempfile.mkdtemp(prefix=f"""it's $run "=0" (a|b&ü) {next(self.folders)} """, dir=self.cluster.shared)
        )
        self.write(path, "on_nodes.py", _WORK)
        os.chown(path, self.cluster.settings.uid, self.cluster.settings.uid)
        return path

    def write(self, folder: Path, name: str, text: str, *, mode: int = 0o644) -> Path:
        """Write a file of the cluster's user."""
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def start(
        self, *words: str, before: Sequence[str] = (), cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Started:
        """Start the launcher, behind words such as those of srun, and leave it running."""
        folder = cwd or self.make_folder()
        process = self.cluster.popen([*before, *self.launcher, *words], cwd=folder, env=env)
        self.started.append(Started(process=process, cwd=folder, began=time.monotonic()))
        return self.started[-1]

    def finish(self, started: Started, *, timeout_s: float = 120) -> EndedOnSlurm:
        """Wait for a launcher that was started."""
        try:
            out, err = started.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(started.process.pid, signal.SIGKILL)
            out, err = started.process.communicate()
            pytest.fail(f"not over within {timeout_s} s; it said:\n{out}{err}")
        seconds = time.monotonic() - started.began
        runs = sorted(path for path in (started.cwd / "runs").glob("*") if path.is_dir())
        return EndedOnSlurm(
            code=started.process.returncode, out=out, err=err, cwd=started.cwd, run_dirs=runs, seconds=seconds
        )

    def run(
        self,
        *words: str,
        before: Sequence[str] = (),
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> EndedOnSlurm:
        """Run the launcher to its end."""
        return self.finish(self.start(*words, before=before, cwd=cwd, env=env), timeout_s=timeout_s)

    def run_batch(self, text: str, *options: str, cwd: Path | None = None) -> EndedOnSlurm:
        """Run a batch script, in which ``launch`` is the launcher, to the end of its job.

        Args:
            text: Shell text; its last exit code is the job's.
            options: Options for sbatch.
            cwd: Where it runs; a fresh folder if None.
        """
        folder, began = cwd or self.make_folder(), time.monotonic()
        head = '#!/bin/bash\nlaunch() { python -m hpc_multinode "$@"; }\n'
        options = ("--output=job.out", "--error=job.err", "--parsable", *options)
        done = self.cluster.run(["sbatch", *options], cwd=folder, text_in=f"{head}{text}\n", check=True)
        job = self.wait_for_end(done.stdout.strip())
        out, err = (path.read_text() if path.exists() else "" for path in (folder / "job.out", folder / "job.err"))
        runs = sorted(path for path in (folder / "runs").glob("*") if path.is_dir())
        code = int(job["ExitCode"].partition(":")[0])
        return EndedOnSlurm(code=code, out=out, err=err, cwd=folder, run_dirs=runs, seconds=time.monotonic() - began)

    def submit_all(self, jobs: Mapping[Any, Sequence[str]]) -> dict[Any, EndedOnSlurm]:
        """Submit jobs side by side and wait until all are over."""
        started = {key: self.start(*words) for key, words in jobs.items()}
        ended = {key: self.finish(one) for key, one in started.items()}
        for key, one in ended.items():
            assert one.code == 0, f"{key}: {one.out}{one.err}"
            self.wait_for_end(one.job_id)
        return ended

    def wait_for_end(self, job_id: str) -> dict[str, str]:
        """Wait until a job is over and return what Slurm says of it."""
        return self.cluster.wait_for_job(job_id, *_END_STATES, timeout_s=300)

    def wait_for_text(self, started: Started, text: str, *, ranks: int) -> None:
        """Wait until a text is in the logs of so many ranks."""
        wait_until(lambda: started.count_logs_with(text) >= ranks, what=f"{text!r} in {ranks} logs")

    def wait_until_told(self, path: Path) -> None:
        """Wait until a file has a whole line."""
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"), what=f"a line in {path.name}")

    @property
    def launcher(self) -> list[str]:
        """The launcher's command."""
        return ["python", "-m", "hpc_multinode"]

    def plain(self, work: str, *words: str) -> list[str]:
        """Return the words for a work without torch: one of ``tests/local/works``, or one of ``on_nodes.py``."""
        target = f"{WORKS}/{work}" if ".py" in work else f"on_nodes.py:{work}"
        return [f"--config-dir={PLAIN_CONFIG}", "strategy=plain", f"work.target={target}", *words]

    def close(self) -> None:
        """Kill what a failed test left running, and its jobs."""
        for one in self.started:
            if one.process.poll() is None:
                os.killpg(one.process.pid, signal.SIGKILL)
                one.process.communicate()
        self.cluster.run(["scancel", "-u", "hpcuser"])


@pytest.fixture(scope="module")
def on_slurm(cluster: SlurmCluster) -> Iterator[OnSlurm]:
    """Give the launcher on the suite's cluster."""
    given = OnSlurm(cluster)
    yield given
    given.close()


def make_settings(name: str, **changes: object) -> ClusterSettings:
    """Return the settings of one of this run's clusters, below a root that says whose it is."""
    root = Path(tempfile.gettempdir()).resolve() / f"{_ROOT_PREFIX}{os.getpid()}-{name}"
    version = SlurmVersion(os.environ.get("HPC_MULTINODE_TESTS_SLURM", "22.05"))
    tracker = Tracker(os.environ.get("HPC_MULTINODE_TESTS_TRACKER", "auto"))
    values: dict[str, object] = {"root": root, "version": version, "tracker": tracker}
    return ClusterSettings(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def watched_memory(cluster: SlurmCluster) -> None:
    """Ask for a cluster on which Slurm limits the memory; with linuxproc it does not, and there is nothing to see."""
    if cluster.tracker is Tracker.LINUXPROC:
        pytest.skip("without cgroups nobody watches the memory")


def _run_cluster(settings: ClusterSettings) -> Iterator[SlurmCluster]:
    remove_stale_clusters()
    running = SlurmCluster(settings)
    try:
        running.up()
    except ClusterError as error:
        running.down() if os.geteuid() == 0 else None
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Slurm cluster did not start: {error}", pytrace=False)
        # On a person's own machine, without root or Debian, the rest of the suite is still worth running.
        pytest.skip(f"no Slurm cluster: {error}")
    try:
        yield running
    finally:
        running.down()


def remove_stale_clusters() -> None:
    """Take down the clusters of test runs that were killed: their roots name a process that is gone."""
    for root in Path(tempfile.gettempdir()).resolve().glob(f"{_ROOT_PREFIX}*-*"):
        owner = root.name.removeprefix(_ROOT_PREFIX).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            SlurmCluster(ClusterSettings(root=root)).down()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add logs to a failure, and turn a skipped test into a failure where the suite has to be complete."""
    report = yield
    item.stash.setdefault(_CALL_START, time.time())
    # A suite that passes because it did not run says nothing.
    if report.skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {report.longrepr}"
    if report.failed and call.when != "teardown":
        fixtures: dict[str, object] = getattr(item, "funcargs", {})
        for value in fixtures.values():
            if isinstance(value, SlurmCluster):
                report.sections += _read_log_tails(value, since=item.stash[_CALL_START])
    return report


def _read_log_tails(running: SlurmCluster, *, since: float) -> list[tuple[str, str]]:
    """Return title and text of the ends of the daemons' logs and of the job logs written during this test."""
    daemons = sorted(running.logs.glob("slurm*.log"))
    written = [path for pattern in ("*.out", "*.err", "*.log") for path in running.shared.rglob(pattern)]
    recent = sorted((path for path in written if path.stat().st_mtime >= since), key=lambda path: path.stat().st_mtime)
    paths = (*daemons, *recent[-_JOB_LOGS:])
    return [(f"end of {path.relative_to(running.settings.root)}", _read_tail(path)) for path in paths]


def _read_tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
