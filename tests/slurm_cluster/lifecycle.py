"""Starting and stopping a whole cluster, and the claim to its root folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.slurm_cluster import services
from tests.slurm_cluster.cgroups import choose_tracker, remove_cgroups
from tests.slurm_cluster.configuration import render_host_files, write_configuration
from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.hosts import Host, find_hosts, kill_hosts, start_hosts
from tests.slurm_cluster.network import connect_hosts
from tests.slurm_cluster.packages import find_debian_13, install_missing_packages
from tests.slurm_cluster.settings import ClusterSettings, SlurmVersion, parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLAIM = ".hpc_multinode-test-cluster"
_SETTINGS = "cluster.json"
_UP = "up"


def start_cluster(settings: ClusterSettings) -> dict[str, Host]:
    """Start everything and return the hosts when all nodes are idle. What is there of an older cluster goes first."""
    tracker = choose_tracker(settings.tracker)
    install_missing_packages(settings.version)
    lower = Path("/") if settings.version is SlurmVersion.DEBIAN_12 else find_debian_13()
    with _locked(settings.root):
        remove_cluster(settings.root)
        _claim_root(settings)
        write_configuration(settings, tracker)
        hosts = start_hosts([describe_host(settings, name, lower) for name in settings.addresses])
        connect_hosts(hosts, settings.addresses)
        for host in hosts.values():
            services.start_munge(settings, host)
        if settings.with_dbd:
            services.start_mariadb(settings, hosts["hpcinfra"])
            services.start_slurmdbd(settings, hosts)
        services.start_slurmctld(settings, hosts["hpcctl"])
        for name in settings.node_names:
            services.start_slurmd(hosts[name])
        wait_for_nodes(settings, hosts)
        (settings.root / _UP).touch()
    return hosts


def stop_cluster(root: Path) -> bool:
    """Take the cluster below a root down, whatever state it is in. Return whether there was one."""
    if not root.exists() and not find_hosts(root):
        return False
    with _locked(root):
        return remove_cluster(root)


def find_settings(root: Path) -> ClusterSettings | None:
    """Return the settings of the cluster that is up below a root; None if there is none, or only a broken one."""
    if not (root / _UP).exists():
        return None
    settings = parse_settings((root / _SETTINGS).read_text())
    running = {host.name for host in find_hosts(root)}
    return settings if running == set(settings.addresses) else None


def remove_cluster(root: Path) -> bool:
    """Kill the hosts, remove their control groups and the root folder. Return whether there was anything.

    Raises:
        ClusterError: The folder has something in it that no cluster has put there.
    """
    killed = kill_hosts(root)
    names = {path.stem for path in (root / "hosts").glob("*.json")} | set(killed)
    remove_cgroups(sorted(names))
    content = {path.name for path in root.iterdir()} - {"lock"} if root.exists() else set()
    if content and not (root / _CLAIM).exists():
        raise ClusterError(
            what="the cluster's root folder belongs to something else",
            found=f"{root} has {', '.join(sorted(content)[:5])} and no {_CLAIM}",
            fix="give an empty or absent folder: --root",
        )
    # The claim goes last: a removal that is cut short can be repeated.
    for name in content - {_CLAIM}:
        _remove(root / name)
    shutil.rmtree(root, ignore_errors=True)
    return bool(content or killed)


def describe_host(settings: ClusterSettings, name: str, lower: Path) -> dict[str, Any]:
    """Return what ``host_init.py`` needs to know to make a host."""
    if name == "hpcinfra":
        lower = Path("/")
    passwd, group = ((lower / path).read_text() for path in ("etc/passwd", "etc/group"))
    root = str(settings.root)
    binds = [[str(path), str(path)] for path in settings.reachable] + [[root, root]]
    binds += [[str(settings.etc), "/etc/slurm"]]
    if settings.with_dbd and name in {"hpcinfra", "hpcctl"}:
        binds += [[f"{root}/run/mysqld", "/run/mysqld"]]
    return {
        "hostname": name,
        "root": root,
        "lower": str(lower),
        "files": render_host_files(settings, name, passwd, group),
        "binds": binds,
        "gpus": settings.gpus if name in settings.node_names else 0,
        "tmp": "" if settings.private_tmp else f"{root}/tmp",  # noqa: S108 - inside the root
    }


def wait_for_nodes(settings: ClusterSettings, hosts: dict[str, Host]) -> None:
    """Wait until all nodes are idle."""
    ask = ["sinfo", "-h", "-t", "idle", "-p", "main", "-o", "%D"]
    services.wait_until(
        lambda: hosts["hpcctl"].run(ask, check=False).stdout.strip() == str(settings.nodes),
        f"a state in which all {settings.nodes} nodes are idle",
        settings.logs / f"slurmd.{settings.node_names[0]}.log",
    )


def _claim_root(settings: ClusterSettings) -> None:
    root = settings.root
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    (root / _CLAIM).touch()
    (root / _SETTINGS).write_text(settings.to_json())
    for name in ("etc", "hosts", "log", "spool", "state"):
        (root / name).mkdir()
    for name in settings.node_names:
        (root / "spool" / name).mkdir()
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    for folder in (settings.shared, settings.home):
        folder.mkdir()
        os.chown(folder, settings.uid, settings.uid)
        folder.chmod(0o755)
    services.make_service_folders(settings)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the root folder alone. The lock lies beside it, so that the folder can be removed under it."""
    path = root.with_name(f".{root.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists() or not os.path.samestat(path.stat(), os.fstat(lock.fileno())):
                continue  # Who held it before has removed it.
            try:
                yield
            finally:
                path.unlink()
            return


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
