"""Node 0's second role: the coordinator behind its hub, the start that all nodes get, and the report at the end."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.checkpointing import remove_saved
from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.layout import REPORT
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.ending import STAY_S, Ending, judge_ending, refuse_requeue
from hpc_multinode.node.history import read_history, write_records
from hpc_multinode.node.hub import Hub
from hpc_multinode.node.local import LOOPBACK
from hpc_multinode.node.verdict import compose_report
from hpc_multinode.ports import find_free_port, require_free_port
from hpc_multinode.registry import read_entry
from hpc_multinode.resubmission import REQUEST
from hpc_multinode.slurm.commands import ask_job, requeue_job
from hpc_multinode.slurm.ends import WARNING, JobEnd, judge_end

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.coordinator import Message
    from hpc_multinode.node.journal import Journal
    from hpc_multinode.node.link import Link
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.report import Report
    from hpc_multinode.runs import RunFolder

# Words of the wire that are events too, under the names that the run folder knows; whatever stands not here is none.
_EVENTS = {
    "joined": "joined",
    "start": "started",
    "phase": "phase",
    "failed": "failed",
    "signal": "signal",
    "told": "told",
    "grace": "grace",
    "stop": "stopping",
    "lost": "lost",
    "ended": "ended",
    "stranger": "stranger",
    "done": "done",
}

# Reasons of a stop that come from outside.
_ASKED_FOR = ("cancel", "cancel_at_once", "warning", "hurry")


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
        self._history: tuple[dict[str, Any], ...] = ()
        self._asking: asyncio.Task[JobEnd | None] | None = None
        self._coordinator = Coordinator(
            num_nodes=node.num_nodes,
            max_restarts=plan.max_restarts,
            stops_at_warning=plan.mode == "slurm" and plan.requeues is True,
        )
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
        number = self._coordinator.attempt.number or 0
        self._history = await asyncio.to_thread(read_history, self._folder, before=number)
        # It was the last word on an earlier attempt; the run goes on.
        await asyncio.to_thread((self._folder.path / REPORT).unlink, missing_ok=True)
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
        end = None if self._asking is None else await self._asking
        ending = judge_ending(self._plan, self._coordinator, end=end, history=self._history)
        # Before the requeue, which ends us.
        code = await self._write_report(ending)
        if ending.wants_requeue:
            self._journal.write("all workers are gone: requeueing the job")
            refusal = await asyncio.to_thread(self._requeue, self._node.job_id or "")
            if refusal is not None:
                ending = refuse_requeue(self._plan, ending, why=refusal)
                self._journal.tell(ending.notes[-1])
                code = await self._write_report(ending)
        if ending.stays:
            self._journal.write("staying until Slurm kills us: a job that ends before is never requeued")
            await asyncio.sleep(STAY_S)
        return code

    def _requeue(self, job_id: str) -> str | None:
        """Put the job back, or leave that to the batch script; return why neither can be done, or None."""
        if not self._plan.leaves_requeue or (self._plan.requeue_method == "scontrol" and shutil.which("scontrol")):
            return requeue_job(job_id)
        try:
            self._folder.write(f"{REQUEST}{job_id}", b"")
        except OSError as error:
            return f"the batch script cannot be asked to: {error}"
        self._journal.write("the batch script does it when all agents have ended")
        return None

    async def _write_report(self, ending: Ending) -> int:
        entry = await asyncio.to_thread(read_entry, self._folder.path)
        report = compose_report(
            self._plan,
            self._node,
            self._coordinator,
            ending,
            began=self._began,
            history=self._history,
            submitted=None if entry is None else entry.submitted,
        )
        self._report = report
        try:
            await asyncio.to_thread(write_records, self._folder, report.attempts[len(self._history) :])
            await asyncio.to_thread(report.write, self._folder)
            if report.state == "COMPLETED":
                await asyncio.to_thread(remove_saved, self._folder)
        except OSError as error:  # a full disk, or a folder that the work removed: the end is told all the same
            print(f"error: the report cannot be written: {error}", file=sys.stderr, flush=True)  # noqa: T201
            return report.exit_code or EXIT_FAILED
        return report.exit_code

    async def _ask_slurm(self, signal: str) -> JobEnd | None:
        """Ask why the job is being ended, and tell all nodes how long that leaves."""
        job_id = self._node.job_id
        if job_id is None:
            return None
        asked = time.monotonic()
        facts = await asyncio.to_thread(ask_job, job_id, restart_count=self._node.restart_count)
        end = judge_end(facts, signal=signal, now=datetime.now(timezone.utc).astimezone())
        left = "" if end.left_s is None else f", {end.left_s:.0f} s left"
        self._journal.write(f"{signal}: {end.kind.value}{left}; Slurm says {facts.describe()}")
        if end.left_s is not None:
            # What Slurm leaves counts from its signal, or, for a time that it names, from now.
            took = 0.0 if end.is_from_signal else time.monotonic() - asked
            self._hub.say_grace(min(self._plan.grace_s, end.left_s + took))
        return end

    def _record(self, node_rank: int | None, message: Message) -> None:
        """Note a word of the wire as an event of the run; one that ends it leads to a question to Slurm."""
        if node_rank is None and message["kind"] == "stop" and message["reason"] in _ASKED_FOR:
            signal = WARNING if message["reason"] == "warning" else self._coordinator.asked_by or "SIGTERM"
            self._asking = asyncio.get_running_loop().create_task(self._ask_slurm(signal))
        kind = _EVENTS.get(message["kind"])
        if kind is None:
            return
        fields = {name: value for name, value in message.items() if name not in ("kind", "plan")}
        if node_rank is not None:
            fields["node_rank"] = node_rank
        if kind == "done" and self._report is not None:
            fields["state"] = self._report.state
        self._journal.record(kind, **fields)
