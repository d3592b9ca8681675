"""Real data: scikit-learn's handwritten digits, trained on every worker, the same result for every number of them.

Needs scikit-learn (pip install hpc_multinode[examples]). Run it with: python -m hpc_multinode experiment=digits
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel

GLOBAL_BATCH = 64


def run(world_size: int, global_rank: int, epochs: int = 20) -> float:
    """Train a small network and return its accuracy on images it has not seen.

    Every global batch is cut into one equal part for each worker, so the mean gradient, and with it the trained
    network, is the same whether one worker takes the whole batch or several share it.
    """
    if GLOBAL_BATCH % world_size:
        raise ValueError(f"the global batch of {GLOBAL_BATCH} cannot be cut into {world_size} equal parts")
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images / 16.0, labels, test_size=0.2, random_state=0, stratify=labels)
    # In double precision, so that the order of the sums makes no difference that could be seen.
    train_x, test_x = (torch.tensor(part, dtype=torch.float64) for part in split[:2])
    train_y, test_y = (torch.tensor(part) for part in split[2:])

    torch.manual_seed(0)
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).double().to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros((), dtype=torch.float64, device=device)
        batches = order[: len(order) // GLOBAL_BATCH * GLOBAL_BATCH].view(-1, GLOBAL_BATCH)
        for batch in batches:
            mine = batch.chunk(world_size)[global_rank]
            loss = nn.functional.cross_entropy(model(train_x[mine].to(device)), train_y[mine].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if global_rank == 0 and (epoch % 5 == 0 or epoch == epochs - 1):
            print(f"epoch {epoch}: mean loss {total.item() / len(batches) / world_size:.4f}")
    with torch.no_grad():
        accuracy = (network(test_x.to(device)).argmax(1).cpu() == test_y).double().mean().item()
    if global_rank == 0:
        print(f"accuracy {accuracy:.4f} on {len(test_y)} images, {world_size} workers")
    return accuracy
