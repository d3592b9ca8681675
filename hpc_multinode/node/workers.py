"""The agent's side of the forkserver: sends requests, and yields what it answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

from hpc_multinode.node.server import make_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hpc_multinode.node.server import Server
    from hpc_multinode.node.spec import WorkerSpec

_MAX_LINE = 4 << 20


class Workers:
    """The forkserver of one agent, as a process that is asked things.

    Args:
        process: The forkserver.
        reader: Where its answers come from.
        writer: Where requests go.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def open(cls, server: Server) -> Workers:
        """Speak with a forkserver that was started."""
        reader, writer = await asyncio.open_connection(sock=server.connection, limit=_MAX_LINE)
        return cls(server.process, reader, writer)

    def start(self, specs: list[WorkerSpec]) -> None:
        """Fork the workers."""
        self._request(kind="start", workers=[spec.to_json() for spec in specs])

    def tell(self) -> None:
        """Tell every worker that it is to stop."""
        self._request(kind="tell")

    def signal(self, name: str) -> None:
        """Send a signal to the process group of every worker that runs."""
        self._request(kind="signal", signal=name)

    async def answers(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what the forkserver says, until it is gone."""
        while True:
            try:
                line = await self._reader.readline()
            except ConnectionError:  # it ended with a request unread
                line = b""
            if not line:
                return
            yield json.loads(line)

    @property
    def exit_code(self) -> int | None:
        """How the forkserver ended, negative for a signal; None where it has not."""
        try:
            return self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return None

    async def end(self) -> None:
        """Have it kill what is left of the workers' processes, and wait until it is gone."""
        self._writer.close()
        await asyncio.get_running_loop().run_in_executor(None, self._process.wait)

    def _request(self, **request: object) -> None:
        if not self._writer.is_closing():
            self._writer.write(make_request(**request))
