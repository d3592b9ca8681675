"""The real forkserver process over a socket pair, driven as the agent drives it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from hpc_multinode.config import Config, StartMethod
from hpc_multinode.context import WorkerContext
from hpc_multinode.node.server import make_request
from hpc_multinode.node.spec import WorkerSpec
from hpc_multinode.planning import make_plan
from hpc_multinode.work import find_target
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hpc_multinode.plan import LaunchPlan

# Bounds a wait for a real process; nothing waits this long.
SOON_S = 20.0


class Server:
    """A forkserver of one node, and the run folder in which its workers write.

    Args:
        folder: Where the work and the run folder are made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = folder / "run-1"
        (self.run_dir / "attempt-0").mkdir(parents=True)
        self.agent, self._theirs = socket.socketpair()
        self.agent.settimeout(SOON_S)
        self._lines = self.agent.makefile("rb")
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, plan: LaunchPlan, **env: str) -> dict[str, Any]:
        """Start the process, have it prepare, and return its answer."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hpc_multinode.node.forkserver", str(self._theirs.fileno())],
            pass_fds=[self._theirs.fileno()],
            env={**os.environ, **env},
            cwd=self.run_dir,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._theirs.close()
        self.ask(kind="prepare", plan=plan.to_json())
        return self.answer("preloaded")

    def plan(self, source: str = "def run(): pass\n", *, preload: tuple[str, ...] = ()) -> LaunchPlan:
        """Return the plan of a work ``run`` in a file of the person's."""
        (self.folder / "my_work.py").write_text(textwrap.dedent(source))
        config = Config()
        config.launch.start_method = StartMethod.forkserver
        config.strategy.preload = list(preload)
        facts = make_facts(cwd=str(self.folder), python=sys.executable, run_root=str(self.folder))
        return make_plan(config, facts=facts, target=find_target("my_work.py:run", cwd=self.folder, is_script=False))

    def start(self, num_workers: int = 1) -> dict[int, int]:
        """Start workers and return their pids by local rank."""
        self.ask(kind="start", workers=[self._spec(rank, num_workers).to_json() for rank in range(num_workers)])
        return {int(rank): pid for rank, pid in self.answer("started")["pids"].items()}

    def _spec(self, rank: int, num_workers: int) -> WorkerSpec:
        place = WorkerContext(
            world_size=num_workers,
            node_rank=0,
            global_rank=rank,
            local_rank=rank,
            local_world_size=num_workers,
            num_nodes=1,
            main_address="127.0.0.1",
            main_port=1234,
            attempt=0,
            run_dir=str(self.run_dir),
            devices=(),
        )
        return WorkerSpec(place=place, cpus=(), title="rank", log=str(self.log_path(rank)))

    def log_path(self, rank: int = 0) -> Path:
        """Return a worker's log."""
        return self.run_dir / "attempt-0" / f"rank{rank}.log"

    def log(self, rank: int = 0) -> str:
        """Return what a worker has written."""
        return self.log_path(rank).read_text() if self.log_path(rank).exists() else ""

    def ask(self, **request: Any) -> None:
        """Send a request."""
        self.agent.sendall(make_request(**request))

    def answers_until(self, kind: str, number: int = 1) -> list[dict[str, Any]]:
        """Return all answers up to the last of ``number`` of a kind."""
        found: list[dict[str, Any]] = []
        while sum(answer["kind"] == kind for answer in found) < number:
            line = self._lines.readline()
            assert line, f"the forkserver is gone after {found}"
            found.append(json.loads(line))
        return found

    def answer(self, kind: str) -> dict[str, Any]:
        """Return the next answer of a kind."""
        return self.answers_until(kind)[-1]

    def hang_up(self) -> None:
        """Close the agent's end, as the end of its process does."""
        self._lines.close()
        self.agent.close()

    def close(self) -> None:
        """End the process and what it has started."""
        self._theirs.close()
        self.hang_up()
        if self.process is not None:
            try:
                self.process.wait(SOON_S)
            finally:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Give a forkserver that is ended after the test."""
    server = Server(tmp_path)
    yield server
    server.close()


def wait_until(is_true: Callable[[], object]) -> None:
    """Poll a condition on real processes, for a bounded time."""
    end = time.monotonic() + SOON_S
    while not is_true():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_pids(server: Server, number: int = 1) -> list[int]:
    """Wait until a work has printed so many pids, and return them."""
    wait_until(lambda: len(server.log().split()) >= number and server.log().endswith("\n"))
    return [int(word) for word in server.log().split()]


def test_a_preload_is_told(server: Server) -> None:
    """What was imported is there before any worker."""
    assert server.launch(server.plan(preload=("colorsys",)))["error"] is None


def test_a_worker_finds_the_preload_imported(server: Server) -> None:
    """Workers share what the forkserver has imported."""
    source = "import sys\n\ndef run():\n    print('colorsys' in sys.modules)\n"
    server.launch(server.plan(source, preload=("colorsys",)))
    server.start()
    server.answer("exited")
    assert server.log() == "True\n"


def test_a_preload_that_fails_is_told(server: Server) -> None:
    """Which module and why come to the agent, and the forkserver stays."""
    error = server.launch(server.plan(preload=("not_there_at_all",)))["error"]
    assert (error["exception"], error["message"]) == ("ModuleNotFoundError", "No module named 'not_there_at_all'")
    assert error["traceback"] == ["ModuleNotFoundError: No module named 'not_there_at_all'"]


def test_a_preload_that_fails_at_length_is_told_in_short(server: Server) -> None:
    """A module that raises with a huge text does not break the line to the agent, which takes 4 MiB."""
    (server.folder / "my_preload.py").write_text("raise ValueError('x' * 5_000_000)\n")
    answer = server.launch(server.plan(preload=("my_preload",)), PYTHONPATH=str(server.folder))
    assert len(json.dumps(answer)) < 4 << 20


def test_a_preload_whose_error_has_no_text_is_told(server: Server) -> None:
    """An exception whose __str__ raises does not end the forkserver."""
    source = "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd\n"
    (server.folder / "my_preload.py").write_text(source)
    answer = server.launch(server.plan(preload=("my_preload",)), PYTHONPATH=str(server.folder))
    assert answer["error"]["exception"] == "Odd"


def test_a_preload_may_be_a_module_of_the_persons(server: Server) -> None:
    """launch.preload names modules that lie beside the work, too."""
    (server.folder / "my_preload.py").write_text("VALUE = 7\n")
    assert server.launch(server.plan(preload=("my_preload",)))["error"] is None


def test_a_worker_lives_and_ends(server: Server) -> None:
    """Its pid, its phase and its end are told in this order."""
    server.launch(server.plan())
    pids = server.start()
    assert psutil.pid_exists(pids[0])
    said, exited = server.answers_until("exited")
    assert said == {"kind": "said", "local_rank": 0, "words": {"kind": "phase", "name": "process_group"}}
    end = {"exit_code": 0, "signal": None, "step": None, "has_noticed": False, "handles_term": False, "was_told": False}
    assert exited == {"kind": "exited", "local_rank": 0, **end}


def test_a_worker_that_fails_says_so_before_it_ends(server: Server) -> None:
    """The exception is there when the exit is."""
    server.launch(server.plan("def run():\n    raise KeyError('lr')\n"))
    server.start()
    *_, said, exited = server.answers_until("exited")
    assert (said["words"]["kind"], said["words"]["exception"], exited["exit_code"]) == ("failed", "KeyError", 1)


@pytest.mark.parametrize(
    ("end", "exit_code", "name"),
    [
        ("os._exit(7)", 7, None),
        ("sys.exit(3)", 3, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, "SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", None, "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 6)", None, "signal 40"),
    ],
)
def test_an_end_is_told_by_code_or_by_name(server: Server, end: str, exit_code: int | None, name: str | None) -> None:
    """Either the exit code or the signal's name, never both."""
    server.launch(server.plan(f"import os, signal, sys\n\ndef run():\n    {end}\n"))
    server.start()
    exited = server.answer("exited")
    assert (exited["exit_code"], exited["signal"]) == (exit_code, name)


def test_a_crash_leaves_a_stack_in_the_log(server: Server) -> None:
    """A segmentation fault is shown with the line where it happened."""
    server.launch(server.plan("import os, signal\n\ndef run():\n    os.kill(os.getpid(), signal.SIGSEGV)\n"))
    server.start()
    server.answer("exited")
    assert "Fatal Python error: Segmentation fault" in server.log()
    assert "my_work.py" in server.log()


def test_each_worker_is_told_by_its_rank(server: Server) -> None:
    """Workers have variables and logs of their own."""
    source = "import os, sys\n\ndef run(local_rank):\n    print(os.environ['LOCAL_RANK'])\n    sys.exit(local_rank)\n"
    server.launch(server.plan(source))
    pids = server.start(3)
    assert len(set(pids.values())) == 3
    ends = [answer for answer in server.answers_until("exited", 3) if answer["kind"] == "exited"]
    assert {end["local_rank"]: end["exit_code"] for end in ends} == {0: 0, 1: 1, 2: 2}
    assert [server.log(rank) for rank in range(3)] == ["0\n", "1\n", "2\n"]


def test_the_end_of_one_leaves_the_other(server: Server) -> None:
    """The forkserver itself stops nobody."""
    server.launch(server.plan("import time\n\ndef run(local_rank):\n    time.sleep(300 * local_rank)\n"))
    pids = server.start(2)
    assert server.answer("exited")["local_rank"] == 0
    assert is_alive(pids[1])


def test_what_was_printed_before_a_kill_is_in_the_log(server: Server) -> None:
    """Lines are written as they come."""
    source = "import os, signal\n\ndef run():\n    print('alive')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    server.launch(server.plan(source))
    server.start()
    server.answer("exited")
    assert server.log() == "alive\n"


def test_a_worker_looks_like_a_process_of_its_own(server: Server) -> None:
    """Default signal handlers but for USR2, nothing blocked, its own group, the person's folder, empty stdin."""
    source = """
        import os, signal, sys

        def run():
            print([signal.getsignal(number).name for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)])
            print(signal.getsignal(signal.SIGINT).__name__, signal.getsignal(signal.SIGUSR2).name)
            print(signal.pthread_sigmask(signal.SIG_BLOCK, []), os.getpgrp() == os.getpid())
            print(os.getcwd(), repr(sys.stdin.read()), sorted(os.listdir('/proc/self/fd'))[:3])
    """
    server.launch(server.plan(source))
    server.start()
    server.answer("exited")
    assert server.log().splitlines() == [
        "['SIG_DFL', 'SIG_DFL', 'SIG_DFL']",
        "default_int_handler SIG_IGN",
        "set() True",
        f"{server.folder} '' ['0', '1', '2']",
    ]


def test_atexit_handlers_of_a_worker_run(server: Server) -> None:
    """A worker ends as an interpreter does."""
    server.launch(server.plan("import atexit\n\ndef run():\n    atexit.register(print, 'bye')\n"))
    server.start()
    server.answer("exited")
    assert server.log() == "bye\n"


def test_workers_draw_random_numbers_of_their_own(server: Server) -> None:
    """Siblings do not go on from the same state."""
    source = "import random, numpy\n\ndef run():\n    print(random.random(), numpy.random.rand())\n"
    server.launch(server.plan(source, preload=("random", "numpy")), OMP_NUM_THREADS="1")
    server.start(2)
    server.answers_until("exited", 2)
    drawn = (server.log(0) + server.log(1)).split()
    assert len(drawn) == len(set(drawn)) == 4


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_reaches_the_group_of_every_worker(server: Server, name: str) -> None:
    """A child of a worker is asked to end as its parent is."""
    source = """
        import subprocess, time

        def run():
            print(subprocess.Popen(['sleep', '300']).pid)
            time.sleep(300)
    """
    server.launch(server.plan(source))
    server.start()
    (child,) = read_pids(server)
    server.ask(kind="signal", signal=name)
    exited = server.answer("exited")
    assert exited["signal"] == name or exited["exit_code"] == 1
    wait_until(lambda: not is_alive(child))


def test_what_a_worker_leaves_behind_is_asked_to_end(server: Server) -> None:
    """A child that outlives its worker is not left running beside the next one."""
    server.launch(server.plan("import subprocess\n\ndef run():\n    print(subprocess.Popen(['sleep', '300']).pid)\n"))
    server.start()
    server.answer("exited")
    (child,) = read_pids(server)
    wait_until(lambda: not is_alive(child))


STUBBORN = """
    import os, signal, subprocess, sys, time

    def run():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        loop = [sys.executable, '-c', 'import time; time.sleep(300)']
        kept = subprocess.Popen(loop)
        daemon = subprocess.Popen(loop, start_new_session=True)
        print(os.getpid(), kept.pid, daemon.pid)
        time.sleep(300)
"""


def test_everything_is_gone_when_the_agent_is(server: Server) -> None:
    """Worker, children and daemons that ignore SIGTERM end when the socket closes, and the forkserver too."""
    server.launch(server.plan(STUBBORN))
    server.start()
    pids = read_pids(server, 3)
    server.hang_up()
    assert server.process is not None
    assert server.process.wait(SOON_S) == 0
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_tree_that_keeps_forking_is_gone_too(server: Server) -> None:
    """Processes that come and go while all are being killed do not end the killing early."""
    source = """
        import os, subprocess

        def run():
            storms = [
                subprocess.Popen(['sh', '-c', 'while :; do /bin/true; done'], start_new_session=True) for _ in range(4)
            ]
            print(*(storm.pid for storm in storms))
            storms[0].wait()
    """
    server.launch(server.plan(source))
    server.start()
    pids = read_pids(server, 4)
    server.hang_up()
    assert server.process is not None
    code = server.process.wait(SOON_S)
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (code, left) == (0, [])


def test_the_workers_go_with_a_forkserver_that_is_killed(server: Server) -> None:
    """SIGKILL of the forkserver leaves no worker, whatever it ignores."""
    source = """
        import os, signal, time

        def run():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(os.getpid())
            time.sleep(300)
    """
    server.launch(server.plan(source))
    (pid,) = server.start().values()
    read_pids(server)
    assert server.process is not None
    server.process.kill()
    wait_until(lambda: not is_alive(pid))


def test_the_forkserver_outlives_the_signals_of_its_job(server: Server) -> None:
    """What Slurm or a terminal sends to all processes is the agent's to answer."""
    server.launch(server.plan())
    assert server.process is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP):
        server.process.send_signal(number)
    server.start()
    assert server.answer("exited")["exit_code"] == 0


def make_spawn_plan(server: Server, source: str) -> LaunchPlan:
    """Return the plan of a work whose workers are fresh interpreters."""
    return replace(server.plan(source, preload=("colorsys",)), start_method="spawn")


def test_a_spawned_worker_is_a_fresh_interpreter(server: Server) -> None:
    """It has its variables, its log and its pid, and nothing that the forkserver imported."""
    source = """
        import os, sys

        def run(global_rank):
            print(os.environ['LOCAL_RANK'], global_rank, os.getpid(), 'colorsys' in sys.modules)
            sys.exit(4 + global_rank)
    """
    server.launch(make_spawn_plan(server, source))
    pids = server.start(2)
    ends = [answer for answer in server.answers_until("exited", 2) if answer["kind"] == "exited"]
    assert {end["local_rank"]: end["exit_code"] for end in ends} == {0: 4, 1: 5}
    assert [server.log(rank) for rank in (0, 1)] == [f"{rank} {rank} {pids[rank]} False\n" for rank in (0, 1)]


def test_many_spawned_workers_start(server: Server) -> None:
    """A worker that is a new interpreter before the forkserver looks at it again does no harm."""
    server.launch(make_spawn_plan(server, "def run(): pass\n"))
    assert len(server.start(12)) == 12


def test_a_spawned_worker_says_its_failure(server: Server) -> None:
    """The line to the agent goes through the new interpreter."""
    server.launch(make_spawn_plan(server, "def run():\n    raise KeyError('lr')\n"))
    server.start()
    *_, said, exited = server.answers_until("exited")
    assert (said["words"]["kind"], said["words"]["exception"], exited["exit_code"]) == ("failed", "KeyError", 1)


def test_a_spawned_worker_goes_with_the_forkserver(server: Server) -> None:
    """The new interpreter is bound to its parent as well."""
    source = "import os, time\n\ndef run():\n    print(os.getpid())\n    time.sleep(300)\n"
    server.launch(make_spawn_plan(server, source))
    server.start()
    (pid,) = read_pids(server)
    assert server.process is not None
    server.process.kill()
    wait_until(lambda: not is_alive(pid))


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_safe_path_takes_nothing_from_the_persons_path(server: Server, start_method: str) -> None:
    """With PYTHONSAFEPATH=1, where Python puts no folder of its own first, PYTHONPATH is whole in the worker."""
    own = server.folder / "own"
    own.mkdir()
    (own / "my_library.py").write_text("VALUE = 7\n")
    plan = replace(server.plan("import my_library\n\ndef run(): pass\n"), start_method=start_method)
    server.launch(plan, PYTHONSAFEPATH="1", PYTHONPATH=str(own))
    server.start()
    assert server.answer("exited")["exit_code"] == 0
