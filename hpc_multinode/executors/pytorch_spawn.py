"""Strategy ``pytorch_spawn``: torch's process group is ready before the work is called."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hpc_multinode.executors.base import RunWorkExecutor

if TYPE_CHECKING:
    from hpc_multinode.context import WorkerContext


class PyTorchSpawnExecutor(RunWorkExecutor):
    """Sets the device, then makes the default process group from ``MASTER_ADDR`` and ``MASTER_PORT``."""

    def setup(self, context: WorkerContext) -> None:
        """Join the process group; the backend is nccl where there are GPUs, else gloo, unless one is given."""
        import torch  # noqa: PLC0415 - never where the launcher itself runs
        import torch.distributed as dist  # noqa: PLC0415

        arguments: dict[str, Any] = {}
        has_gpu = torch.cuda.is_available()
        if has_gpu:
            # Before the group is made: NCCL takes the current device, and would else take 0 in every worker.
            # Modulo, because a site may show each process its own device only.
            torch.cuda.set_device(context.local_rank % torch.cuda.device_count())
        if self.options.timeout_s is not None:
            arguments["timeout"] = timedelta(seconds=self.options.timeout_s)
        dist.init_process_group(
            backend=self.options.backend or ("nccl" if has_gpu else "gloo"),
            init_method="env://",
            rank=context.global_rank,
            world_size=context.world_size,
            **arguments,
        )
        if dist.get_backend() == "gloo":
            # It connects all pairs at once; a work that returns at once would leave while others still connect.
            dist.barrier()

    def teardown(self, context: WorkerContext) -> None:
        """Leave the process group, unless the work has done so itself."""
        import torch.distributed as dist  # noqa: PLC0415

        del context
        if dist.is_initialized():
            dist.destroy_process_group()
