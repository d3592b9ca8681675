"""Strategies ``lite`` and ``lightning``: a Fabric or Trainer of the person's own finds the world that we started.

Both find torchrun's variables and start no processes themselves. The counts of nodes and devices, which they ask for
on top of that, have variables of their own, so code that names neither gets the right ones. Nothing is patched.
"""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
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


def _tell_of_other_counts(context: WorkerContext) -> None:
    """Say once in the log where a Fabric is built with counts that the run's own ones override."""
    try:
        tree = ast.parse(Path(sys.argv[0]).read_bytes())
    except (OSError, SyntaxError, ValueError):  # no file of its own; what is wrong with it, its import tells
        return
    ours = {"num_nodes": context.num_nodes, "devices": context.local_world_size}
    for call in ast.walk(tree):
        if not (
            isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("Fabric", "LightningLite")
        ):
            continue
        for keyword in call.keywords:
            value = getattr(keyword.value, "value", None)
            if isinstance(value, int) and keyword.arg in ours and value != ours[keyword.arg]:
                print(  # noqa: T201 - the log is our stdout
                    f"hpc_multinode: {sys.argv[0]}:{call.lineno} asks for {keyword.arg}={value}; "
                    f"the run has {keyword.arg}={ours[keyword.arg]}, and that counts"
                )


class LiteExecutor(_WorldFromVariables):
    """For code that builds a ``lightning.fabric.Fabric``.

    Source:
        lightning.fabric.connector: ``LT_NUM_NODES``, ``LT_DEVICES``.
    """

    prefix = "LT"

    def setup(self, context: WorkerContext) -> None:
        """Set the counts, and say where the code asks for others; with ``fabric_cli`` a Fabric launches itself."""
        super().setup(context)
        if self.options.fabric_cli:
            os.environ["LT_CLI_USED"] = "1"
        if context.global_rank == 0:
            _tell_of_other_counts(context)


class LightningExecutor(_WorldFromVariables):
    """For code that builds a ``lightning.pytorch.Trainer``.

    Source:
        lightning.pytorch.utilities.argparse: ``PL_TRAINER_NUM_NODES``, ``PL_TRAINER_DEVICES``.
    """

    prefix = "PL_TRAINER"
