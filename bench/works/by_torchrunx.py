"""The first all-reduce through torchrunx, from the first node of an allocation: ``by_torchrunx.py WORKERS``."""

from __future__ import annotations

import sys

import torchrunx  # type: ignore[import-not-found] # only in the environment of the peers

from bench.works.reduce import reduce_once

if __name__ == "__main__":
    torchrunx.Launcher(hostnames="slurm", workers_per_host=int(sys.argv[1]), backend="gloo").run(reduce_once)
