"""Start of a node's forkserver: the first thing that an agent does, because importing the framework takes longest.

What this module imports stands between the start of a job and that import, so it is little: no asyncio, none of the
agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_multinode.node.environment import make_node_env
from hpc_multinode.node.scratch import replace_missing_tmpdir

if TYPE_CHECKING:
    from hpc_multinode.context import NodeContext
    from hpc_multinode.plan import LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A forkserver that is importing the framework.

    Attributes:
        process: It; it ends when the socket is closed.
        connection: Our end of the socket on which it is asked things.
        warnings: What was changed for it and is to be told, a line each.
    """

    process: subprocess.Popen[bytes]
    connection: socket.socket
    warnings: tuple[str, ...]


def start_server(plan: LaunchPlan, node: NodeContext) -> Server:
    """Start the forkserver and have it import the framework.

    Args:
        plan: The run.
        node: This node; its variables and the plan's are what the workers inherit, and what a library reads at import.
    """
    env = make_node_env(os.environ, plan=plan, node=node)
    warnings = replace_missing_tmpdir(env)
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(  # noqa: S603 - the command is ours
        [sys.executable, "-m", "hpc_multinode.node.forkserver", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=env,
        cwd=plan.run_dir,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    with contextlib.suppress(ConnectionError):  # it has ended already, which the agent will hear
        ours.sendall(make_request(kind="prepare", plan=plan.to_json()))
    return Server(process=process, connection=ours, warnings=tuple(warnings))


def make_request(**request: object) -> bytes:
    """Write what the forkserver is asked: one JSON line."""
    return json.dumps(request).encode() + b"\n"
