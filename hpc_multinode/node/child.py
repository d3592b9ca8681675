"""From a forked child of the forkserver to a worker: its log, its environment, its working directory.

After this the process looks like one that was started as ``python train.py``: default signal handlers, its own
process group, a fresh ``__main__``, and a normal end of the interpreter with atexit handlers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hpc_multinode import stopping
from hpc_multinode.node.environment import make_worker_env
from hpc_multinode.node.stray import request_death_signal
from hpc_multinode.node.worker import run_worker
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.node.spec import WorkerSpec
    from hpc_multinode.plan import LaunchPlan

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_EXEC = "from hpc_multinode.node.child import drop_own_folder, main; drop_own_folder(); main()"


def drop_own_folder() -> None:
    """Take the folder off the path that ``-m`` and ``-c`` put there for the program itself."""
    if not getattr(sys.flags, "safe_path", False):  # PYTHONSAFEPATH: there is none, from Python 3.11 on
        sys.path.pop(0)


def die_with_parent(parent: int) -> None:
    """Put this child into a process group of its own, and let it not outlive the forkserver.

    Args:
        parent: Pid of the forkserver.
    """
    os.setpgid(0, 0)
    request_death_signal()
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


def become_worker(plan: LaunchPlan, spec: WorkerSpec, *, pipe: int, page: int) -> NoReturn:
    """Run the work in this process and end the interpreter with the work's exit code.

    Args:
        plan: The run.
        spec: This worker's place.
        pipe: Where its words to the agent go.
        page: What it shares with the forkserver; see ``stopping``.
    """
    _open_log(plan, spec)
    if spec.cpus:
        os.sched_setaffinity(0, spec.cpus)
    os.environ.update(make_worker_env(plan, spec.place))
    if plan.start_method == "spawn":
        _exec_anew(plan, spec, pipe, page)
    stopping.take_page(page)
    _take_place(plan)
    show_title(spec.title)
    _reseed()
    sys.exit(run_worker(plan, spec.place, say=_make_say(pipe)))


def main() -> NoReturn:
    """Go on in a fresh interpreter with what ``_exec_anew`` left."""
    pipe, page, handed_over = (int(word) for word in sys.argv[1:4])
    from hpc_multinode.node.spec import WorkerSpec  # noqa: PLC0415 - only a spawned worker reads one
    from hpc_multinode.plan import LaunchPlan  # noqa: PLC0415

    with os.fdopen(handed_over) as file:
        plan = LaunchPlan.from_json(file.readline())
        spec = WorkerSpec.from_json(json.loads(file.readline()))
    for descriptor in (pipe, page):
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no keyword
    stopping.take_page(page)
    _take_place(plan)
    show_title(spec.title)
    sys.exit(run_worker(plan, spec.place, say=_make_say(pipe)))


def show_title(title: str) -> None:
    """Show this process under a name of its own in ``top`` and ``ps``."""
    # Without this the title would be written over the variables that /proc shows of the process.
    is_set = "SPT_NOENV" in os.environ
    os.environ.setdefault("SPT_NOENV", "1")
    # Loaded here because it reads the variable then; an image without it goes without titles.
    with contextlib.suppress(ImportError):
        import setproctitle  # noqa: PLC0415

        setproctitle.setproctitle(title)
    if not is_set:
        del os.environ["SPT_NOENV"]


def _open_log(plan: LaunchPlan, spec: WorkerSpec) -> None:
    """Point stdin, stdout and stderr, of C code too, where they belong."""
    folder = RunFolder(path=Path(plan.run_dir), is_private=plan.is_private)
    log = folder.open_append(Path(spec.log))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    os.dup2(log, _STDOUT)
    os.dup2(log, _STDERR)
    os.close(nothing)
    os.close(log)


def _take_place(plan: LaunchPlan) -> None:
    # Line by line, so that what was printed before a SIGKILL is in the log.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable()
    os.chdir(plan.cwd)
    sys.path[:0] = list(plan.work.folders)
    sys.argv = [plan.work.file or plan.work.name or "work"]
    # Without a file and a spec of ours in it, multiprocessing's children do not import the forkserver as their main.
    sys.modules["__main__"] = types.ModuleType("__main__")


def _reseed() -> None:
    """Give this process random numbers of its own, as a fresh interpreter would: its siblings hold the same state.

    Python's ``random`` does so by itself after a fork. CUDA's generators come to be in the worker.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.default_generator.seed()
    if numpy is not None:
        numpy.random.seed()


def _exec_anew(plan: LaunchPlan, spec: WorkerSpec, pipe: int, page: int) -> NoReturn:
    handed_over = os.memfd_create("worker")
    text = json.dumps(json.loads(plan.to_json())) + "\n" + json.dumps(spec.to_json()) + "\n"
    os.write(handed_over, text.encode())
    os.lseek(handed_over, 0, os.SEEK_SET)
    for descriptor in (handed_over, pipe, page):
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no keyword
    numbers = (str(pipe), str(page), str(handed_over))
    os.execv(sys.executable, [sys.executable, "-c", _EXEC, *numbers])  # noqa: S606 - no shell is wanted


def _make_say(pipe: int) -> Callable[[dict[str, Any]], None]:
    """Return what tells the agent; where a work has closed our pipe, nobody is told and the log has to do."""
    own = _identify(pipe)

    def say(words: dict[str, Any]) -> None:
        if _identify(pipe) == own:  # else the number is a file of the work's
            os.write(pipe, json.dumps(words).encode() + b"\n")

    return say


def _identify(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
