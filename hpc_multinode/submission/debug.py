"""``cluster=debug``: rank 0 of a world of one in this very process, so that breakpoints and profilers work."""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.ending import judge_ending
from hpc_multinode.node.environment import make_node_env, make_worker_env
from hpc_multinode.node.local import LOOPBACK, make_local_context
from hpc_multinode.node.spec import WorkerSpec
from hpc_multinode.node.supervisor import Supervisor
from hpc_multinode.node.verdict import compose_report
from hpc_multinode.node.worker import run_worker
from hpc_multinode.ports import find_free_port

if TYPE_CHECKING:
    from hpc_multinode.context import NodeContext, WorkerContext
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder


def run_debug(plan: LaunchPlan, folder: RunFolder) -> int:
    """Run the work here and return the run's exit code."""
    attempt = folder.make_next_attempt()
    node = make_local_context(
        node_rank=0,
        num_nodes=1,
        local_world_size=1,
        devices=plan.node_devices[0] if plan.node_devices else (),
        main_address=None,
        hostname=socket.gethostname(),
        identity=(plan.run_dir,),
    )
    place = node.make_worker(
        0,
        main_address=LOOPBACK,
        main_port=plan.main_port or find_free_port(),
        attempt=attempt,
        run_dir=plan.run_dir,
    )
    env = {**make_node_env(os.environ, plan=plan, node=node), **make_worker_env(plan, place)}
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = list(plan.work.folders)
    return _run(plan, folder, node, place)


def _run(plan: LaunchPlan, folder: RunFolder, node: NodeContext, place: WorkerContext) -> int:
    started = datetime.now(timezone.utc).astimezone()
    coordinator = Coordinator(num_nodes=1)
    coordinator.attempt.number = place.attempt
    supervisor = Supervisor(node_rank=0, host=node.host, signal_workers=lambda _: None)
    supervisor.start([WorkerSpec(place=place, cpus=(), title="", log="")])
    supervisor.note_pids({0: os.getpid()})

    def say(words: dict[str, Any]) -> None:
        failure = supervisor.hear(0, words)
        if failure is not None:
            coordinator.fail(failure, now=0.0)

    code = run_worker(plan, place, say=say)
    failure = supervisor.note_exit(0, exit_code=code, signal=None)
    if failure is not None:
        coordinator.fail(failure, now=0.0)
    ending = judge_ending(plan, coordinator, end=None, history=())
    report = compose_report(plan, node, coordinator, ending, began=[started])
    report.write(folder)
    return report.exit_code
