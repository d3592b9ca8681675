"""The work of one worker: find it, call it through the strategy's executor, and say how it ended.

Where the process comes from is not its business: a fork, a fresh interpreter, or for ``cluster=debug`` the launcher.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode import checkpointing, stopping
from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES
from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.executors.loading import load_executor, load_work
from hpc_multinode.logs import TRACEBACK_HEADER
from hpc_multinode.node.failure import MAX_MESSAGE, format_failure, make_text, make_words
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpc_multinode.context import WorkerContext
    from hpc_multinode.plan import LaunchPlan


def run_worker(plan: LaunchPlan, context: WorkerContext, *, say: Callable[[dict[str, Any]], None]) -> int:
    """Run the work and return the exit code of this process.

    Args:
        plan: The run.
        context: This worker's place in it.
        say: Tells the agent: ``phase`` when the executor is ready and when the work first asks whether to stop,
            ``failed`` with the exception.
    """
    pid = os.getpid()
    try:
        executor = load_executor(plan.strategy, folders=plan.work.folders)
        given = {name: getattr(context, name) for name in (*RANK_NAMES, *OFFERED_NAMES) if name != "context"}
        work = load_work(plan, given={**given, "context": context})
        if plan.strategy.auto_checkpoint and stopping.is_worker():
            checkpointing.enable(plan, attempt=context.attempt, global_rank=context.global_rank)
        executor.setup(context)
        say({"kind": "phase", "name": "process_group"})
        # Not by a child that the work has forked, which is no rank.
        stopping.on_first_ask(lambda: say({"kind": "phase", "name": "first_step"}) if os.getpid() == pid else None)
        result = executor.run(work, context)
        if os.getpid() != pid:  # a child that the work has forked and let run on: it speaks for nobody
            return 0
        executor.teardown(context)
        if plan.keeps_results:
            _keep_result(plan, context, result)
    except SystemExit as end:
        return _end_of(end, say if os.getpid() == pid else _say_nothing)
    except BaseException as error:  # noqa: BLE001 - a work may raise anything, and the agent must be told
        if os.getpid() != pid:
            print(format_failure(error), file=sys.stderr, end="", flush=True)  # noqa: T201 - as any child would
            return EXIT_FAILED
        return _fail(error, say)
    return 0


def _say_nothing(_: dict[str, Any]) -> None:
    """Stand in for the agent's ear in a process that is no worker."""


def _end_of(end: SystemExit, say: Callable[[dict[str, Any]], None]) -> int:
    """Return the exit code that the interpreter would make of ``sys.exit(...)``."""
    if end.code is None or end.code == 0:
        return 0
    if isinstance(end.code, int):
        code = end.code & 0xFF or EXIT_FAILED
    else:
        code = EXIT_FAILED
        print(make_text(end.code), file=sys.stderr, flush=True)  # noqa: T201 - as the interpreter does
    say(
        {
            "kind": "failed",
            **make_words(end),
            "message": make_text(end.code)[:MAX_MESSAGE],
            "traceback": [],
            "exit_code": code,
        }
    )
    return code


def _fail(error: BaseException, say: Callable[[dict[str, Any]], None]) -> int:
    with _holding_sigterm():
        say({"kind": "failed", **make_words(error), "exit_code": EXIT_FAILED})
        sys.stdout.flush()
        text = format_failure(error)
        print(f"{TRACEBACK_HEADER}\n{text}", file=sys.stderr, end="", flush=True)  # noqa: T201 - the log is our stderr
    return EXIT_FAILED


@contextlib.contextmanager
def _holding_sigterm() -> Iterator[None]:
    """Let SIGTERM wait: who hears of a failure stops all workers, this one too, maybe before its traceback is out."""
    if threading.current_thread() is not threading.main_thread():  # cluster=debug, in a thread of a Python caller's
        yield
        return
    came = []
    before = signal.signal(signal.SIGTERM, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)  # None: a handler in C
        if came:
            os.kill(os.getpid(), signal.SIGTERM)


def _keep_result(plan: LaunchPlan, context: WorkerContext, result: object) -> None:
    import cloudpickle  # noqa: PLC0415 - only where a Python caller asks for results

    folder = RunFolder(path=Path(plan.run_dir), is_private=plan.is_private)
    path = folder.result(context.attempt, context.global_rank)
    try:
        # In submitit's form, so that a run can be read as a job of its.
        content = cloudpickle.dumps(("success", result))
    except Exception as error:  # noqa: BLE001 - pickling runs code of the person's own
        print(  # noqa: T201 - the log is our stderr
            f"hpc_multinode: the return value, a {type(result).__name__}, cannot be pickled and is dropped: {error}",
            file=sys.stderr,
        )
        content = cloudpickle.dumps(("success", None))
    folder.write(os.path.relpath(path, folder.path), content)
