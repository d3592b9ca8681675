"""The first process of one host: it makes the host's file system, then waits and reaps.

Not imported by the cluster: started by path, as root, in new network, mount, UTS, IPC and PID namespaces. The host's
root folder is an overlay: the machine's files (or those of another Debian) below, a folder in memory above. So the host
has its own users, host names, /tmp and /run, and the machine's files stay as they are. When this process ends, the
kernel ends every process of the host and its network and mounts are gone.

Argument: a JSON file with the keys ``hostname``, ``root``, ``lower``, ``files``, ``binds``, ``gpus``, ``tmp``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_ALL_MAY_ENTER = 0o111
_GPU_DEVICE = os.makedev(1, 3)  # /dev/null's numbers: Slurm wants device nodes, nobody opens them.


def mount(*arguments: str | Path) -> None:
    """Mount one thing, in the words of the program mount."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def make_root(spec: dict[str, Any]) -> Path:
    """Mount the host's root folder and everything in it."""
    base = Path(str(spec["root"])) / "hosts" / spec["hostname"]
    mount("-t", "tmpfs", "-o", "mode=755", "hpc-host", base)
    for name in ("upper", "work", "merged"):
        (base / name).mkdir()
    options = f"lowerdir={spec['lower']},upperdir={base}/upper,workdir={base}/work"
    merged: Path = base / "merged"
    mount("-t", "overlay", "-o", options, "hpc-host", merged)
    mount("-t", "proc", "proc", merged / "proc")
    mount("--rbind", "/sys", merged / "sys")
    mount("--rbind", "/dev", merged / "dev")
    mount("-t", "tmpfs", "-o", "mode=1777", "hpc-host", merged / "dev/shm")
    mount("-t", "tmpfs", "-o", "mode=755", "hpc-host", merged / "run")
    if spec["tmp"]:
        mount("--bind", spec["tmp"], merged / "tmp")
    else:
        mount("-t", "tmpfs", "-o", "mode=1777", "hpc-host", merged / "tmp")
    for source, target in spec["binds"]:
        make_folder(merged, Path(target))
        kind = "--bind" if source == spec["root"] else "--rbind"  # The root has this host's own mounts below it.
        mount(kind, source, merged / target.lstrip("/"))
    for path, text in spec["files"].items():
        write_file(merged / path.lstrip("/"), text)
    for index in range(spec["gpus"]):
        (merged / "run/gpu").mkdir(exist_ok=True)
        os.mknod(merged / f"run/gpu/nvidia{index}", 0o666 | 0o020000, _GPU_DEVICE)
    return merged


def make_folder(merged: Path, target: Path) -> None:
    """Make a folder that anybody on the host can enter.

    Its parents are the overlay's: the machine's keep their modes.
    """
    folder = merged
    for part in target.parts[1:]:
        folder = folder / part
        folder.mkdir(exist_ok=True)
        mode = folder.stat().st_mode
        if not folder.is_mount() and mode & _ALL_MAY_ENTER != _ALL_MAY_ENTER:
            folder.chmod((mode & 0o7777) | _ALL_MAY_ENTER)


def write_file(path: Path, text: str) -> None:
    """Write a file of the host, in place of a link or file of the machine."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def wait_forever() -> None:
    """Reap orphans until the host is killed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def main() -> None:
    """Make the host that the first argument describes, say ``ready`` and stay."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    merged = make_root(spec)
    socket.sethostname(spec["hostname"])
    os.chroot(merged)
    os.chdir("/")
    os.write(1, b"ready\n")
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    wait_forever()


if __name__ == "__main__":
    main()
