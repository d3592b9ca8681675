"""Works that train, and tell whether all ranks agree."""

import json

import torch
import torch.distributed as dist
from torch import nn


def _agree(model):
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    all_flat = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(all_flat, flat)
    return all(torch.equal(flat, other) for other in all_flat)


def _tell(losses, agreed, world_size):
    total = torch.tensor(losses)
    dist.all_reduce(total)
    print(json.dumps({"agreed": agreed, "losses": [x / world_size for x in total.tolist()], "world_size": world_size}))


def ddp(world_size, global_rank):
    torch.manual_seed(global_rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, agreed = [], True
    for _ in range(50):
        loss = nn.functional.mse_loss(model(torch.randn(64, 32)), torch.ones(64, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        agreed = agreed and _agree(model)
    _tell(losses, agreed, world_size)


def group():
    print(json.dumps({"rank": dist.get_rank(), "size": dist.get_world_size(), "backend": dist.get_backend()}))


def _fit(fabric):
    torch.manual_seed(fabric.global_rank)
    model = nn.Linear(32, 2)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    losses, agreed = [], True
    for _ in range(50):
        output = model(torch.randn(64, 32))
        loss = nn.functional.mse_loss(output, torch.ones_like(output))
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        agreed = agreed and _agree(model)
    _tell(losses, agreed, fabric.world_size)


def fabric():
    from lightning.fabric import Fabric

    fabric = Fabric(strategy="ddp", precision="bf16-mixed")
    fabric.launch()
    _fit(fabric)


def lite():
    from hpc_multinode.lite import LightningLite

    _fit(LightningLite(strategy="ddp", precision="bf16"))


def trainer(run_dir):
    import lightning as L
    from lightning.pytorch.demos.boring_classes import BoringModel

    class Watching(BoringModel):
        losses, agreed = [], True

        def training_step(self, batch, batch_idx):
            step = super().training_step(batch, batch_idx)
            self.losses.append(step["loss"].item())
            return step

        def on_train_batch_start(self, batch, batch_idx):
            self.agreed = self.agreed and _agree(self)

    model = Watching()
    trainer = L.Trainer(
        max_epochs=3,
        strategy="ddp",
        default_root_dir=run_dir,
        enable_progress_bar=False,
        limit_val_batches=0,
        logger=False,
    )
    trainer.fit(model)
    losses = torch.tensor(model.losses)
    dist.all_reduce(losses)
    mean = (losses / trainer.world_size).tolist()
    print(json.dumps({"agreed": model.agreed, "losses": mean, "world_size": trainer.world_size}))
