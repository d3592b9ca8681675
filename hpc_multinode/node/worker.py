"""The work of one worker: find it, call it through the strategy's executor, and say how it ended.

Where the process comes from is not its business: a fork, a fresh interpreter, or for ``cluster=debug`` the launcher.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES
from hpc_multinode.context import WorkerContext
from hpc_multinode.errors import EXIT_FAILED, MultiNodeError
from hpc_multinode.executors.loading import load_executor, load_work
from hpc_multinode.logs import TRACEBACK_HEADER
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.node.spec import WorkerSpec
    from hpc_multinode.plan import LaunchPlan

_MAX_MESSAGE = 4_000
_MAX_LINES = 40
_MAX_LINE = 400
_PACKAGE = Path(__file__).resolve().parent.parent
_NOT_THEIRS = ("<frozen ", *(str(_PACKAGE / part) for part in ("node", "executors")))


def run_worker(plan: LaunchPlan, spec: WorkerSpec, *, say: Callable[[dict[str, Any]], None]) -> int:
    """Run the work and return the exit code of this process.

    Args:
        plan: The run.
        spec: This worker's place in it.
        say: Tells the agent: ``phase`` when the executor is ready, ``failed`` with the exception.
    """
    context = _make_context(plan, spec)
    try:
        executor = load_executor(plan.strategy, folders=plan.work.folders)
        given = {name: getattr(context, name) for name in (*RANK_NAMES, *OFFERED_NAMES) if name != "context"}
        work = load_work(plan, given={**given, "context": context})
        executor.setup(context)
        say({"kind": "phase", "name": "process_group"})
        result = executor.run(work, context)
        executor.teardown(context)
        if plan.keeps_results and result is not None:
            _keep_result(plan, spec, result)
    except SystemExit as end:
        return _end_of(end, say)
    except BaseException as error:  # noqa: BLE001 - a work may raise anything, and the agent must be told
        return _fail(error, say)
    return 0


def _make_context(plan: LaunchPlan, spec: WorkerSpec) -> WorkerContext:
    return WorkerContext(
        world_size=plan.world_size,
        node_rank=spec.node_rank,
        global_rank=spec.global_rank,
        local_rank=spec.local_rank,
        local_world_size=spec.local_world_size,
        num_nodes=spec.num_nodes,
        main_address=spec.main_address,
        main_port=spec.main_port,
        attempt=spec.attempt,
        run_dir=plan.run_dir,
        devices=spec.devices,
    )


def _end_of(end: SystemExit, say: Callable[[dict[str, Any]], None]) -> int:
    if end.code is None or end.code == 0:
        return 0
    if isinstance(end.code, int):
        code = end.code & 0xFF or EXIT_FAILED
        say({"kind": "failed", "exception": "SystemExit", "message": str(end.code), "traceback": []})
        return code
    print(end.code, file=sys.stderr, flush=True)  # noqa: T201 - what the interpreter does with such a code
    say({"kind": "failed", "exception": "SystemExit", "message": str(end.code)[:_MAX_MESSAGE], "traceback": []})
    return EXIT_FAILED


def _fail(error: BaseException, say: Callable[[dict[str, Any]], None]) -> int:
    # An error of ours is written for its reader; where it was raised helps nobody.
    text = f"error: {error}\n" if isinstance(error, MultiNodeError) else _format(error)
    try:
        message = str(error)
    except Exception as unprintable:  # noqa: BLE001 - __str__ of the person's own exception
        message = f"(its text cannot be made: {type(unprintable).__name__})"
    lines = [line[:_MAX_LINE] for line in text.rstrip().splitlines()]
    if len(lines) > _MAX_LINES:
        left_out = len(lines) - _MAX_LINES
        lines = [*lines[: _MAX_LINES // 4], f"... {left_out} lines, see the log ...", *lines[-3 * _MAX_LINES // 4 :]]
    say(
        {
            "kind": "failed",
            "exception": type(error).__name__,
            "message": message[:_MAX_MESSAGE],
            "traceback": lines,
        }
    )
    sys.stdout.flush()
    print(f"{TRACEBACK_HEADER}\n{text}", file=sys.stderr, end="", flush=True)  # noqa: T201 - the log is our stderr
    return EXIT_FAILED


def _format(error: BaseException) -> str:
    """Return the traceback as Python prints it, without the frames of ours and of import above the work."""
    try:
        summary = traceback.TracebackException.from_exception(error)
        frames = [frame for frame in summary.stack if not frame.filename.startswith(_NOT_THEIRS)]
        summary.stack = traceback.StackSummary.from_list(frames)
        return "".join(summary.format())
    except Exception:  # noqa: BLE001 - __str__ of the person's own exception
        return f"{type(error).__module__}.{type(error).__qualname__} (its text cannot be made)\n"


def _keep_result(plan: LaunchPlan, spec: WorkerSpec, result: object) -> None:
    import cloudpickle  # noqa: PLC0415 - only where a Python caller asks for results

    folder = RunFolder(path=Path(plan.run_dir), is_private=plan.is_private)
    path = folder.result(spec.attempt, spec.global_rank)
    try:
        content = cloudpickle.dumps(result)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the person's own
        print(  # noqa: T201 - the log is our stderr
            f"hpc_multinode: the return value, a {type(result).__name__}, cannot be pickled and is dropped: {error}",
            file=sys.stderr,
        )
        return
    folder.write(os.path.relpath(path, folder.path), content)
