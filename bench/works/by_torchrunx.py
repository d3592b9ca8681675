"""The first all-reduce through torchrunx, from the first node of an allocation: ``by_torchrunx.py WORKERS``.

torchrunx reaches the other nodes by SSH, which the nodes of the test cluster do not have; here a step of srun's
takes its place, which costs less than an SSH connection.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import torchrunx  # type: ignore[import-not-found] # only in the environment of the peers
import torchrunx.launcher  # type: ignore[import-not-found]


def execute_by_srun(command: str, hostname: str, **_: Any) -> tuple[str, str]:  # noqa: ANN401 - torchrunx's own
    """Start a command on a node of the allocation and return at once."""
    step = ("srun", "--overlap", "--cpu-bind=none", "--nodes=1", "--ntasks=1", f"--nodelist={hostname}")
    before = () if hostname == socket.gethostname() else step
    subprocess.Popen([*before, "bash", "-c", command])
    return "", ""


def reduce_once_for(out: str) -> None:
    """Reduce once; the workers do not get the launcher's environment."""
    from bench.works.reduce import reduce_once  # noqa: PLC0415 - in the workers, as everybody's torch

    os.environ["BENCH_OUT"] = out
    reduce_once()


if __name__ == "__main__":
    torchrunx.launcher.execute_command = execute_by_srun
    hosts = subprocess.run(["scontrol", "show", "hostnames"], check=True, capture_output=True, text=True).stdout.split()
    launcher = torchrunx.Launcher(hostnames=hosts, workers_per_host=int(sys.argv[1]), backend="gloo")
    launcher.run(reduce_once_for, os.environ["BENCH_OUT"])
