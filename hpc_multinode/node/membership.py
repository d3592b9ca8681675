"""What an agent and the coordinator have to say to each other: joining, words both ways, and whether both are there.

What the coordinator says comes out as events; what is said to it before the node has joined is kept until then.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import MultiNodeError
from hpc_multinode.node.heartbeat import Heartbeat, make_silence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from hpc_multinode.node.coordinator import Message
    from hpc_multinode.node.link import Link

_COORDINATOR = "coordinator"


class Membership:
    """One node's part in the run.

    Args:
        open_link: Finds the coordinator; raises a ``MultiNodeError`` where it cannot be found.
        heartbeat_timeout_s: Silence after which the coordinator counts as lost, in seconds; None where it is in this
            very process.
        put: Takes what happens: the coordinator's words, ``unreachable`` and ``hung_up``.
    """

    def __init__(
        self,
        *,
        open_link: Callable[[], Awaitable[Link]],
        heartbeat_timeout_s: float | None,
        put: Callable[[dict[str, Any]], None],
    ) -> None:
        self._open_link, self._put = open_link, put
        self._link: Link | None = None
        self._unsent: list[Message] = []
        self._heartbeat: Heartbeat[str] | None = None
        if heartbeat_timeout_s is not None:
            self._heartbeat = Heartbeat(timeout_s=heartbeat_timeout_s, now=time.monotonic())

    @property
    def has_joined(self) -> bool:
        """Say whether the coordinator has been found."""
        return self._link is not None

    def sources(self) -> list[Coroutine[Any, Any, None]]:
        """Return what has to run for events to come."""
        return [self._listen(), *([] if self._heartbeat is None else [self._watch(self._heartbeat)])]

    def say(self, message: Message) -> None:
        """Tell the coordinator, now or as soon as it is found."""
        if self._link is None:
            self._unsent.append(message)
        else:
            self._link.send(message)

    async def _listen(self) -> None:
        try:
            link = self._link = await self._open_link()
        except MultiNodeError as error:
            self._put({"kind": "unreachable", "error": error})
            return
        for unsent in self._unsent:
            link.send(unsent)
        while (message := await link.receive()) is not None:
            if self._heartbeat is not None:
                self._heartbeat.hear(_COORDINATOR, now=time.monotonic())
            if message["kind"] != "beat":
                self._put(message)
        self._put({"kind": "hung_up", "why": "the connection closed"})

    async def _watch(self, heartbeat: Heartbeat[str]) -> None:
        """Tell the coordinator that we are there, and notice that it no longer is."""
        while True:
            await asyncio.sleep(heartbeat.interval_s)
            if self._link is not None:
                self._link.send({"kind": "beat"})
            if heartbeat.tick(time.monotonic()):
                heartbeat.forget(_COORDINATOR)
                self._put({"kind": "hung_up", "why": make_silence(heartbeat.timeout_s)})
