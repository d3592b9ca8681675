# ruff: noqa: T201 - the commands are made here; a person waits for an installation and is told
"""The programs: Debian 12's packages on the machine, Debian 13's Slurm in a folder of its own.

Installs on Debian when run as root, starts no service while it does, and says elsewhere what is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.settings import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

CACHE_VARIABLE = "HPC_MULTINODE_TESTS_CACHE"
_SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGE_OF_PROGRAM = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "pgrep": "procps",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
_PACKAGE_OF_SLURM_PROGRAM = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "srun": "slurm-client",
}
_DEBIAN_13_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge", "procps", "iproute2"),
    # What a Python that was built on the machine may be linked to.
    *("libffi8", "libssl3t64", "zlib1g", "libbz2-1.0", "liblzma5", "libreadline8t64", "libsqlite3-0"),
    *("libncursesw6", "libexpat1", "libuuid1", "libstdc++6", "libgomp1"),
)
_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = (
    "#!/bin/sh\n# Of hpc_multinode's test cluster: apt starts no service while it installs. Safe to remove.\nexit 101\n"
)


def install_missing_packages(version: SlurmVersion) -> None:
    """Install what the cluster runs on this machine, if anything is missing.

    Raises:
        ClusterError: Something is missing and this is not Debian, not root, or apt failed; or this is another Debian.
    """
    programs = dict(_PACKAGE_OF_PROGRAM)
    programs |= _PACKAGE_OF_SLURM_PROGRAM if version is SlurmVersion.DEBIAN_12 else {"debootstrap": "debootstrap"}
    if os.geteuid():
        raise ClusterError(
            what="the cluster needs root: it makes namespaces, mounts and control groups",
            found=f"user number {os.geteuid()}",
            fix="run it with sudo, or in a container that may do so: --privileged",
        )
    with _locked_cache():  # two clusters that start at once: the second would be refused by apt
        missing = sorted({package for program, package in programs.items() if not _find_program(program)})
        if missing:
            _install(missing)
    if version is SlurmVersion.DEBIAN_12:
        _check_slurm_version(version)


def find_debian_13() -> Path:
    """Return the folder of Debian 13 with Slurm 24.11, made by debootstrap if it is not there yet (half a minute)."""
    with _locked_cache() as cache:
        folder = cache / f"slurm-{SlurmVersion.DEBIAN_13.value}"
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            print(f"making {folder} with debootstrap, once", flush=True)
            options = ["--variant=minbase", f"--include={','.join(_DEBIAN_13_PACKAGES)}"]
            _run(["debootstrap", *options, "trixie", str(unfinished)], fix="look at the output above; is apt working?")
            for archive in (unfinished / "var/cache/apt/archives").glob("*.deb"):
                archive.unlink()
            unfinished.rename(folder)
    return folder


@contextlib.contextmanager
def _locked_cache() -> Iterator[Path]:
    """Hold, alone on this machine, the folder of what is fetched once."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "hpc_multinode-tests")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield cache


def _find_program(name: str) -> str | None:
    return shutil.which(name, path=_SEARCH_PATH)


def _install(packages: list[str]) -> None:
    command = f"apt-get install -y --no-install-recommends {' '.join(packages)}"
    if not Path("/etc/debian_version").exists() or not _find_program("apt-get"):
        raise ClusterError(
            what="programs that the test cluster runs are not installed",
            found=f"missing packages, by Debian's names: {' '.join(packages)}",
            fix="install their like with this system's package manager, or run the tests on Debian 12",
        )
    print(f"installing {' '.join(packages)}", flush=True)
    with _no_service_starts():
        _run(["apt-get", "update", "-q"], fix="is the network there? see apt-get update")
        _run(command.split(), fix=f"run it by hand: {command}")


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Keep apt from starting what it installs, the way that Debian offers for it. A policy that is there stays."""
    ours = not _POLICY.exists() or _POLICY.read_text() == _POLICY_TEXT
    if ours:
        _POLICY.write_text(_POLICY_TEXT)
        _POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            _POLICY.unlink(missing_ok=True)


def _check_slurm_version(version: SlurmVersion) -> None:
    found = _run([_find_program("slurmctld") or "slurmctld", "-V"], fix="is slurmctld installed?").strip()
    if not found.startswith(f"slurm-wlm {version.value}"):
        raise ClusterError(
            what=f"this machine's Slurm is not {version.value}",
            found=found,
            fix=f"run the tests on Debian 12, or use the version from a folder: --slurm {SlurmVersion.DEBIAN_13.value}",
        )


def _run(argv: list[str], *, fix: str) -> str:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "PATH": _SEARCH_PATH, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise ClusterError(what=f"{argv[0]} failed", found=tail, fix=fix)
    return done.stdout
