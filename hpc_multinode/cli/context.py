"""``context``: tell what this process's environment says of its place, so that it can be asked on any cluster."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING

from hpc_multinode.cli.composing import compose_from
from hpc_multinode.config import Mode
from hpc_multinode.node.local import make_local_context
from hpc_multinode.person import find_login_name
from hpc_multinode.preparation import decide_mode, see_devices
from hpc_multinode.slurm.environment import parse_node_context

if TYPE_CHECKING:
    from hpc_multinode.cli.command_line import CommandLine
    from hpc_multinode.context import NodeContext


def run(line: CommandLine) -> int:
    """Print this process's place and return 0; an error where it cannot be known is exit code 2."""
    node = _find_context(line)
    told = {**asdict(node), "world_size": node.world_size}
    if line.wants_json:
        print(json.dumps(told))  # noqa: T201
        return 0
    width = max(map(len, told))
    for name, value in told.items():
        text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        print(f"{name:{width}}  {text or '-'}")  # noqa: T201
    return 0


def _find_context(line: CommandLine) -> NodeContext:
    config = compose_from(line).config
    mode = decide_mode(config.cluster.mode, os.environ)
    is_local = mode in (Mode.local, Mode.debug) or (mode is Mode.slurm and config.cluster.mode is Mode.auto)
    devices = see_devices(Mode.local if is_local else Mode.allocation)
    resources = config.resources
    workers = resources.workers_per_node or resources.gpus_per_node or len(devices) or 1
    address, hostname, user = config.launch.main_address, socket.gethostname(), find_login_name()
    if is_local:
        return make_local_context(
            node_rank=0,
            num_nodes=config.nodes or 1,
            local_world_size=workers,
            devices=devices,
            main_address=address,
            hostname=hostname,
            identity=(user,),
        )
    return parse_node_context(
        os.environ,
        local_world_size=workers,
        gpus_per_node=resources.gpus_per_node,
        num_nodes=config.nodes,
        main_address=address,
        hostname=hostname,
        user=user,
    )
