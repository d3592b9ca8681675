"""A Lightning Trainer's first all-reduce: before its first step. Under srun it is told nodes and devices."""

from __future__ import annotations

import sys
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.demos.boring_classes import BoringModel

from bench.works.probe import tell


class _Reducer(lightning.Callback):
    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        del trainer, pl_module
        dist.all_reduce(torch.ones(1))
        tell(dist.get_rank())


def fit(**places: Any) -> None:  # noqa: ANN401 - the Trainer's
    """Fit one step.

    Args:
        places: ``num_nodes`` and ``devices`` where nobody else tells the Trainer.
    """
    trainer = lightning.Trainer(
        accelerator="cpu",
        strategy="ddp",
        max_steps=1,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[_Reducer()],
        **places,
    )
    trainer.fit(BoringModel())


if __name__ == "__main__":
    fit(num_nodes=int(sys.argv[1]), devices=int(sys.argv[2]))
