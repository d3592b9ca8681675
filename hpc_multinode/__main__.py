"""Start of the command line: ``python -m hpc_multinode`` and the script ``hpc-multinode``."""

from __future__ import annotations

import gc
import sys
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.path and Path(sys.path[0] or ".").resolve() == Path.cwd():
        # With -m the current folder stands first: a person's queue.py or logging.py would take the place of Python's
        # own in everything that is imported from here on. It stays at the end for a checkout that is not installed.
        sys.path.append(sys.path.pop(0))
    # Until the plan is made much is allocated and nothing freed: collecting would only cost time (``launch`` enables
    # it).
    gc.disable()
    from hpc_multinode.cli import run  # noqa: PLC0415 - after the path is in order

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
