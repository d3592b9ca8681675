"""The coordinator's ears and mouth on node 0.

A ``Link`` is one agent's line to the coordinator: a pair of queues on node 0 itself, a socket from elsewhere.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import EXIT_USAGE, RendezvousError
from hpc_multinode.node.coordinator import Coordinator, Step
from hpc_multinode.node.heartbeat import Heartbeat, make_silence
from hpc_multinode.node.wire import (
    MAX_HELLO,
    HandshakeError,
    LineReader,
    WrongSecretError,
    encode,
    read_message,
    welcome,
    write_line,
)
from hpc_multinode.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Message
    from hpc_multinode.node.link import Link

_LEFT_CHECK_S = 0.01
_REFUSE_CHECK_S = 0.05
_TELL_EVERY_S = 5.0
_BACKLOG = 4096
# Nodes that are named one by one in a line.
_MAX_NAMES = 8
# Descriptors that are kept for files and pipes when strangers are let wait.
_SPARE_DESCRIPTORS = 128


class _LocalLink:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.inbox: asyncio.Queue[Message | None] = asyncio.Queue()

    def send(self, message: Message) -> None:
        self._hub.hear(0, message)

    async def receive(self) -> Message | None:
        return await self.inbox.get()


class Hub:
    """Carries words between the coordinator and all agents.

    Args:
        coordinator: Decides.
        make_start: Called before each attempt; returns the coordinates of the start. Its RendezvousError or OSError
            ends the run.
        finish: Called once when the run is over; returns the run's exit code.
        heartbeat_s: Silence after which an agent counts as lost, in seconds.
        record: Told of every word that is heard or said, with the node it is from; None for the coordinator.
        on_broken: Told of an error that is no agent's doing.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        make_start: Callable[[], Awaitable[dict[str, Any]]],
        finish: Callable[[], Awaitable[int]],
        heartbeat_s: float,
        record: Callable[[int | None, Message], None],
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._coordinator = coordinator
        self._record, self._on_broken = record, on_broken
        self._make_start, self._finish = make_start, finish
        self._heartbeat: Heartbeat[int] = Heartbeat(timeout_s=heartbeat_s, now=time.monotonic())
        self._writers: dict[int, asyncio.StreamWriter] = {}
        # Who has not proved anything yet, the longest waiting first.
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._max_strangers = 1
        self._has_told_of_strangers = False
        self._local = _LocalLink(self)
        self._server: asyncio.Server | None = None
        self._done: Message | None = None
        self._step: asyncio.Task[None] | None = None

    @property
    def num_remote(self) -> int:
        """How many agents of other nodes are connected now."""
        return len(self._writers)

    async def listen(self, node: NodeContext, secret: bytes, *, bind_host: str | None) -> None:
        """Listen on the first candidate that is free.

        Raises:
            RendezvousError: None is.
        """
        self._max_strangers = max(_SPARE_DESCRIPTORS, _raise_descriptor_limit() - node.num_nodes - _SPARE_DESCRIPTORS)
        for port in node.port_candidates:
            try:
                self._server = await asyncio.start_server(
                    lambda reader, writer: self._serve(reader, writer, secret),
                    bind_host,
                    port,
                    limit=MAX_HELLO,
                    backlog=_BACKLOG,
                )
            except OSError:
                continue
            return
        raise RendezvousError(
            what="the coordinator finds no port to listen on",
            found=f"all of {', '.join(map(str, node.port_candidates))} are taken on {node.host}",
            fix="start the run again; if it comes back, look at what listens there",
        )

    def join_local(self, host: str) -> Link:
        """Join as the agent of node 0 itself."""
        self._join(0, host)
        return self._local

    def hear(self, node_rank: int, message: Message) -> None:
        """Take a message from an agent."""
        self._heartbeat.hear(node_rank, now=time.monotonic())
        if message["kind"] == "beat":
            return
        self._record(node_rank, message)
        self._tell(self._coordinator.hear(node_rank, message, now=time.monotonic()))

    async def watch_joining(self, node: NodeContext, *, timeout_s: float, tell: Callable[[str], None]) -> None:
        """Say for whom the run waits, and end it when the time is up."""
        began = time.monotonic()
        while not self._coordinator.has_all:
            await asyncio.sleep(min(_TELL_EVERY_S, max(0.0, timeout_s - (time.monotonic() - began))))
            waited = time.monotonic() - began
            if self._coordinator.has_all:
                return
            missing = self._coordinator.missing
            tell(f"waiting for {_name_nodes(node, missing)}: {waited:.0f} s of {timeout_s:.0f} s")
            if waited >= timeout_s:
                others = f"; nor did {_name_nodes(node, missing[1:])}" if missing[1:] else ""
                absent = Outcome(
                    node_rank=missing[0],
                    host=node.hosts[missing[0]],
                    message=f"did not come within {timeout_s:.0f} s to {node.main_address}, ports "
                    f"{', '.join(map(str, node.port_candidates))}{others}; what kept it, its agent says in submitit/ "
                    "(NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and launch.main_address choose interfaces)",
                    failure_class="rendezvous",
                )
                self._tell(self._coordinator.fail(absent, now=time.monotonic()))

    async def watch_heartbeats(self) -> None:
        """Tell every agent that we are there, and lose those that have been silent for too long."""
        beat = encode({"kind": "beat"})
        while True:
            await asyncio.sleep(self._heartbeat.interval_s)
            for writer in self._writers.values():
                write_line(writer, beat)
            for rank in self._heartbeat.tick(time.monotonic()):
                self._heartbeat.forget(rank)
                if rank in self._writers:
                    self._lose(rank, make_silence(self._heartbeat.timeout_s))

    def say_grace(self, seconds: float) -> None:
        """Tell all agents how long their workers have, from when they were asked to end."""
        self._say([{"kind": "grace", "seconds": seconds}])

    def hang_up(self) -> None:
        """Listen no more, and close every agent's line."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers.values():
            writer.close()

    async def wait_until_left(self, timeout_s: float) -> None:
        """Wait until the other agents have come, heard and hung up, so that node 0 is the last to end."""
        until = time.monotonic() + timeout_s
        # After a cancel whoever is missing has got the signal too, and will not come.
        waits_for_missing = self._coordinator.asked_by is None
        while self._writers or (waits_for_missing and self._coordinator.missing):
            if time.monotonic() >= until:
                return
            await asyncio.sleep(_LEFT_CHECK_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
        try:
            await self._let_in(LineReader(reader), writer, secret)
        except asyncio.CancelledError:  # the loop ends; before Python 3.12 the server would print a traceback of it
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - the server would only log it
            self._on_broken(error)

    async def _let_in(self, lines: LineReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
        self._strangers[writer] = None
        if len(self._strangers) > self._max_strangers:
            next(iter(self._strangers)).transport.abort()
        try:
            hello = await welcome(lines, writer, secret)
        except (HandshakeError, OSError) as error:
            self._note_stranger(writer, error)
            writer.close()
            return
        finally:
            del self._strangers[writer]
        node_rank = hello["node_rank"]
        if not self._coordinator.expects(node_rank):
            writer.close()
            return
        self._writers[node_rank] = writer
        self._heartbeat.hear(node_rank, now=time.monotonic())
        self._join(node_rank, hello["host"])
        for greeting in [*self._coordinator.greet(), *([self._done] if self._done else [])]:
            write_line(writer, encode(greeting))
        while (message := await read_message(lines)) is not None:
            self.hear(node_rank, message)
        self._lose(node_rank, "the connection closed")

    def _note_stranger(self, writer: asyncio.StreamWriter, error: Exception) -> None:
        if self._has_told_of_strangers:
            return
        self._has_told_of_strangers = True
        peer = (writer.get_extra_info("peername") or ("?",))[0]
        why = "an agent with another secret" if isinstance(error, WrongSecretError) else str(error) or "it hung up"
        self._record(None, {"kind": "stranger", "peer": peer, "why": why})

    def _lose(self, node_rank: int, why: str) -> None:
        writer = self._writers.pop(node_rank, None)
        if writer is None:
            return
        self._heartbeat.forget(node_rank)
        writer.close()
        messages = self._coordinator.lose(node_rank, now=time.monotonic(), why=why)
        if messages:
            self._record(node_rank, {"kind": "lost", "why": why})
        self._tell(messages)

    def _join(self, node_rank: int, host: str) -> None:
        self._record(node_rank, {"kind": "joined", "host": host})
        self._coordinator.join(node_rank, host)
        self._tell([])

    async def _start(self) -> None:
        try:
            start = await self._make_start()
        except (RendezvousError, OSError) as error:
            text = f"{error.what}: {error.found}" if isinstance(error, RendezvousError) else str(error)
            failed = Outcome(node_rank=0, host="node 0", message=text, failure_class="rendezvous")
            self._say(self._coordinator.fail(failed, now=time.monotonic()))
            return
        self._say(self._coordinator.start(start, now=time.monotonic()))

    async def _end(self) -> None:
        self._done = {"kind": "done", "exit_code": await self._finish()}
        self._say([self._done])

    def _tell(self, messages: Sequence[Message]) -> None:
        """Tell all agents, and do what the coordinator wants done next."""
        self._say(messages)
        if self._coordinator.wake_at is not None:
            delay = max(0.0, self._coordinator.wake_at - time.monotonic())
            asyncio.get_running_loop().call_later(delay, self._tick)
        if self._step is None and self._done is None and self._coordinator.next_step is not Step.wait:
            self._step = asyncio.create_task(self._take_steps())

    def _tick(self) -> None:
        messages = self._coordinator.tick(time.monotonic())
        if messages:
            self._tell(messages)

    async def _take_steps(self) -> None:
        try:
            while self._done is None and (step := self._coordinator.next_step) is not Step.wait:
                await (self._start() if step is Step.start else self._end())
        except Exception as error:  # noqa: BLE001 - nobody waits for this task
            self._on_broken(error)
        finally:
            self._step = None

    def _say(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._record(None, message)
            line = encode(message)
            for writer in self._writers.values():
                write_line(writer, line)
            self._local.inbox.put_nowait(message)


def _name_nodes(node: NodeContext, ranks: Sequence[int]) -> str:
    names = [f"node {rank} ({node.hosts[rank]})" for rank in ranks[:_MAX_NAMES]]
    return ", ".join(names) + (f" and {len(ranks) - _MAX_NAMES} more" if len(ranks) > _MAX_NAMES else "")


def _raise_descriptor_limit() -> int:
    """Allow this process as many connections as it may have, and return how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1 << 16 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _raise(error: Exception) -> None:
    raise error


async def refuse(node: NodeContext, secret: bytes, *, timeout_s: float) -> None:
    """Tell the other nodes that there will be no run, as far as they come to ask in time.

    Args:
        node: Node 0.
        secret: The run's.
        timeout_s: How long to wait for them, in seconds.
    """

    async def start() -> dict[str, Any]:
        return {}

    async def finish() -> int:
        return EXIT_USAGE

    coordinator = Coordinator(num_nodes=node.num_nodes)
    hub = Hub(
        coordinator,
        make_start=start,
        finish=finish,
        heartbeat_s=timeout_s,
        record=lambda _, __: None,
        on_broken=_raise,
    )
    await hub.listen(node, secret, bind_host=None)
    began = time.monotonic()
    while len(coordinator.missing) > 1 and time.monotonic() - began < timeout_s:  # noqa: ASYNC110 - seconds at most
        await asyncio.sleep(_REFUSE_CHECK_S)
    hub.hang_up()
    await asyncio.sleep(0)
