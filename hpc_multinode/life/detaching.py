"""Ctrl-C where a run is only watched: it goes on, and how to end it is said."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpc_multinode.registry import Entry


class Detached(KeyboardInterrupt):
    """The person does not want to watch any longer; the command line then ends with ``EXIT_DETACHED``."""


@contextlib.contextmanager
def detachable(entry: Entry) -> Iterator[None]:
    """Turn a Ctrl-C within into a word on how the run is found and ended.

    Raises:
        Detached: Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        # A second one must not cut the word short.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        name = f"job {entry.job_id}" if entry.job_id is not None else entry.run
        print(  # noqa: T201
            f"\ndetached: {name} goes on\n"
            f"follow: python -m hpc_multinode logs -f {name_run(entry)}\n"
            f"cancel: python -m hpc_multinode cancel {name_run(entry)}",
            file=sys.stderr,
            flush=True,
        )
        raise Detached from None


def name_run(entry: Entry) -> str:
    """Return the word by which a person names a run."""
    return entry.job_id if entry.job_id is not None and entry.mode == "slurm" else entry.run
