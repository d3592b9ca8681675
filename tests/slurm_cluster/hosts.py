"""Hosts: namespaces with an init of their own, found again by their command line.

A host is known by its init's command line, which names this file's neighbour ``host_init.py`` and the host's
description below the cluster's root. So a cluster is found and stopped with no pid file, also after a killed ``up``,
and nobody else's process can be taken for one of ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tests.slurm_cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_INIT = Path(__file__).resolve().with_name("host_init.py")
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
_GONE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One running host.

    Attributes:
        name: Its host name.
        pid: The init's process number, on the machine.
    """

    name: str
    pid: int

    def command(self, argv: Sequence[str | Path], *, prefix: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs ``argv`` as root on this host."""
        enter = ["nsenter", f"--target={self.pid}", *_NAMESPACES, "--root", "--wd", *prefix]
        return [*enter, *map(str, argv)]

    def run(
        self, argv: Sequence[str | Path], *, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root on this host and wait for it."""
        base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            self.command(argv),
            env=base | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise ClusterError(
                what=f"{argv[0]} failed on {self.name}",
                found=f"exit code {done.returncode} of: {' '.join(map(str, argv))}\n{done.stdout}{done.stderr}",
                fix="read the daemons' logs below the cluster's root, in log/",
            )
        return done


def start_hosts(specs: Sequence[dict[str, Any]]) -> dict[str, Host]:
    """Start hosts side by side and return them when all are ready.

    Args:
        specs: What ``host_init.py`` reads; all with the same ``root``.
    """
    started = [(spec, _start_init(spec)) for spec in specs]
    for spec, output in started:
        with output:
            answer = output.readline()
        if answer != b"ready\n":
            log = Path(spec["root"], "log", f"{spec['hostname']}.init.log").read_text()
            raise ClusterError(
                what=f"the host {spec['hostname']} did not start",
                found=log[-2000:],
                fix="the cluster needs root with the right to make namespaces and mounts (a container: --privileged)",
            )
    root = Path(specs[0]["root"])
    return {host.name: host for host in find_hosts(root)}


def find_hosts(root: Path) -> list[Host]:
    """Return the running hosts of the cluster with this root."""
    hosts = []
    for pid, name in _find_processes(root):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
            if len(numbers) > 2 and numbers[-1] == "1":
                hosts.append(Host(name=name, pid=pid))
    return sorted(hosts, key=lambda host: host.name)


def kill_hosts(root: Path, names: Sequence[str] | None = None) -> list[str]:
    """Kill hosts with everything that runs on them, and return when they are gone.

    Args:
        root: The cluster's root.
        names: Which hosts; None for all of them.

    Returns:
        The names of the hosts that were killed.
    """
    killed = set()
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    while processes := [(pid, name) for pid, name in _find_processes(root) if names is None or name in names]:
        for pid, name in processes:
            killed.add(name)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise ClusterError(
                what="processes of the cluster do not end",
                found=str(processes),
                fix="look at them with ps; a process in state D waits for a disk or a mount",
            )
        time.sleep(0.02)
    return sorted(killed)


def _start_init(spec: dict[str, Any]) -> BinaryIO:
    """Start a host's init and return what it will say ``ready`` on. It is not a child of this process, but its own."""
    root = Path(spec["root"])
    (root / "hosts" / spec["hostname"]).mkdir(parents=True, exist_ok=True)
    description = root / "hosts" / f"{spec['hostname']}.json"
    description.write_text(json.dumps(spec, indent=1))
    unshare = ["setsid", "--fork", "unshare", *_NAMESPACES, "--fork", "--kill-child", "--propagation=private"]
    reader, writer = os.pipe()
    with (root / "log" / f"{spec['hostname']}.init.log").open("wb") as log, os.fdopen(writer, "wb") as output:
        subprocess.run(
            [*unshare, sys.executable, "-I", str(_INIT), str(description)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            cwd="/",
            check=True,
        )
    return os.fdopen(reader, "rb")


def _find_processes(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and host of every init below this root, and of the unshare(1) that started it."""
    hosts = root / "hosts"
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if len(arguments) < 3 or Path(arguments[-2]).name != _INIT.name:
            continue
        description = Path(arguments[-1])
        if description.parent == hosts:
            yield int(entry.name), description.stem
