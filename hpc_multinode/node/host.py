"""Node 0's second role: the coordinator behind its hub, the start that all nodes get, and the report at the end."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.hub import Hub, Link
from hpc_multinode.node.local import LOOPBACK
from hpc_multinode.node.verdict import compose_report
from hpc_multinode.ports import find_free_port, require_free_port
from hpc_multinode.runs import REPORT, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hpc_multinode.context import NodeContext
    from hpc_multinode.plan import LaunchPlan


class Host:
    """What the agent of node 0 does for all nodes.

    Args:
        folder: The run's folder.
        plan: The run.
        node: Node 0.
        phases: Seconds from the agent's start to each phase, as far as they are known when the run ends.
        sends_plan: The other nodes get the plan with the start, since they have no run folder to read it from.
        on_broken: Told of an error that is no agent's doing.
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        plan: LaunchPlan,
        node: NodeContext,
        phases: Mapping[str, float],
        sends_plan: bool,
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._folder, self._plan, self._node, self._phases = folder, plan, node, phases
        self._sends_plan = sends_plan
        self._began = datetime.now(timezone.utc).astimezone()
        self._attempt = 0
        self._coordinator = Coordinator(num_nodes=node.num_nodes)
        self._hub = Hub(self._coordinator, make_start=self._make_start, finish=self._finish, on_broken=on_broken)
        self._watching: asyncio.Task[None] | None = None

    async def open(self, secret: bytes, *, tell: Callable[[str], None]) -> Link:
        """Listen for the other nodes and join as node 0.

        Args:
            secret: By which agents know each other.
            tell: Takes lines that say for whom the run waits.

        Raises:
            RendezvousError: No port is free to listen on.
        """
        if self._node.num_nodes > 1:
            await self._hub.listen(self._node, secret, bind_host=LOOPBACK if self._plan.mode == "local" else None)
            self._watching = asyncio.create_task(
                self._hub.watch_joining(self._node, timeout_s=self._plan.join_timeout_s, tell=tell)
            )
        return self._hub.join_local(self._node.host)

    async def wait_until_left(self, timeout_s: float) -> None:
        """Wait until the other agents have hung up, so that node 0 is the last to end."""
        await self._hub.wait_until_left(timeout_s)

    def _make_start(self) -> dict[str, Any]:
        port = self._plan.main_port
        if port is None:
            port = find_free_port()
        else:
            require_free_port(port, host_name=self._node.host)
        self._attempt = self._folder.make_next_attempt()
        plan = {"plan": self._plan.to_json()} if self._sends_plan else {}
        return {**plan, "main_address": self._node.main_address, "main_port": port, "attempt": self._attempt}

    def _finish(self) -> int:
        report = compose_report(
            self._plan,
            self._node,
            self._coordinator,
            attempt=self._attempt,
            started=self._began,
            phases=self._phases,
        )
        try:
            self._folder.write(REPORT, report.to_json().encode())
        except OSError as error:  # a full disk, or a folder that the work removed: the end is told all the same
            print(f"error: the report cannot be written: {error}", file=sys.stderr, flush=True)  # noqa: T201
            return report.exit_code or EXIT_FAILED
        return report.exit_code
