"""A Hydra app of one's own, run as it is on every worker: the launcher's words come first, the app's own behind ``--``.

Run it with: python -m hpc_multinode strategy=script work.target=examples/hydra_app.py nodes=2 -- model.width=16 steps=5
"""

import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# In an app of several files this is conf/app.yaml. The ranks share one folder, so Hydra makes none for each of them.
APP = {
    "defaults": ["_self_", {"override hydra/job_logging": "stdout"}],
    "hydra": {"run": {"dir": "."}, "output_subdir": None},
    "model": {"width": 32},
    "lr": 0.01,
    "steps": 20,
}
ConfigStore.instance().store(name="app", node=APP)


@hydra.main(version_base=None, config_path=None, config_name="app")
def main(config: DictConfig) -> None:
    """Fit a small network to ones."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.manual_seed(dist.get_rank())
    network = nn.Sequential(nn.Linear(8, config.model.width), nn.ReLU(), nn.Linear(config.model.width, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    for _ in range(config.steps):
        loss = (model(torch.randn(64, 8)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    size = f"width {config.model.width}, {config.steps} steps"
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {size}, loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
