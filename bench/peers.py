"""Install what is only measured, never a dependency, into an environment of its own: ``python -m bench.peers``.

It sees this environment's packages, so that all contestants run with the same torch.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from bench.contestants import PEERS

# click: what "fabric run" needs beside Lightning.
_PACKAGES = ("hydra-submitit-launcher", "torchrunx", "click")


def main() -> int:
    """Install each package and return 1 where one could not be."""
    subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
    python = PEERS / "bin" / "python"
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    (folder / "measured.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    code = 0
    for package in _PACKAGES:
        done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=False)
        print(f"{package}: {'not installed' if done.returncode else 'installed'}")
        code = code or done.returncode
    return int(bool(code))


if __name__ == "__main__":
    sys.exit(main())
