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
    return make_local_context(
        node_rank=int(task),
        num_nodes=plan.num_nodes,
        local_world_size=plan.local_world_size,
        devices=plan.node_devices[int(task)] if plan.node_devices else (),
        main_address=plan.main_address,
        hostname=hostname,
        identity=(plan.run_dir, plan.user),
        secret=secret,
    )


def make_local_context(
    *,
    node_rank: int,
    num_nodes: int,
    local_world_size: int,
    devices: tuple[str, ...],
    main_address: str | None,
    hostname: str,
    identity: tuple[str, ...],
    secret: bytes = b"",
) -> NodeContext:
    """Compose the place of one of the nodes that stand side by side on this machine.

    Args:
        node_rank: In ``[0, num_nodes)``.
        num_nodes: Nodes of the run. Count, at least 1.
        local_world_size: Workers a node. Count, at least 1.
        devices: This node's share of the machine's devices.
        main_address: As given by hand, or None.
        hostname: This machine's name.
        identity: What tells the run from others on this machine, for the ports.
        secret: The run's secret, for the ports.
    """
    return NodeContext(
        job_id=None,
        step_id=None,
        node_rank=node_rank,
        num_nodes=num_nodes,
        hosts=(hostname,) * num_nodes,
        main_address=LOOPBACK if not main_address else render_main_address(main_address, host=hostname),
        port_candidates=make_port_candidates("local", *identity, secret=secret),
        local_world_size=local_world_size,
        devices=devices,
        restart_count=0,
        source="local",
    )
