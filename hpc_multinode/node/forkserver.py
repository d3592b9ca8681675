"""The forkserver: imports the framework once a node, forks the workers, and is the only one who signals them.

A process of its own, the child of the agent, with a single thread and no CUDA. It is the workers' parent, so it can
hold a dead worker's pid until the end (by not reaping it) and signal a process group knowing that it is still the
worker's. It lives as long as its socket to the agent: where the agent is gone, it ends every worker and itself.

Requests, one JSON line each: ``prepare`` (preload), ``start`` (fork workers), ``tell`` (that they are to stop),
``signal`` (all workers' groups). Answers: ``preloaded``, ``started``, ``said`` (a worker's own words), ``told``,
``exited``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hpc_multinode.node.child import become_worker, die_with_parent, drop_own_folder
from hpc_multinode.node.failure import make_words
from hpc_multinode.node.spec import WorkerSpec
from hpc_multinode.node.stop_signals import STOP_SIGNALS, hold_stop_signals, release_stop_signals
from hpc_multinode.node.stray import adopt_orphans, kill_descendants
from hpc_multinode.plan import LaunchPlan
from hpc_multinode.stopping import Page

_READ_BYTES = 1 << 16


@dataclass(slots=True)
class _Worker:
    local_rank: int
    pid: int
    pipe: int
    page: Page
    unread: bytes = b""
    is_running: bool = True
    handles_term: bool = False  # seen when it was told: an interpreter that ends has no handlers any more


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTask:
    """What a forked child is to do: be this worker, with these two descriptors."""

    plan: LaunchPlan
    spec: WorkerSpec
    pipe: int
    page: int


class Forkserver:
    """The server's state; ``serve`` returns in a forked child only, with what the child is to do."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, _Worker] = {}
        self._unread = b""
        self._plan: LaunchPlan | None = None
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> ChildTask:
        """Answer requests until the agent is gone; return only in a child."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        release_stop_signals()
        # SIGCHLD needs a handler to be delivered at all; what it wakes is the selector.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        adopt_orphans()
        self._selector.register(self._agent, selectors.EVENT_READ, "agent")
        self._selector.register(self._wake_read, selectors.EVENT_READ, "child")
        while True:
            for key, _ in self._selector.select():
                if key.data == "agent":
                    task = self._read_agent()
                    if task is not None:
                        return task
                elif key.data == "child":
                    _drain(self._wake_read)
                else:
                    self._read_worker(key.data)
            self._look_for_ended()

    def _read_agent(self) -> ChildTask | None:
        try:
            data = self._agent.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self._end()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["kind"] == "prepare":
                self._prepare(request)
            elif request["kind"] == "start":
                task = self._start([WorkerSpec.from_json(spec) for spec in request["workers"]])
                if task is not None:
                    return task
            elif request["kind"] == "tell":
                self._tell()
            elif request["kind"] == "signal":
                self._signal_running(signal.Signals[request["signal"]])
        return None

    def _prepare(self, request: dict[str, Any]) -> None:
        self._plan = LaunchPlan.from_json(request["plan"])
        began = time.monotonic()
        error = None
        if self._plan.start_method == "forkserver":
            path = list(sys.path)
            sys.path.extend(self._plan.work.folders)  # last: the person's modules take nobody's place
            try:
                for name in self._plan.strategy.preload:
                    importlib.import_module(name)
            except BaseException as failure:  # noqa: BLE001 - whatever an import does, the agent must hear of it
                error = make_words(failure)
            sys.path[:] = path
            # Objects that live now are never collected in a worker: their pages stay shared.
            gc.collect()
            gc.freeze()
        self._answer(kind="preloaded", seconds=time.monotonic() - began, error=error)

    def _start(self, specs: list[WorkerSpec]) -> ChildTask | None:
        assert self._plan is not None, "the agent sends prepare first"  # noqa: S101 - our own protocol
        self._clear()
        sys.stdout.flush()
        sys.stderr.flush()
        server = os.getpid()
        for spec in specs:
            pipe_read, pipe_write = os.pipe2(os.O_CLOEXEC)
            page_file, page = Page.make()
            # Blocked until the child has its own handlers, so that a SIGTERM that comes at once is not lost.
            hold_stop_signals()
            pid = os.fork()
            if pid == 0:
                self._forget_server()
                os.close(pipe_read)
                die_with_parent(server)
                return ChildTask(plan=self._plan, spec=spec, pipe=pipe_write, page=page_file)
            # From both sides, so that whoever runs first finds a group that can be signalled.
            with contextlib.suppress(PermissionError):  # it has run another program already, in a group of its own
                os.setpgid(pid, pid)
            release_stop_signals()
            os.close(pipe_write)
            os.close(page_file)
            os.set_blocking(pipe_read, False)
            worker = _Worker(local_rank=spec.place.local_rank, pid=pid, pipe=pipe_read, page=page)
            self._workers[spec.place.local_rank] = worker
            self._selector.register(pipe_read, selectors.EVENT_READ, worker)
        self._answer(kind="started", pids={str(w.local_rank): w.pid for w in self._workers.values()})
        return None

    def _forget_server(self) -> None:
        """Undo in a child what the server set up for itself."""
        signal.set_wakeup_fd(-1)
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # until the work sets a handler
        release_stop_signals()
        self._selector.close()
        self._agent.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        for worker in self._workers.values():
            if worker.pipe >= 0:
                os.close(worker.pipe)

    def _read_worker(self, worker: _Worker) -> None:
        while True:
            try:
                data = os.read(worker.pipe, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._selector.unregister(worker.pipe)
                os.close(worker.pipe)
                worker.pipe = -1
                return
            *lines, worker.unread = (worker.unread + data).split(b"\n")
            for line in lines:
                self._answer(kind="said", local_rank=worker.local_rank, words=json.loads(line))

    def _look_for_ended(self) -> None:
        for worker in self._workers.values():
            if not worker.is_running:
                continue
            # Looked at, not reaped: the zombie keeps pid and process group from being given to anyone else.
            state = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is None:
                continue
            worker.is_running = False
            if worker.pipe >= 0:
                self._read_worker(worker)
            _signal_group(worker.pid, signal.SIGTERM)  # what it left behind
            is_exit = state.si_code == os.CLD_EXITED
            self._answer(
                kind="exited",
                local_rank=worker.local_rank,
                exit_code=state.si_status if is_exit else None,
                signal=None if is_exit else _signal_name(state.si_status),
                step=worker.page.step,
                has_noticed=worker.page.has_noticed,
                handles_term=worker.handles_term,
                was_told=worker.page.is_stop_requested,
            )

    def _tell(self) -> None:
        """Tell every worker that it is to stop: by its page, and by SIGUSR2 where it has a handler for that."""
        for worker in self._workers.values():
            worker.page.request_stop()
            worker.handles_term = worker.is_running and _has_handler(worker.pid, signal.SIGTERM)
            if worker.is_running and _has_handler(worker.pid, signal.SIGUSR2):
                worker.page.note_handler()
                # To the worker alone: its children have not asked for it, and would end.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGUSR2)
        listens = any(worker.is_running and worker.page.listens for worker in self._workers.values())
        self._answer(kind="told", listens=listens)

    def _signal_running(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.is_running:
                _signal_group(worker.pid, number)

    def _clear(self) -> None:
        """Kill and reap what is left of the workers, so that their numbers can be given anew."""
        if not self._workers:
            return
        for worker in self._workers.values():
            _signal_group(worker.pid, signal.SIGKILL)
            if worker.pipe >= 0:  # held by a child of the worker's
                self._selector.unregister(worker.pipe)
                os.close(worker.pipe)
            worker.page.close()
        kill_descendants()
        self._workers.clear()

    def _end(self) -> NoReturn:
        self._clear()
        os._exit(0)

    def _answer(self, **message: Any) -> None:  # noqa: ANN401 - JSON
        try:
            self._agent.sendall(json.dumps(message).encode() + b"\n")
        except ConnectionError:
            self._end()


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # nobody of the group is left but the zombie that keeps its number


def _has_handler(pid: int, number: signal.Signals) -> bool:
    """Say whether a process catches a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, _READ_BYTES):
            pass
    except BlockingIOError:
        return


def main() -> NoReturn:
    """Serve on the socket whose descriptor is the first argument, or in a child be a worker."""
    agent = socket.socket(fileno=int(sys.argv[1]))
    agent.set_inheritable(False)
    task = Forkserver(agent).serve()
    become_worker(task.plan, task.spec, pipe=task.pipe, page=task.page)


if __name__ == "__main__":
    # The agent gave us the run folder as working directory, which holds no modules: nothing of the person's is on the
    # path before the framework is loaded.
    drop_own_folder()
    main()
