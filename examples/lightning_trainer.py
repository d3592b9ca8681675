"""A Lightning Trainer that names no nodes and no devices. Demo of ``strategy=lightning``."""

import lightning as L
from lightning.pytorch.demos.boring_classes import BoringModel


def run(run_dir: str, max_epochs: int = 2) -> None:
    """Fit Lightning's own test model; checkpoints and logs go to the run folder."""
    trainer = L.Trainer(
        max_epochs=max_epochs,
        strategy="ddp",
        default_root_dir=run_dir,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(BoringModel())
    print(
        f"rank {trainer.global_rank} of {trainer.world_size} on node {trainer.node_rank}: "
        f"{trainer.global_step} steps in {trainer.current_epoch} epochs"
    )
