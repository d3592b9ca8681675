"""A small executor of one's own: it times the work on every worker.

Run it with: python -m hpc_multinode strategy=pytorch_spawn strategy.executor=examples/timed_executor.py:TimedExecutor
"""

import time
from collections.abc import Callable
from typing import Any

from hpc_multinode import WorkerContext
from hpc_multinode.executors.pytorch_spawn import PyTorchSpawnExecutor


class TimedExecutor(PyTorchSpawnExecutor):
    """Does what ``pytorch_spawn`` does and prints how long the work took."""

    def run(self, work: Callable[[], Any], context: WorkerContext) -> Any:
        """Call the work once."""
        began = time.perf_counter()
        result = work()
        print(f"rank {context.global_rank}: the work took {time.perf_counter() - began:.2f} s")
        return result
