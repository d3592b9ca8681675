"""Strategies ``lite`` and ``lightning``: a Fabric or Trainer of the person's own finds the world that we started.

Both find torchrun's variables and start no processes themselves. The counts of nodes and devices, which they ask for
on top of that, have variables of their own, so code that names neither gets the right ones. Nothing is patched.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from hpc_multinode.executors.base import RunWorkExecutor

if TYPE_CHECKING:
    from hpc_multinode.context import WorkerContext


class _WorldFromVariables(RunWorkExecutor):
    prefix: ClassVar[str]

    def setup(self, context: WorkerContext) -> None:
        """Set the counts that stand in for ``num_nodes`` and ``devices`` where the person gives none."""
        os.environ[f"{self.prefix}_NUM_NODES"] = str(context.num_nodes)
        os.environ[f"{self.prefix}_DEVICES"] = str(context.local_world_size)


class LiteExecutor(_WorldFromVariables):
    """For code that builds a ``lightning.fabric.Fabric``.

    Source:
        lightning.fabric.connector: ``LT_NUM_NODES``, ``LT_DEVICES``.
    """

    prefix = "LT"


class LightningExecutor(_WorldFromVariables):
    """For code that builds a ``lightning.pytorch.Trainer``.

    Source:
        lightning.pytorch.utilities.argparse: ``PL_TRAINER_NUM_NODES``, ``PL_TRAINER_DEVICES``.
    """

    prefix = "PL_TRAINER"
