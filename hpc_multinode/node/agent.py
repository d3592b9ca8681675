"""The node agent: one a node. Joins the others, starts the workers, watches them, and on node 0 hosts the coordinator.

One loop owns all state; whatever happens (a signal, a word of the coordinator or of the forkserver) comes to it through
one queue. It never waits for a file: those are written by the journal's thread, and read in another.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import EXIT_FAILED, MultiNodeError
from hpc_multinode.node.host import Host
from hpc_multinode.node.journal import Journal, read_tail
from hpc_multinode.node.link import join_remote
from hpc_multinode.node.local import LOOPBACK
from hpc_multinode.node.membership import Membership
from hpc_multinode.node.memory import count_oom_kills
from hpc_multinode.node.placing import NOT_BOUND, make_specs, share_cpus_out
from hpc_multinode.node.sampling import sample_node
from hpc_multinode.node.stop_signals import STOP_SIGNALS, release_stop_signals
from hpc_multinode.node.supervisor import Supervisor
from hpc_multinode.node.surroundings import wait_for_launcher_end, wait_for_lost_sibling
from hpc_multinode.node.workers import Workers
from hpc_multinode.report import Outcome
from hpc_multinode.slurm.ends import WARNING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.link import Link
    from hpc_multinode.node.server import Server
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder

_LEAVE_S = 5.0
_LAST_LINES = 20
# How long the end of a log is waited for where the file system does not answer.
_TAIL_S = 2.0
# How long an agent that has no coordinator yet goes on looking for one after a signal: node 0 may have to requeue.
_LOOK_S = 5.0
# Slurm's signal may reach a worker a moment before its agent.
_SAME_SIGNAL_S = 0.3
# What Slurm leaves after SIGTERM where it has not been asked yet.
_SLURM_GRACE_S = 27.0
# The signal at which an agent ends at once, whatever the others do.
_FORCE_AT = 3


@dataclass(slots=True)
class _Attempt:
    """What is known of the attempt that goes on; nothing of it stays for the next.

    Attributes:
        number: Which one, from 0.
        began: When it began here, on this process's clock in seconds.
        has_joined: All nodes have met.
        num_reached: Workers that have reached each of the phases that workers tell. Count.
        has_noticed: A worker has noticed that it is to stop.
        step: The furthest step that a worker has saved, or None.
        is_stopped: The workers are to end.
        has_ended: The coordinator has been told that no worker is left.
    """

    number: int = 0
    began: float = field(default_factory=time.monotonic)
    has_joined: bool = False
    num_reached: Counter[str] = field(default_factory=Counter)
    has_noticed: bool = False
    step: int | None = None
    is_stopped: bool = False
    has_ended: bool = False


class Agent:
    """One node's agent.

    Args:
        folder: The run's folder.
        plan: The run.
        node: This node's place in it.
        secret: By which agents know each other.
        server: The forkserver, or why this node can start no workers; it joins to say so, and the run ends with that.
        sends_plan: The other nodes get the plan with the start, since they have no run folder to read it from.
        joined: The link to the coordinator and its first message, where this node has joined already.
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        plan: LaunchPlan,
        node: NodeContext,
        secret: bytes,
        server: Server | MultiNodeError,
        sends_plan: bool = False,
        joined: tuple[Link, dict[str, Any]] | None = None,
    ) -> None:
        self._server = server
        self._joined = joined
        self._folder, self._plan, self._node, self._secret = folder, plan, node, secret
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._host: Host | None = None
        self._is_alone = False
        self._workers: Workers | None = None
        self._attempt = _Attempt()
        self._exit_code = 0
        self._num_oom_kills = 0
        self._is_signalled = False
        self._num_signals = 0
        self._has_preloaded = False
        self._pending: dict[str, Any] | None = None
        self._journal = Journal()
        if node.node_rank == 0:
            self._host = Host(
                folder=folder,
                plan=plan,
                node=node,
                journal=self._journal,
                sends_plan=sends_plan,
                on_broken=lambda error: self._put({"kind": "broken", "error": error}),
            )
        self._membership = Membership(
            open_link=self._open_link,
            heartbeat_timeout_s=plan.heartbeat_timeout_s if self._host is None else None,
            put=self._put,
        )
        self._handlers = self._list_handlers()
        self._supervisor = Supervisor(node_rank=node.node_rank, host=node.host, signal_workers=self._signal_workers)

    def _list_handlers(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[None] | None]]:
        """Return what each kind of event is for."""
        return {
            "tick": self._on_tick,
            "signal": self._on_signal,
            "unreachable": self._on_unreachable,
            "hung_up": self._on_hung_up,
            "start": self._on_start,
            "tell": self._on_tell,
            "stop": self._on_stop,
            "grace": self._on_grace,
            "told": self._on_told,
            "preloaded": self._on_preloaded,
            "started": self._on_started,
            "said": self._on_said,
            "exited": self._on_exited,
            "forkserver_gone": self._on_forkserver_gone,
        }

    async def run(self) -> int:
        """Run this node from joining to the end, and return its exit code."""
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._take_signal, number.name)
        release_stop_signals()
        tasks = [asyncio.create_task(self._guard(source)) for source in await self._open_sources()]
        try:
            await self._handle_events()
        finally:
            # From here on srun's SIGTERM, which follows the first task that ends badly, has nothing left to stop.
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_IGN)
            if self._workers is not None:
                await self._workers.end()
            for task in tasks:
                task.cancel()
        if self._host is not None:
            # Node 0 is the last to leave, and alone carries the run's code: srun ends all others at the first bad one.
            await self._host.wait_until_left(_LEAVE_S)
        self._journal.write(f"ended with exit code {self._exit_code}")
        self._journal.close()
        return self._exit_code

    async def _open_sources(self) -> list[Coroutine[Any, Any, None]]:
        sources = [self._watch_launcher()]
        if self._host is not None:
            sources += self._host.watches()
        if isinstance(self._server, MultiNodeError):
            self._fail_as_node(f"{self._server.what}: {self._server.found}", failure_class="usage")
        else:
            for warning in self._server.warnings:
                self._journal.tell(warning)
            self._workers = await Workers.open(self._server)
            sources.append(self._listen_to_workers(self._workers))
        sources += self._membership.sources()
        sources.append(sample_node(self._folder, self._node, read_attempt=self._read_attempt))
        if self._plan.mode == "local" and self._node.num_nodes > 1:
            sources.append(self._watch_siblings())
        return sources

    def _read_attempt(self) -> int | None:
        """Return the attempt whose workers run here; None where there is none yet, or never will be."""
        return self._attempt.number if self._attempt.has_joined and self._workers is not None else None

    async def _handle_events(self) -> None:
        """Handle what happens, one event after the other, until the coordinator says that the run is done."""
        while True:
            event = await self._next_event()
            if event["kind"] == "done":
                if self._host is not None or self._is_alone:
                    self._exit_code = event["exit_code"]
                return
            if event["kind"] == "broken":
                raise event["error"]
            handled = self._handlers[event["kind"]](event)
            if handled is not None:
                await handled
            self._tell_end()

    # -- where events come from --------------------------------------------------------------------------------------

    def _put(self, event: dict[str, Any]) -> None:
        self._events.put_nowait(event)

    async def _guard(self, source: Coroutine[Any, Any, None]) -> None:
        """Let a source of events that breaks end the agent: without it nobody would hear of what happens."""
        try:
            await source
        except Exception as error:  # noqa: BLE001 - raised again by the loop
            self._put({"kind": "broken", "error": error})

    async def _next_event(self) -> dict[str, Any]:
        wake_at = self._supervisor.wake_at
        if wake_at is None:
            return await self._events.get()
        try:
            return await asyncio.wait_for(self._events.get(), max(0.0, wake_at - time.monotonic()))
        except asyncio.TimeoutError:
            return {"kind": "tick"}

    async def _open_link(self) -> Link:
        if self._host is not None:
            return await self._host.open(self._secret)
        if self._joined is not None:
            link, first = self._joined
            self._put(first)
            return link
        return await join_remote(
            self._node,
            self._secret,
            address=LOOPBACK if self._plan.mode == "local" else self._node.main_address,
            timeout_s=self._plan.join_timeout_s,
            tell=self._journal.tell,
        )

    async def _listen_to_workers(self, workers: Workers) -> None:
        async for answer in workers.answers():
            self._put(answer)
        self._put({"kind": "forkserver_gone"})

    async def _watch_launcher(self) -> None:
        await wait_for_launcher_end()
        self._put({"kind": "signal", "signal": "SIGHUP"})
        # Nobody is left to press Ctrl-C again if the run does not end by itself.
        await asyncio.sleep(self._plan.grace_s + self._plan.kill_s + _LEAVE_S)
        for _ in range(_FORCE_AT - 1):
            self._put({"kind": "signal", "signal": "SIGHUP"})

    async def _watch_siblings(self) -> None:
        """Notice that another agent has ended before all have met: submitit's controller waits for all of them."""

        def is_settled() -> bool:
            return self._attempt.has_joined or self._attempt.is_stopped

        await wait_for_lost_sibling(self._node.num_nodes, until=is_settled)
        if is_settled():
            return
        lost = "an agent of this run ended before all had met; see submitit/ in the run folder"
        self._fail_as_node(lost, failure_class="lost_node")
        if not self._membership.has_joined:
            self._leave(EXIT_FAILED)

    # -- what each event does ----------------------------------------------------------------------------------------

    def _on_tick(self, _: dict[str, Any]) -> None:
        self._supervisor.tick(time.monotonic())

    def _take_signal(self, name: str) -> None:
        self._is_signalled = True
        self._put({"kind": "signal", "signal": name})

    def _on_signal(self, event: dict[str, Any]) -> None:
        name = event["signal"]
        self._journal.write(f"got {name}")
        self._num_signals += name != WARNING
        if self._num_signals >= _FORCE_AT:
            self._leave(128 + signal.Signals[name])
            return
        self._membership.say({"kind": "signal", "signal": name})
        if not self._membership.has_joined and name != WARNING:
            asyncio.get_running_loop().call_later(_LOOK_S, self._leave_unless_joined, 128 + signal.Signals[name])

    def _leave_unless_joined(self, code: int) -> None:
        if not self._membership.has_joined:
            self._leave(code)

    def _on_tell(self, _: dict[str, Any]) -> None:
        if self._workers is None:
            self._membership.say({"kind": "told", "listens": False})
        else:
            self._workers.tell()

    def _on_told(self, event: dict[str, Any]) -> None:
        self._membership.say({"kind": "told", "listens": event["listens"]})

    def _on_unreachable(self, event: dict[str, Any]) -> None:
        error: MultiNodeError = event["error"]
        self._journal.tell(f"error: {error}")
        self._leave(error.exit_code)

    def _on_hung_up(self, event: dict[str, Any]) -> None:
        if self._is_alone:
            return
        self._journal.tell(f"node {self._node.node_rank} ({self._node.host}): the coordinator on node 0 "
                           f"({self._node.hosts[0]}) is lost: {event['why']}; stopping")  # fmt: skip
        self._is_alone = self._attempt.is_stopped = True
        self._stop("failure")

    def _on_start(self, event: dict[str, Any]) -> None:
        if self._attempt.has_joined:
            self._attempt = _Attempt()  # of the one before no worker is left anywhere
        self._attempt.number = event["attempt"]
        self._attempt.has_joined = True
        self._note_phase("joined")
        if self._workers is None:  # the run folder itself may be what is not there
            return
        if self._host is None:  # which has opened it before
            self._journal.open(self._folder, self._attempt.number, self._node.node_rank)
        self._pending = event
        self._start_when_ready()

    def _on_preloaded(self, event: dict[str, Any]) -> None:
        self._note_phase("preloaded")
        self._has_preloaded = True
        error = event["error"]
        if error is None:
            self._start_when_ready()
            return
        modules = ", ".join(self._plan.strategy.preload)
        self._fail_as_node(
            f"the preload of {modules} failed: {error['exception']}: {error['message']}",
            failure_class="exception",
            exception=error["exception"],
            last_lines=tuple(error["traceback"]),
        )

    def _on_started(self, event: dict[str, Any]) -> None:
        self._note_phase("spawned")
        self._supervisor.note_pids({int(rank): pid for rank, pid in event["pids"].items()})

    async def _on_said(self, event: dict[str, Any]) -> None:
        local_rank, words = event["local_rank"], event["words"]
        if words["kind"] == "phase":
            name = words["name"]
            self._attempt.num_reached[name] += 1
            if self._attempt.num_reached[name] == self._node.local_world_size:
                self._note_phase(name)
            return
        tail = () if words.get("traceback") else await self._read_tail(local_rank)
        failure = self._supervisor.hear(local_rank, words, tail=tail)
        if failure is not None:
            self._fail(failure)

    async def _on_exited(self, event: dict[str, Any]) -> None:
        local_rank, exit_code, name = event["local_rank"], event["exit_code"], event["signal"]
        attempt = self._attempt
        attempt.step = max((step for step in (attempt.step, event["step"]) if step is not None), default=None)
        if name == "SIGTERM" and not self._supervisor.is_stopping and not self._is_signalled:
            await asyncio.sleep(_SAME_SIGNAL_S)
        # By a handler of the work's: of our SIGTERM, or of Slurm's own, which may come to workers before our word.
        is_first = self._is_signalled and not event["was_told"]
        has_heard = is_first or (event["handles_term"] and self._supervisor.is_terminated)
        attempt.has_noticed = attempt.has_noticed or event["has_noticed"] or has_heard
        has_told = exit_code == 0 or self._supervisor.has_spoken(local_rank)
        tail = () if has_told else await self._read_tail(local_rank)
        # The kernel kills the process that it deems the largest, which may be a child of the worker.
        is_out_of_memory = exit_code != 0 and count_oom_kills() > self._num_oom_kills
        failure = self._supervisor.note_exit(
            local_rank,
            exit_code=exit_code,
            signal=name,
            tail=tail,
            is_out_of_memory=is_out_of_memory,
            is_by_slurm=self._is_signalled,
        )
        if failure is not None:
            self._fail(failure)

    async def _read_tail(self, local_rank: int) -> tuple[str, ...]:
        reading = asyncio.to_thread(read_tail, self._supervisor.log_of(local_rank))
        try:
            return await asyncio.wait_for(reading, _TAIL_S)
        except asyncio.TimeoutError:
            return ("(the log could not be read: its file system does not answer)",)

    def _on_forkserver_gone(self, _: dict[str, Any]) -> None:
        if self._attempt.has_ended:
            return
        code = self._workers.exit_code if self._workers is not None else None
        message = f"the process that starts and holds the workers ended by itself, with exit code {code}"
        self._fail(replace(self._supervisor.lose_all(message), last_lines=read_tail("/proc/self/fd/2")[-_LAST_LINES:]))

    def _on_stop(self, event: dict[str, Any]) -> None:
        say = self._journal.write if self._attempt.has_joined else self._journal.tell
        say(f"stopping: {event['reason']}" + (f", {event['why']}" if event.get("why") else ""))
        self._attempt.is_stopped = True
        self._stop(event["reason"])

    def _on_grace(self, event: dict[str, Any]) -> None:
        self._journal.write(f"the workers have {event['seconds']:.0f} s to end by themselves")
        self._supervisor.set_grace(event["seconds"])
        self._supervisor.tick(time.monotonic())

    # -- acting ------------------------------------------------------------------------------------------------------

    def _start_when_ready(self) -> None:
        if self._pending is None or not self._has_preloaded or self._attempt.is_stopped:
            return
        start, self._pending = self._pending, None
        shares = None
        if self._plan.has_bound_cpus:
            shares = share_cpus_out(self._node)
            if shares is None:
                self._journal.write(NOT_BOUND)
        specs = make_specs(self._plan, self._node, start, folder=self._folder, shares=shares)
        self._num_oom_kills = count_oom_kills()
        self._supervisor.start(specs)
        assert self._workers is not None  # noqa: S101 - launched before any event comes
        self._workers.start(specs)

    def _fail(self, outcome: Outcome) -> None:
        self._journal.write(f"failed: {outcome.message or outcome.signal or outcome.exit_code}")
        self._membership.say({"kind": "failed", "outcome": outcome.to_json()})

    def _fail_as_node(self, message: str, *, failure_class: str, **more: Any) -> None:  # noqa: ANN401 - more of Outcome
        """Tell what went wrong here outside every worker."""
        node = self._node
        self._fail(
            Outcome(node_rank=node.node_rank, host=node.host, message=message, failure_class=failure_class, **more)
        )

    def _stop(self, reason: str) -> None:
        now = time.monotonic()
        grace_s = self._plan.grace_s
        if reason in ("cancel", "cancel_at_once") and self._node.job_id is not None:
            grace_s = min(grace_s, _SLURM_GRACE_S)
        if reason in ("failure", "kill"):
            self._supervisor.stop(now=now, grace_s=self._plan.kill_s if reason == "failure" else 0.0)
        elif reason == "hurry":
            self._supervisor.hurry()
        else:
            self._supervisor.ask(now=now, grace_s=grace_s, is_at_once=reason == "cancel_at_once")
        self._supervisor.tick(now)

    def _signal_workers(self, name: str) -> None:
        assert self._workers is not None  # noqa: S101 - launched before any event comes
        self._workers.signal(name)

    def _tell_end(self) -> None:
        """Tell the coordinator once that this node has no worker left."""
        attempt, outcomes = self._attempt, self._supervisor.outcomes
        if attempt.has_ended or not (attempt.is_stopped or outcomes) or not self._supervisor.is_over:
            return
        attempt.has_ended = True
        self._membership.say(
            {
                "kind": "ended",
                "outcomes": [outcome.to_json() for outcome in outcomes],
                "has_noticed": attempt.has_noticed,
                "step": attempt.step,
            }
        )
        if self._is_alone:
            self._leave(EXIT_FAILED)

    def _leave(self, code: int) -> None:
        self._is_alone = True
        self._put({"kind": "done", "exit_code": code})

    def _note_phase(self, name: str) -> None:
        seconds = round(time.monotonic() - self._attempt.began, 3)
        self._membership.say({"kind": "phase", "name": name, "seconds": seconds})
        self._journal.write(f"{name} after {seconds:.2f} s")
