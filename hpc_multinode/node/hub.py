"""The coordinator's ears and mouth on node 0, and the other nodes' way to it.

A ``Link`` is one agent's line to the coordinator: a pair of queues on node 0 itself, a socket from elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from hpc_multinode.errors import EXIT_USAGE, RendezvousError
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.wire import MAX_LINE, HandshakeError, knock, read_message, welcome, write_message
from hpc_multinode.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Message

_RETRY_S = 0.05
_CONNECT_S = 5.0
_TELL_EVERY_S = 5.0


class Link(Protocol):
    """One agent's line to the coordinator."""

    def send(self, message: Message) -> None:
        """Queue a message."""

    async def receive(self) -> Message | None:
        """Wait for a message; None where the line is gone for good."""


class SocketLink:
    """A link over a connection that has passed the handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: Message) -> None:
        """Queue a message."""
        write_message(self._writer, message)

    async def receive(self) -> Message | None:
        """Wait for a message; None where the line is gone for good."""
        return await read_message(self._reader)


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
        make_start: Called once when all nodes are there; returns the coordinates of the start. Its RendezvousError
            ends the run.
        finish: Called once when the run is over; returns the run's exit code.
        on_broken: Told of an error that ends a line to an agent and is not that agent's doing.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        make_start: Callable[[], dict[str, Any]],
        finish: Callable[[], int],
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._coordinator = coordinator
        self._on_broken = on_broken
        self._make_start, self._finish = make_start, finish
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._local = _LocalLink(self)
        self._server: asyncio.Server | None = None
        self._done: Message | None = None

    async def listen(self, node: NodeContext, secret: bytes, *, bind_host: str | None) -> None:
        """Listen on the first candidate that is free.

        Raises:
            RendezvousError: None is.
        """
        for port in node.port_candidates:
            try:
                self._server = await asyncio.start_server(
                    lambda reader, writer: self._serve(reader, writer, secret), bind_host, port, limit=MAX_LINE
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
        self._tell(self._coordinator.hear(node_rank, message, now=time.monotonic()))

    async def watch_joining(self, node: NodeContext, *, timeout_s: float, tell: Callable[[str], None]) -> None:
        """Say for whom the run waits, and end it when the time is up."""
        began = time.monotonic()
        while self._coordinator.missing and not self._coordinator.has_started:
            await asyncio.sleep(min(_TELL_EVERY_S, max(0.0, timeout_s - (time.monotonic() - began))))
            waited = time.monotonic() - began
            missing = [f"node {rank} ({node.hosts[rank]})" for rank in self._coordinator.missing]
            if not missing or self._coordinator.has_started:
                return
            tell(f"waiting for {', '.join(missing)}: {waited:.0f} s of {timeout_s:.0f} s")
            if waited >= timeout_s:
                absent = Outcome(
                    node_rank=self._coordinator.missing[0],
                    host=node.hosts[self._coordinator.missing[0]],
                    message=f"{', '.join(missing)} did not come within {timeout_s:.0f} s to {node.main_address}, ports "
                    f"{', '.join(map(str, node.port_candidates))}; see NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME",
                    failure_class="rendezvous",
                )
                self._tell(self._coordinator.fail(absent, now=time.monotonic()))

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
        waits_for_missing = self._coordinator.cancelled_by is None
        while self._writers or (waits_for_missing and self._coordinator.missing):
            if time.monotonic() >= until:
                return
            await asyncio.sleep(_RETRY_S / 5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
        try:
            await self._let_in(reader, writer, secret)
        except Exception as error:  # noqa: BLE001 - the server would only log it
            self._on_broken(error)

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> None:
        try:
            hello = await welcome(reader, writer, secret)
        except (HandshakeError, OSError):
            writer.close()
            return
        node_rank = hello["node_rank"]
        if not self._coordinator.expects(node_rank):
            writer.close()
            return
        self._writers[node_rank] = writer
        self._join(node_rank, hello["host"])
        for greeting in [*self._coordinator.greet(), *([self._done] if self._done else [])]:
            write_message(writer, greeting)
        while (message := await read_message(reader)) is not None:
            self.hear(node_rank, message)
        del self._writers[node_rank]
        writer.close()
        self._tell(self._coordinator.lose(node_rank, now=time.monotonic()))

    def _join(self, node_rank: int, host: str) -> None:
        if not self._coordinator.join(node_rank, host):
            return
        try:
            start = self._make_start()
        except (RendezvousError, OSError) as error:
            text = f"{error.what}: {error.found}" if isinstance(error, RendezvousError) else str(error)
            failed = Outcome(node_rank=0, host=host, message=text, failure_class="rendezvous")
            self._tell(self._coordinator.fail(failed, now=time.monotonic()))
            return
        self._tell(self._coordinator.start(start))

    def _tell(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._tell_all(message)
        if self._coordinator.is_over and self._done is None:
            self._done = {"kind": "done", "exit_code": self._finish()}
            self._tell_all(self._done)

    def _tell_all(self, message: Message) -> None:
        for writer in self._writers.values():
            write_message(writer, message)
        self._local.inbox.put_nowait(message)


def _raise(error: Exception) -> None:
    raise error


async def refuse(node: NodeContext, secret: bytes, *, timeout_s: float) -> None:
    """Tell the other nodes that there will be no run, as far as they come to ask in time.

    Args:
        node: Node 0.
        secret: The run's.
        timeout_s: How long to wait for them, in seconds.
    """
    coordinator = Coordinator(num_nodes=node.num_nodes)
    hub = Hub(coordinator, make_start=dict, finish=lambda: EXIT_USAGE, on_broken=_raise)
    await hub.listen(node, secret, bind_host=None)
    began = time.monotonic()
    while len(coordinator.missing) > 1 and time.monotonic() - began < timeout_s:  # noqa: ASYNC110 - seconds at most
        await asyncio.sleep(_RETRY_S)
    hub.hang_up()
    await asyncio.sleep(0)


async def join_remote(node: NodeContext, secret: bytes, *, address: str, timeout_s: float) -> SocketLink:
    """Find the coordinator among its candidates and join.

    Args:
        node: This node.
        secret: The run's.
        address: Node 0's, as it is reached from here.
        timeout_s: How long to try, in seconds.

    Raises:
        RendezvousError: It was not found in time.
    """
    hello = {"node_rank": node.node_rank, "host": node.host}
    began = time.monotonic()
    seen = "nothing answered"
    while time.monotonic() - began < timeout_s:
        for port in node.port_candidates:
            if time.monotonic() - began >= timeout_s:
                break
            try:
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(address, port, limit=MAX_LINE), _CONNECT_S
                )
            except (OSError, asyncio.TimeoutError) as error:
                seen = str(error) or "no answer"
                continue
            try:
                await knock(reader, writer, secret, hello)
            except (HandshakeError, OSError):
                seen = f"port {port} answers, but is not this run's coordinator"
                writer.close()
                continue
            return SocketLink(reader, writer)
        await asyncio.sleep(_RETRY_S)
    raise RendezvousError(
        what=f"node {node.node_rank} ({node.host}) found no coordinator within {timeout_s:.0f} s",
        found=f"{address}, ports {', '.join(map(str, node.port_candidates))}: {seen}",
        fix="see whether node 0 is running and reachable; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME choose interfaces",
    )
