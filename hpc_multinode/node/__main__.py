"""Start of a node agent: ``python -m hpc_multinode.node RUN_DIR``; with ``--refused``, what follows a refused requeue.

The agent's working directory is the run folder, which holds no modules, so nothing of the person's shadows ours.
"""

from __future__ import annotations

from hpc_multinode.node.stop_signals import hold_stop_signals

# Before the rest is loaded: a job may be preempted in its first moment, and an agent that dies of it costs its requeue.
hold_stop_signals()

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.errors import MultiNodeError
from hpc_multinode.layout import REPORT
from hpc_multinode.node.local import parse_local_context
from hpc_multinode.node.server import start_server
from hpc_multinode.resubmission import REFUSED
from hpc_multinode.runs import RunFolder
from hpc_multinode.slurm.environment import find_devices, parse_job_id, parse_node_context

if TYPE_CHECKING:
    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.server import Server
    from hpc_multinode.plan import LaunchPlan


def main() -> None:
    """Be the agent of the run folder in the first argument."""
    try:
        folder, plan = RunFolder.open(Path(sys.argv[1]))
        if REFUSED in sys.argv[2:]:
            from hpc_multinode.node.refusal import report_refusal  # noqa: PLC0415 - of all ends the rarest

            sys.exit(report_refusal(folder, plan, job_id=parse_job_id(os.environ) or ""))
        folder.protect_output()
        secret = folder.read_secret()
        node, problem = _find_place(plan, secret)
        if problem is not None:
            print(f"error: {problem}", file=sys.stderr, flush=True)  # noqa: T201
        server = problem or start_server(plan, node)
        code = _be_agent(folder, plan, node, secret=secret, server=server)
    except MultiNodeError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - nobody else is there to tell
        code = error.exit_code
    sys.exit(code)


def _be_agent(
    folder: RunFolder, plan: LaunchPlan, node: NodeContext, *, secret: bytes, server: Server | MultiNodeError
) -> int:
    import asyncio  # noqa: PLC0415 - from here on the framework is being imported, in another process

    from hpc_multinode.node.agent import Agent  # noqa: PLC0415
    from hpc_multinode.report import Report, render_report  # noqa: PLC0415

    code = asyncio.run(Agent(folder=folder, plan=plan, node=node, secret=secret, server=server).run())
    if node.node_rank == 0 and (folder.path / REPORT).exists():
        # In a submitted run nobody watches: the agents' output is where people look for how it ended.
        print(render_report(Report.read(folder.path)), flush=True)  # noqa: T201
    return code


def _find_place(plan: LaunchPlan, secret: bytes) -> tuple[NodeContext, MultiNodeError | None]:
    """Return this node's place, and what is wrong with the node although its place is known."""
    hostname = socket.gethostname()
    if plan.mode == "local":
        return parse_local_context(os.environ, plan=plan, secret=secret, hostname=hostname), None
    node = parse_node_context(
        os.environ,
        local_world_size=plan.local_world_size,
        main_address=plan.main_address,
        num_nodes=plan.num_nodes,
        hostname=hostname,
        secret=secret,
        user=plan.user,
    )
    try:
        return replace(node, devices=find_devices(os.environ, plan.gpus_per_node)), None
    except MultiNodeError as error:
        return node, error


main()
