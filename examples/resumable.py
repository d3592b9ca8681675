"""A loop that is stopped and goes on: saves when the run is to end soon, and the next attempt starts where that was.

Run it with: python -m hpc_multinode strategy=pytorch_spawn work.target=examples/resumable.py:run requeue.enabled=true
The five lines that make it so are marked. Needs scikit-learn (pip install hpc_multinode[examples]).
"""

import hashlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hpc_multinode
from hpc_multinode.context import WorkerContext

BATCH = 64


def run(context: WorkerContext, epochs: int = 10, save_every: int = 20, pause_s: float = 0.0) -> str:
    """Train on handwritten digits and return a digest of the trained weights, the same however often it was stopped.

    Args:
        context: Who this worker is; the run folder is the same in every attempt.
        epochs: How often all images are seen.
        save_every: Steps between two saves, for a node that is lost without a word.
        pause_s: Seconds to wait in each step, so that there is time to stop it.
    """
    data, labels = load_digits(return_X_y=True)
    images, numbers = torch.tensor(data / 16.0, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    saved = Path(context.run_dir) / "state.pt"
    first = load(saved, model, optimizer)  # 1: where an earlier attempt has left it
    agree_to_stop = hpc_multinode.StopAgreement()  # 2: all ranks stop in the same step
    per_epoch = len(images) // BATCH
    loss = torch.zeros(())
    for step in range(first, epochs * per_epoch):
        # What a step sees follows from its number alone.
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(step // per_epoch))
        batch = order[step % per_epoch * BATCH :][:BATCH].chunk(context.world_size)[context.global_rank]
        loss = nn.functional.cross_entropy(model(images[batch]), numbers[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(pause_s)
        if context.global_rank == 0:
            print("step", step)
        is_stop = agree_to_stop()  # 3: an all-reduce about once a second, nothing in the other steps
        if is_stop or (step + 1) % save_every == 0:
            save(saved, model, optimizer, step + 1, context)  # 4: on rank 0, and told as progress
        if is_stop:
            return ""  # 5: the job comes back, and the next attempt goes on

    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
    if context.global_rank == 0:
        print(f"done: loss {loss.item()!r}, weights {digest}")
    return digest


def load(saved: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load what an earlier attempt has saved, and return the step to go on with."""
    if not saved.exists():
        return 0
    state = torch.load(saved, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(saved: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int, context: WorkerContext) -> None:
    """Save in one move, so that a node that is lost in the middle leaves the last state whole."""
    if context.global_rank == 0:
        draft = saved.with_suffix(".draft")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, draft)
        draft.rename(saved)
        context.progress(step)
        print("saved", step)
    dist.barrier()  # nobody ends before it is there
