"""Lightning Trainers in code that says nothing of stopping and going on."""

import json
import os
import time

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader


def note_step():
    """Stand where a test counts steps."""


class Model(LightningModule):
    """Trains on numbers that follow from the step and the rank, so that all ends can be compared to the bit."""

    def __init__(self, seconds=0.0, values=8):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(values, 1)
        self.seconds = seconds

    def training_step(self, batch, batch_idx):
        note_step()
        time.sleep(self.seconds)
        numbers = torch.Generator().manual_seed(1000 * self.global_step + self.global_rank)
        loss = self.layer(torch.rand(4, self.layer.in_features, generator=numbers)).pow(2).mean()
        self.log("loss", loss)
        if self.global_step < 500:
            print("step", self.global_step, "epoch", self.current_epoch, "batch", batch_idx)
        return loss

    def validation_step(self, batch, batch_idx):
        time.sleep(self.seconds)
        self.log("val", float(self.current_epoch))

    def on_validation_start(self):
        print("validates", self.global_step)

    def train_dataloader(self):
        return DataLoader(torch.arange(40.0), batch_size=4 // self.trainer.world_size)

    def val_dataloader(self):
        return DataLoader(torch.arange(4.0))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 7), "interval": "step"},
        }


def make_trainer(**words):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    return Trainer(accelerator="cpu", **{"enable_checkpointing": False, "max_epochs": 3, **quiet, **words})


def tell(trainer, model, name="end"):
    state = trainer.optimizers[0].state_dict()["state"][0] if trainer.optimizers else {}
    end = {
        "name": name,
        "weights": [round(float(value), 9) for value in model.layer.weight.detach().flatten()],
        "step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "optimizer_steps": int(state.get("step", -1)),
    }
    print(json.dumps(end))


def one_fit(seconds=0.0, **words):
    model = Model(seconds)
    trainer = make_trainer(**words)
    trainer.fit(model)
    tell(trainer, model)


def slow_at_first(attempt):
    """Leave time to stop the first attempt."""
    one_fit(0.0 if attempt else 0.5, max_epochs=-1, max_steps=100)


def two_fits(seconds=0.0):
    first, second = Model(seconds), Model(seconds, values=4)
    for name, model, epochs in (("first", first, 2), ("second", second, 3)):
        trainer = make_trainer(max_epochs=epochs)
        trainer.fit(model)
        tell(trainer, model, name)


def stops_early(seconds=0.0):
    """Fit until there is nothing to gain, which is after two epochs, and then once more."""
    model = Model(seconds)
    trainer = make_trainer(max_epochs=50, callbacks=[EarlyStopping("val", patience=1, mode="min")])
    trainer.fit(model)
    tell(trainer, model, "first")
    one_fit(seconds)


def from_checkpoint(path, seconds=0.0):
    model = Model(seconds)
    trainer = make_trainer()
    trainer.fit(model, ckpt_path=path)
    tell(trainer, model)


def keeps_own(folder, fails_in=None):
    """Save every 4 steps by a callback of the person's own, and die in a step."""
    model = Model()
    if fails_in is not None:
        step = model.training_step
        model.training_step = lambda *words: os._exit(9) if model.global_step == fails_in else step(*words)
    checkpoints = ModelCheckpoint(folder, every_n_train_steps=4, save_top_k=1, save_last=True)
    trainer = make_trainer(enable_checkpointing=True, callbacks=[checkpoints])
    trainer.fit(model)
    tell(trainer, model)


def says_callbacks():
    print(json.dumps([type(callback).__name__ for callback in Trainer(accelerator="cpu", logger=False).callbacks]))


def by_other_package():
    """Train with the package that holds the same Trainer under its older name."""
    from pytorch_lightning import Trainer as OtherTrainer
    from pytorch_lightning.demos.boring_classes import BoringModel

    class Told(BoringModel):
        def training_step(self, batch, batch_idx):
            note_step()
            print("step", self.global_step)
            return super().training_step(batch, batch_idx)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "limit_val_batches": 0}
    OtherTrainer(accelerator="cpu", max_steps=9, **quiet).fit(Told())
