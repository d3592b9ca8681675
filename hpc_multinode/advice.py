"""What to do next after a failure: one useful step for each kind that has a known way out. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpc_multinode.report import Outcome

_AGAIN = "then start the run again"
_MEND_ABOVE = f"mend what is named above, {_AGAIN}"
_BY_CLASS = {
    "out_of_memory": f"raise resources.mem_gb, or lower the batch size or the number of DataLoader workers; {_AGAIN}",
    "lost_node": "look at the node, and at submitit/ and the agents' logs in the run folder",
    "rendezvous": _MEND_ABOVE,
    "usage": _MEND_ABOVE,
}
# By what stands in the exception or in the last lines of the log; the first that fits wins.
_BY_TEXT = (
    (r"process group has not been initialized",
     "strategy=pytorch_spawn makes the process group before the work is called; base and lite do not"),
    (r"launchers/multiprocessing\.py",
     'the workers are there already: use strategy="ddp" in place of ddp_spawn, ddp_fork or ddp_notebook'),
    (r"you must call `\.launch\(\)`",
     "call launch() on the Fabric before anything else, or strategy.fabric_cli=true does it"),
    (r"does not match the world size|conflicts with the value `--",
     "leave num_nodes and devices out of the Trainer or Fabric: it finds what the run has"),
    (r"No module named",
     "install it into the interpreter that runs here (cluster.python), or lay it beside the work; " + _AGAIN),
    (r"CUDA out of memory|OutOfMemoryError",
     "lower the batch size or the model's share for each GPU, or set "
     "env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; " + _AGAIN),
    (r"Address already in use|EADDRINUSE",
     "start the run again: another program took the port; launch.main_port=N chooses one by hand"),
    (r"Watchdog caught collective operation timeout|Timed out waiting|wait timeout|milliseconds before timing out",
     "a rank did not come to the collective: look for the log that stopped first; strategy.timeout_s waits longer"),
    (r"NCCL.*(unhandled|internal) (system|cuda) error|ncclSystemError|ncclInternalError",
     "env.NCCL_DEBUG=INFO tells more; env.NCCL_SOCKET_IFNAME chooses the interface"),
    (r"[Uu]nable to (find address for|resolve)|makeDeviceForHostname|no interface",
     "env.GLOO_SOCKET_IFNAME or env.NCCL_SOCKET_IFNAME names an interface that all nodes have"),
    (r"No space left on device", "make room there, or write elsewhere; " + _AGAIN),
    (r"Bus error|bus error|SIGBUS|/dev/shm",
     "shared memory (/dev/shm) may be full: fewer DataLoader workers, or a larger one for the job; " + _AGAIN),
)  # fmt: skip


def advise(cause: Outcome, failure_class: str | None) -> str:
    """Return one next step after a failure.

    Args:
        cause: The root cause.
        failure_class: Its kind, in the report's words.
    """
    if failure_class in _BY_CLASS:
        return _BY_CLASS[failure_class]
    if cause.exception in ("WorkError", "ConfigError"):
        return _MEND_ABOVE
    text = "\n".join([f"{cause.exception}: {cause.message}", *cause.last_lines])
    known = next((step for pattern, step in _BY_TEXT if re.search(pattern, text)), None)
    return known or _advise_by_end(cause)


def _advise_by_end(cause: Outcome) -> str:
    if cause.global_rank is None:
        return _MEND_ABOVE
    if cause.signal == "SIGKILL":
        return "SIGKILL often means that memory ran out: ask for more, or lower the batch size, then start again"
    if cause.exception is None and cause.signal is None:
        return "the work ended itself with this code; its log says why"
    return "mend the work, then start it again"
