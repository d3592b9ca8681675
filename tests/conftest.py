"""Fixtures of all tests: the launcher as people start it, in a folder and an environment of the test's own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TESTS = Path(__file__).parent
WORKS = TESTS / "local" / "works"
EXAMPLES = TESTS.parent / "examples"
PLAIN_CONFIG = TESTS / "data" / "config"
PROGRAMS = TESTS / "data" / "programs"


# In the background of a script SIGINT is ignored, and would be by all launchers that a suite there starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What takes nodes away, preempts and waits for time limits has a cluster of its own: it waits more than it computes.
_INTERRUPTING = ("test_cluster", "test_coordinator", "test_life", "test_resubmission", "test_soak", "test_stop")


class _ByCluster(LoadScopeScheduling):
    """Keeps what shares fixtures in one process: a module, and all that runs on one cluster."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test; the method that xdist's documentation names for that."""
        module = nodeid.partition("::")[0]
        if not module.startswith("tests/slurm/"):
            return module
        return "interrupted cluster" if Path(module).stem in _INTERRUPTING else "cluster"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what takes longest, the clusters."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/slurm/"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByCluster:
    """Share the tests out between processes, in their order: xdist would begin with whatever has the most tests."""
    config.option.loadscopereorder = False
    return _ByCluster(config, log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A launcher that has ended: what it printed, its exit code, and the run folder if there is one."""

    code: int
    out: str
    err: str
    cwd: Path
    run_dirs: list[Path]

    @property
    def run_dir(self) -> Path:
        """The only run folder."""
        (run_dir,) = self.run_dirs
        return run_dir

    @property
    def report(self) -> dict[str, Any]:
        """The only run's report."""
        loaded: dict[str, Any] = json.loads((self.run_dir / "report.json").read_text())
        return loaded

    def lines(self, rank: int) -> list[str]:
        """The lines that one rank printed, as the terminal showed them, also those that it shared with others."""
        return [text for ranks, text in self._told() if rank in ranks]

    def ranks(self) -> dict[int, Any]:
        """What each rank printed as JSON on a line of its own."""
        return {rank: json.loads(text) for ranks, text in self._told() if text[:1] == "{" for rank in ranks}

    def _told(self) -> list[tuple[set[int], str]]:
        """Return each line of workers with the ranks before it, such as ``[0,2-3]``."""
        found = re.findall(r"^\[([\d,-]+)\] (.*)$", self.out, re.MULTILINE)
        return [(expand_ranks(ranks), text) for ranks, text in found]


def expand_ranks(text: str) -> set[int]:
    """Return the ranks of ``0,2-3``."""
    ends = [part.split("-") for part in text.split(",")]
    return {rank for end in ends for rank in range(int(end[0]), int(end[-1]) + 1)}


@dataclass(slots=True)
class Launcher:
    """Starts ``python -m hpc_multinode`` in one folder."""

    cwd: Path
    env: dict[str, str]
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *words: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start the launcher and leave it running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "hpc_multinode", *words],
            cwd=self.cwd,
            env={**self.env, **(env or {})},
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self._started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], *, stdin: str | None = None, timeout_s: float = 90) -> Ended:
        """Wait for a launcher that was started."""
        out, err = process.communicate(stdin, timeout=timeout_s)
        runs = sorted(path for path in (self.cwd / "runs").glob("*") if path.is_dir())
        return Ended(code=process.returncode, out=out, err=err, cwd=self.cwd, run_dirs=runs)

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Ended:
        """Run the launcher to its end."""
        return self.finish(self.start(*words, env=env))

    def local(self, *words: str, env: Mapping[str, str] | None = None) -> Ended:
        """Run on this machine."""
        return self.run("cluster=local", *words, env=env)

    def plain(
        self, work: str, *words: str, nodes: int = 2, workers: int = 2, env: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a work of ``tests/local/works`` on this machine, without torch."""
        return self.run(*self.plain_words(work, *words, nodes=nodes, workers=workers), env=env)

    def plain_words(self, work: str, *words: str, nodes: int = 2, workers: int = 2) -> list[str]:
        """Return the words of ``plain``."""
        target = f"work.target={WORKS}/{work}"
        sizes = [f"nodes={nodes}", f"resources.workers_per_node={workers}"]
        return ["cluster=local", f"--config-dir={PLAIN_CONFIG}", "strategy=plain", target, *sizes, *words]

    def close(self) -> None:
        """Kill what a failed test left running."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests' runs out of the registry of whoever runs them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    """Give the launcher, in an empty folder whose name is hard on shell scripts."""
    cwd = tmp_path / 'it\'s "a" $HOME (x) ü'
    cwd.mkdir()
    foreign = ("HPC_MULTINODE_", "SLURM_", "PYTHONUNBUFFERED", "CUDA_VISIBLE_DEVICES")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    given = Launcher(cwd=cwd, env={**env, "XDG_CONFIG_HOME": str(tmp_path / "no-config")})
    yield given
    given.close()


def wait_until(
    is_true: Callable[[], object], *, what: str, timeout_s: float = 60, show: Callable[[], str] = str
) -> None:
    """Poll until something holds; where it does not, fail with what ``show`` returns."""
    until = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > until:
            pytest.fail(f"not within {timeout_s} s: {what}\n{show()}")
        time.sleep(0.02)


def find_processes(mark: str) -> list[int]:
    """Return the pids of all processes that have the mark in their command line or environment, zombies left out."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            texts = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if mark.encode() in texts and not is_zombie and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found
