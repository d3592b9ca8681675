"""What an agent notes of its node."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
import time
import types
from typing import TYPE_CHECKING

from hpc_multinode.node.local import make_local_context
from hpc_multinode.node.sampling import LogSizes, Usage, sample_node
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from hpc_multinode.context import NodeContext


def make_node() -> NodeContext:
    """Return the place of the second of two nodes with two workers each."""
    return make_local_context(
        node_rank=1, num_nodes=2, local_world_size=2, devices=(), main_address=None, hostname="h", identity=("x",)
    )


def test_sizes_are_noted_when_they_change(tmp_path: Path) -> None:
    """Only logs that have grown are noted, by global rank, in a file that is the person's alone."""
    folder = RunFolder(path=tmp_path)
    (tmp_path / "attempt-0").mkdir()
    sizes = LogSizes(folder, make_node(), 0)
    sizes.write_new(10.0)
    (tmp_path / "attempt-0/rank2.log").write_text("abc\n")
    sizes.write_new(10.5)
    sizes.write_new(11.0)
    (tmp_path / "attempt-0/rank3.log").write_text("x\n")
    sizes.write_new(11.5)
    path = tmp_path / "attempt-0/node1.sizes"
    assert path.read_text() == "10.50 2=4\n11.50 3=2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_use_of_processes_is_measured() -> None:
    """CPU time between two looks and memory are those of this process and its children."""
    usage = Usage()
    first = usage.measure()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    second = usage.measure()
    assert second["cpus"] > 0
    assert first["memory_bytes"] > 1 << 20
    assert first["processes"] >= 1
    json.dumps(second)


def test_notes_end_with_the_agent(tmp_path: Path) -> None:
    """What was written last is noted when the agent ends, also within the first half second."""
    folder = RunFolder(path=tmp_path)
    (tmp_path / "attempt-3").mkdir()
    (tmp_path / "attempt-3/rank2.log").write_text("abc\n")

    async def run() -> None:
        task = asyncio.create_task(sample_node(folder, make_node(), read_attempt=lambda: 3))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert (tmp_path / "attempt-3/node1.sizes").read_text().endswith(" 2=4\n")


def test_folder_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    """A work that removes the run folder, or a full disk, does not end the notes' thread with a traceback."""
    folder = RunFolder(path=tmp_path / "gone")

    async def run() -> None:
        task = asyncio.create_task(sample_node(folder, make_node(), read_attempt=lambda: 0))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert list(tmp_path.iterdir()) == []


def test_gpus_are_measured_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use and memory of each GPU come from NVML; one that does not answer is left out."""

    class Error(Exception):
        pass

    def read_use(handle: int) -> types.SimpleNamespace:
        if handle == 1:
            raise Error
        return types.SimpleNamespace(gpu=80)

    fake = types.SimpleNamespace(
        NVMLError=Error,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda _: types.SimpleNamespace(used=3, total=9),
        nvmlDeviceGetUtilizationRates=read_use,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    gpus = Usage().measure()["gpus"]
    assert gpus == [{"index": 0, "use_percent": 80, "memory_bytes": 3, "memory_total_bytes": 9}]
