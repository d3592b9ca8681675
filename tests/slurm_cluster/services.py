"""The daemons: munged and MariaDB for the cluster alone, slurmdbd, slurmctld and slurmd. Each runs inside its host."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm_cluster.configuration import CLUSTER_NAME
from tests.slurm_cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.slurm_cluster.hosts import Host
    from tests.slurm_cluster.settings import ClusterSettings

_KEY_BYTES = 128
_DAEMON_TIMEOUT_S = 20.0
_POLL_S = 0.03

# A throw-away database: small, and never waiting for the disk.
_MARIADB_OPTIONS = (
    "--no-defaults",
    "--skip-networking",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-size=32M",
    "--innodb-doublewrite=0",
    "--innodb-lock-wait-timeout=900",
    "--performance-schema=OFF",
    "--aria-pagecache-buffer-size=8M",
    "--key-buffer-size=8M",
)


def make_service_folders(settings: ClusterSettings) -> None:
    """Make the folders of munge's key and of MariaDB, and the key: the cluster's own, whatever runs on the machine."""
    (settings.root / "munge").mkdir(mode=0o700)
    key = settings.root / "munge" / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(_KEY_BYTES))
    if settings.with_dbd:
        for name, mode in (("mysql", 0o700), ("run/mysqld", 0o755)):
            folder = settings.root / name
            folder.mkdir(parents=True)
            shutil.chown(folder, "mysql", "mysql")
            folder.chmod(mode)


def start_munge(settings: ClusterSettings, host: Host) -> None:
    """Start a host's munged. Each has one: Slurm takes the host that a request comes from out of munge's credential."""
    key = f"--key-file={settings.root / 'munge' / 'munge.key'}"
    files = [
        f"--log-file=/run/munge/{host.name}.log",
        "--seed-file=/run/munge/seed",
        "--pid-file=/run/munge/munged.pid",
    ]
    host.run(["sh", "-c", 'mkdir -p /run/munge && exec munged "$@"', "sh", key, *files])


def start_mariadb(settings: ClusterSettings, infra: Host) -> None:
    """Make a database folder and start a server on it, without waiting for the server."""
    data = f"--datadir={settings.root / 'mysql'}"
    install = ["mariadb-install-db", *_MARIADB_OPTIONS, data, "--user=mysql"]
    infra.run([*install, "--skip-test-db", "--auth-root-authentication-method=normal"])
    run = ["--socket=/run/mysqld/mysqld.sock", "--pid-file=/run/mysqld/mysqld.pid"]
    log = f"--log-error={settings.root / 'mysql' / 'error.log'}"
    start_in_background(infra, ["mariadbd", *_MARIADB_OPTIONS, data, *run, log, "--user=mysql"])


def start_slurmdbd(settings: ClusterSettings, hosts: Mapping[str, Host]) -> None:
    """Start slurmdbd and wait until it answers and knows the cluster."""
    infra = hosts["hpcinfra"]
    ask = ["mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "--user=root", "-e"]
    create = f"create database if not exists {CLUSTER_NAME}"
    wait_until(
        lambda: infra.run([*ask, create], check=False).returncode == 0, "MariaDB", settings.root / "mysql" / "error.log"
    )
    resume_slurmdbd(settings, hosts)
    known = ["sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"]
    if not hosts["hpcctl"].run(known).stdout.strip():
        hosts["hpcctl"].run(["sacctmgr", "-i", "add", "cluster", CLUSTER_NAME])


def resume_slurmdbd(settings: ClusterSettings, hosts: Mapping[str, Host]) -> None:
    """Start slurmdbd on its existing database and wait until it answers."""
    ctl = hosts["hpcctl"]
    ctl.run(["slurmdbd"])
    ask = ["sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"]
    wait_until(lambda: ctl.run(ask, check=False).returncode == 0, "slurmdbd", settings.logs / "slurmdbd.log")


def start_slurmctld(settings: ClusterSettings, ctl: Host) -> None:
    """Start slurmctld and wait until it answers."""
    ctl.run(["slurmctld"])
    wait_until(
        lambda: ctl.run(["scontrol", "ping"], check=False).returncode == 0, "slurmctld", settings.logs / "slurmctld.log"
    )


def start_slurmd(node: Host) -> None:
    """Start a node's slurmd, without waiting for the node to be idle."""
    node.run(["slurmd", "-N", node.name])


def stop_daemon(host: Host, name: str) -> None:
    """End a daemon of a host and wait until it is gone: a moment passes, and the next start would fail in it.

    It is found among the host's own processes by the name it was started with: since 23.11 ``scontrol reconfigure``
    replaces the process, and with Debian's alternatives the kernel then calls it ``slurmctld-wlm``.
    """

    def _find() -> list[str]:
        return host.run(["pgrep", "-f", f"^{name}( |$)"], check=False).stdout.split()

    for pid in _find():
        host.run(["kill", pid], check=False)
    wait_until(lambda: not _find(), f"the end of {name}", Path(os.devnull))


def start_in_background(host: Host, argv: list[str]) -> None:
    """Start a program that does not go to the background by itself."""
    host.run(["sh", "-c", 'setsid "$@" </dev/null >/dev/null 2>&1 &', "sh", *argv])


def wait_until(
    is_done: Callable[[], bool],
    name: str,
    log: Path,
    *,
    timeout_s: float = _DAEMON_TIMEOUT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until something is the case.

    Args:
        is_done: Asked again and again.
        name: What is waited for, for the error.
        log: File whose end is shown if it does not happen.
        timeout_s: How long to wait. Seconds.
        clock: Replaced in tests.
        sleep: Replaced in tests.

    Raises:
        ClusterError: It did not happen in time.
    """
    deadline = clock() + timeout_s
    while not is_done():
        if clock() > deadline:
            raise ClusterError(
                what=f"{name} is not there after {timeout_s:.0f} s",
                found=f"end of {log}:\n{read_tail(log)}",
                fix="python -m tests.slurm_cluster down, then up again; if it stays, the log above says why",
            )
        sleep(_POLL_S)


def read_tail(log: Path, *, lines: int = 25) -> str:
    """Return the last lines of a log, or why there are none."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return str(error)
