"""Who am I, where nodes stand side by side on this machine: tasks of submitit's local executor.

Pure. The counterpart of ``slurm.environment``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.context import NodeContext
from hpc_multinode.errors import RendezvousError
from hpc_multinode.ports import make_port_candidates, render_main_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.plan import LaunchPlan

LOOPBACK = "127.0.0.1"
_TASK = "SUBMITIT_LOCAL_GLOBALID"


def parse_local_context(environ: Mapping[str, str], *, plan: LaunchPlan, secret: bytes, hostname: str) -> NodeContext:
    """Read this agent's place from submitit's variables.

    Args:
        environ: Normally ``os.environ``.
        plan: The run.
        secret: The run's secret, for the ports.
        hostname: This machine's name.

    Raises:
        RendezvousError: The agent was not started by submitit's local executor.
    """
    task = environ.get(_TASK, "")
    if not (task.isdecimal() and int(task) < plan.num_nodes):
        raise RendezvousError(
            what="this agent does not know which node it is",
            found=f"{_TASK}={task!r}, nodes={plan.num_nodes}",
            fix="start the run with python -m hpc_multinode, not the agent by hand",
        )
    node_rank = int(task)
    address = LOOPBACK if plan.main_address is None else render_main_address(plan.main_address, host=hostname)
    return NodeContext(
        job_id=None,
        step_id=None,
        node_rank=node_rank,
        num_nodes=plan.num_nodes,
        hosts=(hostname,) * plan.num_nodes,
        main_address=address,
        port_candidates=make_port_candidates("local", plan.run_dir, plan.user, secret=secret),
        local_world_size=plan.local_world_size,
        devices=plan.node_devices[node_rank] if plan.node_devices else (),
        restart_count=0,
        source="local",
    )
