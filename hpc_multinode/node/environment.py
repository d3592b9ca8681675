"""The variables of the workers: the one place that writes ``MASTER_*`` and torchrun's other names.

Pure. What a library reads while it is imported is in the node's variables, which the forkserver has from its start;
what differs between workers is set after the fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.devices import DEVICE_VARIABLES
from hpc_multinode.slurm.environment import parse_cpus_on_node
from hpc_multinode.slurm.leaking import is_leaking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.context import NodeContext, WorkerContext
    from hpc_multinode.plan import LaunchPlan

# The launcher's pid, where it is in the foreground: its end is the run's end.
LAUNCHER_PID = "HPC_MULTINODE_LAUNCHER_PID"


def make_node_env(environ: Mapping[str, str], *, plan: LaunchPlan, node: NodeContext) -> dict[str, str]:
    """Compose the variables that all workers of a node share.

    Args:
        environ: The agent's own variables.
        plan: The run; its ``env`` wins over everything that is not a rank.
        node: This node.
    """
    is_local = node.source == "local"
    env = {name: value for name, value in environ.items() if not _is_foreign(name, is_local=is_local)}
    # Children of a worker have no line buffering of ours: what they print must not wait for 8 KiB either.
    env["PYTHONUNBUFFERED"] = "1"
    cpus = plan.threads if is_local else _cpus_per_worker(environ, node)
    if cpus is not None:
        env.setdefault("OMP_NUM_THREADS", str(cpus))
    if is_local:
        # One machine: torch's store and gloo then need no name of it that resolves.
        env.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if node.devices or plan.gpus_per_node == 0:
            variable = next((name for name in DEVICE_VARIABLES if name in environ), DEVICE_VARIABLES[0])
            env[variable] = ",".join(node.devices)
    env.update(plan.env)
    return env


def make_worker_env(plan: LaunchPlan, worker: WorkerContext) -> dict[str, str]:
    """Compose the variables of one worker: those that torchrun sets.

    Args:
        plan: The run.
        worker: The worker's place in it.

    Source:
        https://docs.pytorch.org/docs/stable/elastic/run.html, Environment Variables.
    """
    numbers = {
        "RANK": worker.global_rank,
        "WORLD_SIZE": worker.world_size,
        "LOCAL_RANK": worker.local_rank,
        "LOCAL_WORLD_SIZE": worker.local_world_size,
        "NODE_RANK": worker.node_rank,
        "GROUP_RANK": worker.node_rank,
        "GROUP_WORLD_SIZE": worker.num_nodes,
        "ROLE_RANK": worker.global_rank,
        "ROLE_WORLD_SIZE": worker.world_size,
        "MASTER_PORT": worker.main_port,
        "TORCHELASTIC_RESTART_COUNT": worker.attempt,
        "TORCHELASTIC_MAX_RESTARTS": plan.max_restarts,
    }
    return {
        "MASTER_ADDR": worker.main_address,
        "TORCHELASTIC_RUN_ID": f"{plan.run_id}-{worker.attempt}",
        "ROLE_NAME": "default",
        **{name: str(number) for name, number in numbers.items()},
    }


def _is_foreign(name: str, *, is_local: bool) -> bool:
    """Say whether a variable belongs to an outer job or launcher; in a step of our own, SLURM_* is ours."""
    if name == LAUNCHER_PID:
        return True
    return is_leaking(name) and (is_local or not name.startswith(("SLURM_", "SLURMD_")))


def _cpus_per_worker(environ: Mapping[str, str], node: NodeContext) -> int | None:
    cpus = parse_cpus_on_node(environ)
    return None if cpus is None else max(1, cpus // node.local_world_size)
