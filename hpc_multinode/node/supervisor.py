"""What becomes of one node's workers: a state machine without any I/O.

It is told what the forkserver sees, and answers with outcomes; the clock and the signals are handed in.
"""

from __future__ import annotations

import math
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
        self._asked_at: float | None = None
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._is_terminated = False
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
    def is_stopping(self) -> bool:
        """Say whether the workers have been asked or made to end."""
        return self._kill_at is not None

    @property
    def is_terminated(self) -> bool:
        """Say whether the workers have got SIGTERM."""
        return self._is_terminated

    @property
    def wake_at(self) -> float | None:
        """When ``tick`` is to be called, on the caller's clock in seconds; None where nothing is due."""
        if self._is_killed or self.is_over:
            return None
        return self._kill_at if self._term_at is None else self._term_at

    def start(self, specs: list[WorkerSpec]) -> None:
        """Note the workers that are about to start; those of an attempt before are forgotten."""
        self._workers = {spec.place.local_rank: _Worker(spec=spec) for spec in specs}
        self._asked_at = self._term_at = self._kill_at = None
        self._is_terminated = self._is_killed = False

    def note_pids(self, pids: Mapping[int, int]) -> None:
        """Note the pids that the forkserver tells."""
        for local_rank, pid in pids.items():
            self._workers[local_rank].pid = pid

    def log_of(self, local_rank: int) -> str:
        """Return the path of a worker's log."""
        return self._workers[local_rank].spec.log

    def has_spoken(self, local_rank: int) -> bool:
        """Say whether a worker has told its failure itself."""
        return bool(self._workers[local_rank].words)

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
        is_by_slurm: bool = False,
    ) -> Outcome | None:
        """Take that a worker's process has ended; return its failure unless that was returned before.

        Args:
            local_rank: The worker.
            exit_code: Its exit code, where no signal ended it.
            signal: Name of the signal that ended it.
            tail: The last lines of its log.
            is_out_of_memory: The kernel has killed processes of this node for want of memory.
            is_by_slurm: Slurm has sent its signal to this node's processes, the workers among them.
        """
        worker = self._workers[local_rank]
        is_stopped = (self.is_stopping or is_by_slurm) and signal in ("SIGTERM", "SIGKILL")
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
        """Send SIGTERM to every worker now, and SIGKILL to those left after ``grace_s`` seconds."""
        if not self._workers:
            return
        self._kill_at = min(self._kill_at or math.inf, now + grace_s)
        self._terminate()

    def ask(self, *, now: float, grace_s: float, is_at_once: bool = False) -> None:
        """Let the workers, which have been told, end by themselves.

        Args:
            now: The caller's clock, in seconds.
            grace_s: Seconds until SIGKILL; SIGTERM comes after half of them.
            is_at_once: SIGTERM comes now, because no worker listens for anything else.
        """
        if not self._workers or self._kill_at is not None:
            return
        self._asked_at = now
        self.set_grace(grace_s)
        if is_at_once:
            self._terminate()

    def hurry(self) -> None:
        """Send SIGTERM now, where it has not been sent; the time of SIGKILL stays."""
        if self._workers:
            self._terminate()

    def set_grace(self, grace_s: float) -> None:
        """Change the grace, in seconds from when the workers were asked."""
        if self._asked_at is None or self._is_killed:
            return
        self._kill_at = self._asked_at + grace_s
        if not self._is_terminated:
            self._term_at = self._asked_at + grace_s / 2

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.is_over:
            return
        if self._term_at is not None and now >= self._term_at:
            self._terminate()
        if self._kill_at is not None and now >= self._kill_at and not self._is_killed:
            self._is_killed = True
            self._signal_workers("SIGKILL")

    def _terminate(self) -> None:
        self._term_at = None
        if not self._is_terminated:
            self._is_terminated = True
            self._signal_workers("SIGTERM")

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
            node_rank=spec.place.node_rank,
            host=self._host,
            global_rank=spec.place.global_rank,
            local_rank=spec.place.local_rank,
            pid=worker.pid,
            exit_code=exit_code,
            signal=signal,
            exception=words.get("exception"),
            message=words.get("message"),
            log=spec.log,
            last_lines=lines if is_bad and not is_stopped else (),
            is_stopped=is_stopped,
        )
