# ruff: noqa: T201 - the verbs talk to a person
"""The verbs: ``up``, ``status``, ``shell``, ``down`` and ``record``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm_cluster.cluster import SlurmCluster
from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.record_env import record_all
from tests.slurm_cluster.settings import USER_NAME, ClusterSettings, SlurmVersion, Tracker, default_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str]) -> int:
    """Run one verb and return its exit code."""
    options = _parse(argv)
    verbs: dict[str, Callable[[argparse.Namespace], int]] = {
        "up": _up,
        "status": _status,
        "shell": _shell,
        "down": _down,
        "record": _record,
    }
    try:
        return verbs[options.verb](options)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.slurm_cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start a cluster")
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--gpus", type=int, default=2, help="fake GPUs of a node")
    up.add_argument("--cpus", type=int, default=8, help="CPUs that a node claims to have")
    up.add_argument("--mem-mb", type=int, default=16000, help="memory that a node claims to have")
    up.add_argument("--tracker", choices=[tracker.value for tracker in Tracker], default="auto")
    up.add_argument("--slurm", choices=[version.value for version in SlurmVersion], default="22.05", metavar="VERSION")
    up.add_argument("--without-dbd", action="store_true", help="no accounting: sacct is disabled")
    up.add_argument("--shared-tmp", action="store_true", help="one /tmp for all hosts")
    up.add_argument("--conf", action="append", default=[], metavar="LINE", help="a line for slurm.conf")
    up.add_argument(
        "--reach", action="append", type=Path, default=[], metavar="DIR", help="a folder that jobs may read"
    )
    status = verbs.add_parser("status", help="show nodes and jobs")
    shell = verbs.add_parser("shell", help="open a shell on the login side, or run a command there")
    shell.add_argument("command", nargs=argparse.REMAINDER)
    down = verbs.add_parser("down", help="stop the cluster and remove everything of it")
    record = verbs.add_parser("record", help="write environments of real job steps to tests/data/env")
    record.add_argument("--slurm", choices=[version.value for version in SlurmVersion], default="22.05")
    for verb in (up, status, shell, down):
        verb.add_argument("--root", type=lambda text: Path(text).absolute(), default=default_root(), help="its folder")
    return parser.parse_args(argv)


def _up(options: argparse.Namespace) -> int:
    plain = ClusterSettings(root=options.root)
    settings = ClusterSettings(
        root=options.root,
        nodes=options.nodes,
        gpus=options.gpus,
        cpus=options.cpus,
        mem_mb=options.mem_mb,
        tracker=Tracker(options.tracker),
        with_dbd=not options.without_dbd,
        version=SlurmVersion(options.slurm),
        private_tmp=not options.shared_tmp,
        extra_conf=tuple(options.conf),
        reachable=(*plain.reachable, *(path.resolve() for path in options.reach)),
    )
    started = time.monotonic()
    cluster = SlurmCluster(settings)
    cluster.up()
    print(f"Slurm {settings.version.value} with {settings.nodes} nodes, up after {time.monotonic() - started:.1f} s")
    print(f"there you are {USER_NAME} in {cluster.shared}, which goes when the cluster goes")
    suffix = "" if options.root == default_root() else f" --root {options.root}"
    print(f"python -m tests.slurm_cluster shell{suffix} [-- COMMAND]\npython -m tests.slurm_cluster down{suffix}")
    return 0


def _status(options: argparse.Namespace) -> int:
    print(_find(options.root).status(), end="")
    return 0


def _shell(options: argparse.Namespace) -> int:
    cluster = _find(options.root)
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    env = {"TERM": os.environ.get("TERM", "dumb"), "PS1": r"\u@\h:\w\$ "}
    command = cluster.user_command(words or ["bash", "--norc", "-i"], env=env)
    sys.stdout.flush()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command; nsenter(1) would die of it.
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def _down(options: argparse.Namespace) -> int:
    SlurmCluster(ClusterSettings(root=options.root)).down()
    print(f"the cluster in {options.root} is gone")
    return 0


def _record(options: argparse.Namespace) -> int:
    record_all(SlurmVersion(options.slurm))
    return 0


def _find(root: Path) -> SlurmCluster:
    cluster = SlurmCluster.find(root)
    if cluster is None:
        raise ClusterError(what="no cluster is up", found=f"root = {root}", fix="python -m tests.slurm_cluster up")
    return cluster


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
