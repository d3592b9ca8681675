"""Works that tell where they are."""

import json
import os
import sys

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def tell(
    world_size,
    node_rank,
    global_rank,
    local_rank,
    local_world_size,
    num_nodes,
    main_address,
    main_port,
    attempt,
    run_dir,
):
    told = {name: value for name, value in locals().items() if name != "told"}
    print(json.dumps({**told, "env": {name: os.environ.get(name) for name in NAMES}, "pid": os.getpid()}))


def tell_env(prefixes="", names=()):
    chosen = {n: v for n, v in os.environ.items() if n in names or (prefixes and n.startswith(tuple(prefixes)))}
    print(json.dumps(chosen))


def tell_process(context):
    import signal

    handlers = {s.name: str(signal.getsignal(s)) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)}
    print(json.dumps({"cwd": os.getcwd(), "argv": sys.argv, "path": sys.path[:2], "handlers": handlers}))


def tell_random(use_numpy=False):
    import random

    drawn = {"python": random.random()}
    if "torch" in sys.modules:
        import torch

        drawn["torch"] = torch.rand(1).item()
    if "numpy" in sys.modules:
        import numpy as np

        drawn["numpy"] = np.random.rand()
    print(json.dumps(drawn))


class Static:
    @staticmethod
    def run(global_rank, word="none"):
        print(json.dumps({"rank": global_rank, "word": word}))


class OfClass:
    name = "OfClass"

    @classmethod
    def run(cls, global_rank):
        print(json.dumps({"rank": global_rank, "word": cls.name}))


class Instance:
    def __init__(self, word):
        self.word = word

    def run(self, global_rank, context):
        print(json.dumps({"rank": global_rank, "word": self.word, "size": context.world_size}))
