"""Works that look at what frameworks and the operating system make of a worker."""

import json
import os
import sys
from pathlib import Path


def fabric_with_other_counts():
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", strategy="ddp", devices=1, num_nodes=1)
    fabric.launch()
    print(json.dumps({"world": fabric.world_size}))


def fabric_that_never_launches():
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", strategy="ddp")
    print(json.dumps({"sum": float(fabric.all_reduce(1.0, reduce_op="sum"))}))


def _trainer(**words):
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringModel

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    Trainer(accelerator="cpu", max_steps=2, **quiet, **words).fit(BoringModel())


def trainer_with_other_counts():
    _trainer(strategy="ddp", devices=1, num_nodes=1)


def trainer_that_spawns():
    _trainer(strategy="ddp_spawn")


class Numbers:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


def loaders():
    import multiprocessing

    from torch.utils.data import DataLoader

    told = {"at_start": multiprocessing.get_start_method(allow_none=True)}
    multiprocessing.set_start_method("spawn")
    for method in ("fork", "spawn", "forkserver"):
        told[method] = sum(int(n) for n in DataLoader(Numbers(), num_workers=1, multiprocessing_context=method))
    told["default"] = sum(int(n) for n in DataLoader(Numbers(), num_workers=1))
    print(json.dumps(told))


def parent_threads():
    """The forkserver is the parent, and has just forked."""
    tasks = [
        Path(f"/proc/{os.getppid()}/task/{task}/comm").read_text() for task in os.listdir(f"/proc/{os.getppid()}/task")
    ]
    print(json.dumps({"threads": len(tasks), "numpy": "numpy" in sys.modules, "torch": "torch" in sys.modules}))


def process():
    own = Path("/proc/self")
    print(
        json.dumps(
            {
                "command": own.joinpath("cmdline").read_bytes().rstrip(b"\0").decode(),
                "cpus": sorted(os.sched_getaffinity(0)),
                "has_variable": "SPT_NOENV" in os.environ,
                "environ_is_whole": b"PATH=" in own.joinpath("environ").read_bytes(),
            }
        )
    )


def flood(megabytes):
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        sys.stdout.write(line)


if __name__ == "__main__":
    loaders()
