"""Node 0's second role: the coordinator behind its hub, the start that all nodes get, and the report at the end."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.hub import Hub
from hpc_multinode.node.local import LOOPBACK
from hpc_multinode.node.verdict import compose_report
from hpc_multinode.ports import find_free_port, require_free_port
from hpc_multinode.runs import REPORT, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Message
    from hpc_multinode.node.journal import Journal
    from hpc_multinode.node.link import Link
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.report import Report

# Words of the wire that are events too, under the names that the run folder knows; whatever stands not here is none.
_EVENTS = {
    "joined": "joined",
    "start": "started",
    "phase": "phase",
    "failed": "failed",
    "cancel": "signal",
    "stop": "stopping",
    "lost": "lost",
    "ended": "ended",
    "stranger": "stranger",
    "done": "done",
}


class Host:
    """What the agent of node 0 does for all nodes.

    Args:
        folder: The run's folder.
        plan: The run.
        node: Node 0.
        journal: Node 0's own.
        sends_plan: The other nodes get the plan with the start, since they have no run folder to read it from.
        on_broken: Told of an error that is no agent's doing.
    """

    def __init__(
        self,
        *,
        folder: RunFolder,
        plan: LaunchPlan,
        node: NodeContext,
        journal: Journal,
        sends_plan: bool,
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._folder, self._plan, self._node, self._journal = folder, plan, node, journal
        self._sends_plan = sends_plan
        self._began = [datetime.now(timezone.utc).astimezone()]
        self._report: Report | None = None
        self._coordinator = Coordinator(num_nodes=node.num_nodes, max_restarts=plan.max_restarts)
        self._hub = Hub(
            self._coordinator,
            make_start=self._make_start,
            finish=self._finish,
            heartbeat_s=plan.heartbeat_timeout_s,
            record=self._record,
            on_broken=on_broken,
        )

    async def open(self, secret: bytes) -> Link:
        """Listen for the other nodes and join as node 0.

        Args:
            secret: By which agents know each other.

        Raises:
            RendezvousError: No port is free to listen on.
        """
        await self._open_attempt()
        if self._node.num_nodes > 1:
            await self._hub.listen(self._node, secret, bind_host=LOOPBACK if self._plan.mode == "local" else None)
        return self._hub.join_local(self._node.host)

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """Return what has to run beside: it ends the run where nodes do not come or are heard of no more."""
        if self._node.num_nodes == 1:
            return []
        joining = self._hub.watch_joining(self._node, timeout_s=self._plan.join_timeout_s, tell=self._journal.tell)
        return [joining, self._hub.watch_heartbeats()]

    async def wait_until_left(self, timeout_s: float) -> None:
        """Wait until the other agents have hung up, so that node 0 is the last to end."""
        await self._hub.wait_until_left(timeout_s)

    async def _open_attempt(self) -> None:
        number = await asyncio.to_thread(self._folder.make_next_attempt)
        self._coordinator.attempt.number = number
        self._journal.open(self._folder, number, self._node.node_rank, has_events=True)

    async def _make_start(self) -> dict[str, Any]:
        port = self._plan.main_port
        if port is None:
            port = find_free_port()
        else:
            require_free_port(port, host_name=self._node.host)
        if self._coordinator.attempt.number is None:
            self._began.append(datetime.now(timezone.utc).astimezone())
            await self._open_attempt()
        return {
            **({"plan": self._plan.to_json()} if self._sends_plan else {}),
            "main_address": self._node.main_address,
            "main_port": port,
            "attempt": self._coordinator.attempt.number,
        }

    async def _finish(self) -> int:
        report = compose_report(self._plan, self._node, self._coordinator, began=self._began)
        self._report = report
        try:
            await asyncio.to_thread(self._folder.write, REPORT, report.to_json().encode())
        except OSError as error:  # a full disk, or a folder that the work removed: the end is told all the same
            print(f"error: the report cannot be written: {error}", file=sys.stderr, flush=True)  # noqa: T201
            return report.exit_code or EXIT_FAILED
        return report.exit_code

    def _record(self, node_rank: int | None, message: Message) -> None:
        """Note a word of the wire as an event of the run."""
        kind = _EVENTS.get(message["kind"])
        if kind is None:
            return
        fields = {name: value for name, value in message.items() if name not in ("kind", "plan")}
        if node_rank is not None:
            fields["node_rank"] = node_rank
        if kind == "done" and self._report is not None:
            fields["state"] = self._report.state
        self._journal.record(kind, **fields)
