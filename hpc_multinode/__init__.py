"""Run one PyTorch function on every GPU of a Slurm allocation.

Importing the package costs next to nothing: each public name is loaded when it is first asked for.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # as type checkers know it: typing itself takes milliseconds
if TYPE_CHECKING:
    from hpc_multinode.context import WorkerContext
    from hpc_multinode.errors import MultiNodeError
    from hpc_multinode.executors.base import RunWorkExecutor
    from hpc_multinode.multinode import (
        LiteMultiNode,
        MultiNode,
        PyTorchLightningMultiNode,
        PyTorchSpawnMultiNode,
        Run,
        RunFailedError,
    )
    from hpc_multinode.stopping import StopAgreement, report_progress, stop_requested

__version__ = "0.1.0"

__all__ = [
    "LiteMultiNode",
    "MultiNode",
    "MultiNodeError",
    "PyTorchLightningMultiNode",
    "PyTorchSpawnMultiNode",
    "Run",
    "RunFailedError",
    "RunWorkExecutor",
    "StopAgreement",
    "WorkerContext",
    "report_progress",
    "stop_requested",
]

_MODULES = {
    "MultiNodeError": "errors",
    "RunWorkExecutor": "executors.base",
    "StopAgreement": "stopping",
    "WorkerContext": "context",
    "report_progress": "stopping",
    "stop_requested": "stopping",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'multinode')}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
