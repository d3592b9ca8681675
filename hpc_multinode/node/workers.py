"""The agent's side of the forkserver: starts it, sends requests, and yields what it answers."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from hpc_multinode.node.spec import WorkerSpec
    from hpc_multinode.plan import LaunchPlan

_MAX_LINE = 4 << 20


class Workers:
    """The forkserver of one attempt, as a process that is asked things."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer

    @classmethod
    async def launch(cls, plan: LaunchPlan, *, env: Mapping[str, str]) -> Workers:
        """Start the forkserver and have it import the framework.

        Args:
            plan: The run.
            env: Its variables, which the workers inherit; what a library reads at import must be there now.
        """
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - returns at once; the command is ours
            [sys.executable, "-m", "hpc_multinode.node.forkserver", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=dict(env),
            cwd=plan.run_dir,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=_MAX_LINE)
        workers = cls(process, reader, writer)
        workers._request(kind="prepare", plan=plan.to_json())
        return workers

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

    def _request(self, **request: Any) -> None:  # noqa: ANN401 - JSON
        if not self._writer.is_closing():
            self._writer.write(json.dumps(request).encode() + b"\n")
