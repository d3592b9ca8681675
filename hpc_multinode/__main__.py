"""Start of the command line: ``python -m hpc_multinode`` and the script ``hpc-multinode``."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    # A Ctrl-C while modules are loaded ends us as it ends any program, with no traceback.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _make_streams_bear_all()
    if _is_current_folder(sys.path[0]):
        # With -m the current folder stands first: a person's queue.py or logging.py would take the place of Python's
        # own in everything that is imported from here on. It stays at the end for a checkout that is not installed.
        sys.path.append(sys.path.pop(0))
    # Until the plan is made much is allocated and nothing freed: collecting would only cost time (``launch`` enables
    # it).
    gc.disable()
    from hpc_multinode.cli import run  # noqa: PLC0415 - after the path is in order

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def _is_current_folder(entry: str) -> bool:
    try:
        return os.path.samefile(entry or ".", ".")  # noqa: PTH121 - pathlib takes longer to load than a Ctrl-C may wait
    except OSError:  # one of them is not there
        return False


def _make_streams_bear_all() -> None:
    """Let no letter of a worker's output, and no stream that the caller has closed, end a run."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115 - for as long as the process lives
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
