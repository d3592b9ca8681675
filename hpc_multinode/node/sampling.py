"""What an agent notes beside its logs: how long they are, and what the node's processes use.

Sizes, every half second in which a log has grown, let ``logs`` merge all ranks' lines in order of time. Use of CPUs,
memory and GPUs, every ten seconds and later more rarely, is what ``report --html`` shows. A thread of its own does it,
because a file system that hangs must hold up nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.layout import name_node_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.context import NodeContext
    from hpc_multinode.runs import RunFolder

_SIZES_EVERY_S = 0.5
# Use is measured every ten seconds, in a long run more rarely: a week on a thousand nodes has to be drawn as well.
_USE_EVERY_S = 10.0
_USE_EVERY_AT_MOST_S = 300.0
_USE_PART = 200
# The first is taken early: many runs are short.
_FIRST_USE_S = 2.0
_LAST_S = 0.5


async def sample_node(folder: RunFolder, node: NodeContext, *, read_attempt: Callable[[], int | None]) -> None:
    """Note sizes and use until cancelled.

    Args:
        folder: The run's folder.
        node: This node's place.
        read_attempt: Returns the attempt that runs now, or None.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_sample, args=(folder, node, read_attempt, ended), daemon=True)
    thread.start()
    try:
        await asyncio.Event().wait()
    finally:
        ended.set()
        thread.join(_LAST_S)


def _sample(
    folder: RunFolder, node: NodeContext, read_attempt: Callable[[], int | None], ended: threading.Event
) -> None:
    sizes: LogSizes | None = None
    usage, uses = Usage(), None
    began = time.monotonic()
    use_at = began + _FIRST_USE_S
    is_last = False
    while not is_last:
        is_last = ended.wait(_SIZES_EVERY_S)
        attempt = read_attempt()
        if attempt is None:
            continue
        with contextlib.suppress(OSError):  # a full disk: a run goes on without its notes
            if sizes is None or uses is None or sizes.attempt != attempt:
                sizes, uses = LogSizes(folder, node, attempt), _Notes(folder, attempt, node, "samples")
            sizes.write_new(time.time())
            if time.monotonic() >= use_at and not is_last:
                now = time.monotonic()
                use_at = now + min(_USE_EVERY_AT_MOST_S, max(_USE_EVERY_S, (now - began) / _USE_PART))
                uses.write(json.dumps(usage.measure()))


class LogSizes:
    """Notes the sizes of this node's rank logs of one attempt, each time that one has grown.

    A line is the time in seconds since 1970 and ``rank=size`` for each log that has grown.

    Args:
        folder: The run's folder.
        node: This node's place.
        attempt: Which attempt.
    """

    def __init__(self, folder: RunFolder, node: NodeContext, attempt: int) -> None:
        self.attempt = attempt
        self._notes = _Notes(folder, attempt, node, "sizes")
        ranks = node.global_ranks
        self._logs = {rank: folder.rank_log(attempt, rank) for rank in ranks}
        self._sizes = dict.fromkeys(self._logs, 0)

    def write_new(self, now: float) -> None:
        """Note what has grown since the last time.

        Args:
            now: Seconds since 1970.
        """
        grown = {}
        for rank, path in self._logs.items():
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                if size != self._sizes[rank]:
                    grown[rank] = self._sizes[rank] = size
        if grown:
            self._notes.write(f"{now:.2f} " + " ".join(f"{rank}={size}" for rank, size in grown.items()))


class Usage:
    """What this process and all below it use."""

    def __init__(self) -> None:
        self._cpu_s: dict[int, float] = {}
        self._measured_at: float | None = None
        self._gpus: list[Any] | None = None

    def measure(self) -> dict[str, Any]:
        """Return CPUs in use since the last time, memory in bytes, processes, and each GPU's use and memory."""
        import psutil  # noqa: PLC0415 - 30 ms, in a thread, after the start

        myself = psutil.Process()
        spent, private, shared, count = {}, 0, 0, 0
        for process in (myself, *myself.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times, memory = process.cpu_times(), process.memory_info()
                spent[process.pid] = times.user + times.system
                # Forked workers share what was imported before the fork: that is counted once.
                private += memory.rss - memory.shared
                shared = max(shared, memory.shared)
                count += 1
        now = time.monotonic()
        since = myself.create_time() - time.time() + now if self._measured_at is None else self._measured_at
        used = sum(max(0.0, seconds - self._cpu_s.get(pid, 0.0)) for pid, seconds in spent.items())
        self._cpu_s, self._measured_at = spent, now
        return {
            "time": datetime.now(timezone.utc).astimezone().isoformat(timespec="milliseconds"),
            "cpus": round(used / max(now - since, 0.01), 2),
            "memory_bytes": private + shared,
            "processes": count,
            "gpus": self._measure_gpus(),
        }

    def _measure_gpus(self) -> list[dict[str, Any]]:
        import pynvml  # noqa: PLC0415 - only where a run goes on for seconds

        if self._gpus is None:
            try:
                pynvml.nvmlInit()
                self._gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            except pynvml.NVMLError:  # no driver
                self._gpus = []
        found = []
        for index, handle in enumerate(self._gpus):
            with contextlib.suppress(pynvml.NVMLError):
                memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
                use = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
                found.append(
                    {
                        "index": index,
                        "use_percent": use,
                        "memory_bytes": int(memory.used),
                        "memory_total_bytes": int(memory.total),
                    }
                )
        return found


class _Notes:
    """A file beside this node's log that is kept open: to open it each time would burden a shared file system."""

    def __init__(self, folder: RunFolder, attempt: int, node: NodeContext, suffix: str) -> None:
        path = name_node_file(folder.attempt(attempt), node.node_rank, suffix)
        self._descriptor = folder.open_append(path)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def write(self, line: str) -> None:
        os.write(self._descriptor, line.encode() + b"\n")
