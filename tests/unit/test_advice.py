"""One useful next step for each kind of failure."""

from __future__ import annotations

from typing import Any

import pytest

from hpc_multinode.advice import advise
from hpc_multinode.report import Outcome


def make_cause(**fields: Any) -> Outcome:
    """Return the outcome of a worker that failed."""
    return Outcome(**{"node_rank": 0, "host": "n0", "global_rank": 0, "local_rank": 0, **fields})


@pytest.mark.parametrize(
    ("exception", "message", "word"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", "batch size"),
        ("ModuleNotFoundError", "No module named 'timm'", "cluster.python"),
        ("RuntimeError", "To use Fabric with more than one device, you must call `.launch()`", "strategy.fabric_cli"),
        ("ValueError", "You set `devices=1` ..., does not match the world size (4).", "num_nodes and devices"),
        ("ValueError", "Default process group has not been initialized, please call init_process_group.",
         "strategy=pytorch_spawn"),
        ("DistBackendError", "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO)", "NCCL_DEBUG"),
        ("DistNetworkError", "failed to listen, EADDRINUSE", "launch.main_port"),
        ("OSError", "[Errno 28] No space left on device", "make room"),
        ("KeyError", "'lr'", "mend the work"),
    ],
)  # fmt: skip
def test_exception(exception: str, message: str, word: str) -> None:
    """What an exception says leads to the step that helps."""
    assert word in advise(make_cause(exception=exception, message=message, exit_code=1), "exception")


def test_spawning_strategy_of_lightning() -> None:
    """A strategy that starts processes of its own is known by its frames, and ddp is named."""
    lines = ('  File "lightning/pytorch/strategies/launchers/multiprocessing.py", line 173', "EADDRINUSE")
    cause = make_cause(exception="ProcessRaisedException", message="", exit_code=1, last_lines=lines)
    assert 'strategy="ddp"' in advise(cause, "exception")


@pytest.mark.parametrize(
    ("failure_class", "word"),
    [("out_of_memory", "resources.mem_gb"), ("lost_node", "the node"), ("usage", "above"), ("rendezvous", "above")],
)
def test_class(failure_class: str, word: str) -> None:
    """Where the kind is known, its text does not matter."""
    assert word in advise(make_cause(signal="SIGKILL"), failure_class)


def test_kill_without_a_reason() -> None:
    """SIGKILL from nobody we know is mostly the kernel's."""
    assert "memory" in advise(make_cause(signal="SIGKILL"), "signal")


def test_watchdog() -> None:
    """A collective that timed out is somebody else's fault, and the logs tell whose."""
    lines = ("[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5) ran for 600000 milliseconds",)
    assert "strategy.timeout_s" in advise(make_cause(signal="SIGABRT", last_lines=lines), "signal")
