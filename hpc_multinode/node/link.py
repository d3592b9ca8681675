"""An agent's line to the coordinator, and how another node than 0 finds it."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from typing import TYPE_CHECKING, Protocol

from hpc_multinode.errors import RendezvousError
from hpc_multinode.node.wire import (
    MAX_LINE,
    HandshakeError,
    LineReader,
    WrongSecretError,
    encode,
    knock,
    read_message,
    write_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Message

_RETRY_S = 0.05
_CONNECT_S = 5.0
_TELL_EVERY_S = 5.0
_OTHER_SECRET = "a coordinator answers that knows another secret"  # noqa: S105 - a text


class Link(Protocol):
    """One agent's line to the coordinator."""

    def send(self, message: Message) -> None:
        """Queue a message."""

    async def receive(self) -> Message | None:
        """Wait for a message; None where the line is gone for good."""


class SocketLink:
    """A link over a connection that has passed the handshake."""

    def __init__(self, lines: LineReader, writer: asyncio.StreamWriter) -> None:
        self._lines, self._writer = lines, writer

    def send(self, message: Message) -> None:
        """Queue a message."""
        write_line(self._writer, encode(message))

    async def receive(self) -> Message | None:
        """Wait for a message; None where the line is gone for good."""
        return await read_message(self._lines)


async def join_remote(
    node: NodeContext, secret: bytes, *, address: str, timeout_s: float, tell: Callable[[str], None]
) -> SocketLink:
    """Find the coordinator among its candidates and join.

    Args:
        node: This node.
        secret: The run's.
        address: Node 0's, as it is reached from here.
        timeout_s: How long to try, in seconds.
        tell: Takes lines that say for whom this node waits.

    Raises:
        RendezvousError: It was not found in time.
    """
    hello = {"node_rank": node.node_rank, "host": node.host}
    began = told = time.monotonic()
    until = began + timeout_s
    seen: dict[int, str] = {}
    while True:
        for port in node.port_candidates:
            left = until - time.monotonic()
            if left <= 0:
                raise _make_error(node, address, timeout_s, seen)
            try:
                return await _try_port(address, port, secret, hello, timeout_s=min(_CONNECT_S, left))
            except (HandshakeError, OSError, asyncio.TimeoutError) as error:
                if isinstance(error, WrongSecretError) and _OTHER_SECRET not in seen.values():
                    tell(f"{address} port {port}: {_OTHER_SECRET}; is your home folder the same on all nodes?")
                seen[port] = _describe(error)
        await asyncio.sleep(_RETRY_S)
        if time.monotonic() - told >= _TELL_EVERY_S:
            told = time.monotonic()
            tell(f"waiting for node 0 ({address}): {told - began:.0f} s of {timeout_s:.0f} s; {_summarise(seen)}")


async def _try_port(address: str, port: int, secret: bytes, hello: Message, *, timeout_s: float) -> SocketLink:
    reader, writer = await asyncio.wait_for(asyncio.open_connection(address, port, limit=MAX_LINE), timeout_s)
    lines = LineReader(reader)
    try:
        await knock(lines, writer, secret, hello)
    except BaseException:
        writer.close()
        raise
    return SocketLink(lines, writer)


def _describe(error: Exception) -> str:
    """Tell what a port did, as the same words for the same reason."""
    if isinstance(error, WrongSecretError):
        return _OTHER_SECRET
    if isinstance(error, HandshakeError):
        return "something else listens there"
    if isinstance(error, socket.gaierror):
        return "the name does not resolve"
    # A name with several addresses gives one error with the texts of all.
    if f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "refused: the host is there, and nobody listens"
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
        return "no answer: a firewall, or the host is down"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _summarise(seen: dict[int, str]) -> str:
    """Group the ports by what they did."""
    reasons: dict[str, list[str]] = {}
    for port, reason in seen.items():
        reasons.setdefault(reason, []).append(str(port))
    return "; ".join(f"port {', '.join(ports)}: {reason}" for reason, ports in reasons.items()) or "nothing tried yet"


def _make_error(node: NodeContext, address: str, timeout_s: float, seen: dict[int, str]) -> RendezvousError:
    fixes = {
        _OTHER_SECRET: "share the home folder between nodes, or export XDG_STATE_HOME=FOLDER that they share",
        "the name does not resolve": "launch.main_address=NAME that all nodes resolve, such as {host}.cluster",
    }
    fix = next((fixes[reason] for reason in seen.values() if reason in fixes), None)
    return RendezvousError(
        what=f"node {node.node_rank} ({node.host}) found no coordinator within {timeout_s:.0f} s",
        found=f"node 0 ({address}), {_summarise(seen)}",
        fix=fix
        or "see whether node 0 is running and reachable; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME choose interfaces",
    )
