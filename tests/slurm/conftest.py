"""The cluster that the tests of this folder run on, and the logs that a failed one shows.

``HPC_MULTINODE_TESTS_SLURM`` (22.05, 24.11) and ``HPC_MULTINODE_TESTS_TRACKER`` (auto, cgroup, linuxproc) choose it.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.slurm_cluster import ClusterError, ClusterSettings, SlurmCluster, SlurmVersion, Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_ROOT_PREFIX = "hpc-tests-"
_TAIL_LINES = 40
_JOB_LOGS = 4
_CALL_START = pytest.StashKey[float]()


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


def make_settings(name: str, **changes: object) -> ClusterSettings:
    """Return the settings of one of this run's clusters, below a root that says whose it is."""
    root = Path(tempfile.gettempdir()).resolve() / f"{_ROOT_PREFIX}{os.getpid()}-{name}"
    version = SlurmVersion(os.environ.get("HPC_MULTINODE_TESTS_SLURM", "22.05"))
    tracker = Tracker(os.environ.get("HPC_MULTINODE_TESTS_TRACKER", "auto"))
    values: dict[str, object] = {"root": root, "version": version, "tracker": tracker}
    return ClusterSettings(**(values | changes))  # type: ignore[arg-type]


def _run_cluster(settings: ClusterSettings) -> Iterator[SlurmCluster]:
    remove_stale_clusters()
    running = SlurmCluster(settings)
    try:
        running.up()
    except ClusterError as error:
        running.down() if os.geteuid() == 0 else None
        if os.environ.get("CI") == "true":
            pytest.fail(f"the Slurm cluster did not start: {error}", pytrace=False)
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
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
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
    tails = []
    for path in (*daemons, *recent[-_JOB_LOGS:]):
        lines = path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        tails.append((f"end of {path.relative_to(running.settings.root)}", "\n".join(lines)))
    return tails
