"""What becomes of one node's workers: a state machine without any I/O.

It is told what the forkserver sees, and answers with outcomes; the clock and the signals are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hpc_multinode.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hpc_multinode.node.spec import WorkerSpec

_MAX_TAIL_LINES = 20


@dataclass(slots=True)
class _Worker:
    spec: WorkerSpec
    pid: int | None = None
    words: dict[str, Any] = field(default_factory=dict)
    was_told: bool = False
    outcome: Outcome | None = None


class Supervisor:
    """Follows the workers of one attempt on one node from their start to their end.

    Args:
        node_rank: This node.
        host: Its name.
        signal_workers: Sends a signal, by name, to the process group of every worker that runs.
    """

    def __init__(self, *, node_rank: int, host: str, signal_workers: Callable[[str], None]) -> None:
        self._node_rank, self._host = node_rank, host
        self._signal_workers = signal_workers
        self._workers: dict[int, _Worker] = {}
        self._kill_at: float | None = None
        self._is_killed = False

    @property
    def is_over(self) -> bool:
        """Say whether no worker is left; true as well where none was started."""
        return all(worker.outcome is not None for worker in self._workers.values())

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How the workers that have ended did so, by local rank."""
        return tuple(worker.outcome for worker in self._workers.values() if worker.outcome is not None)

    @property
    def kill_at(self) -> float | None:
        """When what is left is killed, on the caller's clock in seconds; None where nothing is being stopped."""
        return None if self._is_killed or self.is_over else self._kill_at

    def start(self, specs: list[WorkerSpec]) -> None:
        """Note the workers that are about to start; those of an attempt before are forgotten."""
        self._workers = {spec.local_rank: _Worker(spec=spec) for spec in specs}
        self._kill_at, self._is_killed = None, False

    def note_pids(self, pids: Mapping[int, int]) -> None:
        """Note the pids that the forkserver tells."""
        for local_rank, pid in pids.items():
            self._workers[local_rank].pid = pid

    def log_of(self, local_rank: int) -> str:
        """Return the path of a worker's log."""
        return self._workers[local_rank].spec.log

    def hear(self, local_rank: int, words: dict[str, Any], *, tail: Sequence[str] = ()) -> Outcome | None:
        """Take what a worker says of itself; return its failure at once, before the process has ended.

        Args:
            local_rank: The worker.
            words: What it says.
            tail: The last lines of its log.
        """
        worker = self._workers[local_rank]
        if words["kind"] != "failed" or worker.words:
            return None
        worker.words = words
        worker.was_told = True
        return self._make(worker, exit_code=words["exit_code"], signal=None, tail=tail)

    def note_exit(
        self,
        local_rank: int,
        *,
        exit_code: int | None,
        signal: str | None,
        tail: Sequence[str] = (),
        is_out_of_memory: bool = False,
    ) -> Outcome | None:
        """Take that a worker's process has ended; return its failure unless that was returned before.

        Args:
            local_rank: The worker.
            exit_code: Its exit code, where no signal ended it.
            signal: Name of the signal that ended it.
            tail: The last lines of its log.
            is_out_of_memory: The kernel has killed processes of this node for want of memory.
        """
        worker = self._workers[local_rank]
        is_stopped = self._kill_at is not None and signal in ("SIGTERM", "SIGKILL")
        outcome = self._make(worker, exit_code=exit_code, signal=signal, is_stopped=is_stopped, tail=tail)
        if is_out_of_memory and signal == "SIGKILL" and not is_stopped:
            outcome = replace(outcome, failure_class="out_of_memory")
        worker.outcome = outcome
        return worker.outcome if worker.outcome.is_failure and not worker.was_told else None

    def lose_all(self, message: str) -> Outcome:
        """Take that the forkserver is gone, and every worker with it."""
        for worker in self._workers.values():
            if worker.outcome is None:
                worker.outcome = self._make(worker, exit_code=None, signal="SIGKILL", is_stopped=True)
        return Outcome(node_rank=self._node_rank, host=self._host, message=message, failure_class="exception")

    def stop(self, *, now: float, grace_s: float) -> None:
        """Ask every worker to end, and set the time at which those left are killed."""
        if not self._workers:
            return
        if self._kill_at is None:
            self._signal_workers("SIGTERM")
        self._kill_at = now + grace_s if self._kill_at is None else min(self._kill_at, now + grace_s)

    def tick(self, now: float) -> None:
        """Kill what is left when its time is up."""
        if self.kill_at is not None and now >= self.kill_at:
            self._is_killed = True
            self._signal_workers("SIGKILL")

    def _make(
        self,
        worker: _Worker,
        *,
        exit_code: int | None,
        signal: str | None,
        is_stopped: bool = False,
        tail: Sequence[str] = (),
    ) -> Outcome:
        spec, words = worker.spec, worker.words
        is_bad = bool(words) or signal is not None or exit_code != 0
        lines = tuple(words.get("traceback") or ()) or tuple(tail)[-_MAX_TAIL_LINES:]
        return Outcome(
            node_rank=spec.node_rank,
            host=self._host,
            global_rank=spec.global_rank,
            local_rank=spec.local_rank,
            pid=worker.pid,
            exit_code=exit_code,
            signal=signal,
            exception=words.get("exception"),
            message=words.get("message"),
            log=spec.log,
            last_lines=lines if is_bad and not is_stopped else (),
            is_stopped=is_stopped,
        )
