"""``cluster=allocation``: processes that srun has started alone, one a node, become the agents of a run.

Node 0 alone composes the configuration and makes the run folder; the plan comes to the other nodes with the start.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError, MultiNodeError
from hpc_multinode.logs import LogFollower
from hpc_multinode.node.agent import Agent
from hpc_multinode.node.hub import refuse
from hpc_multinode.node.link import join_remote
from hpc_multinode.node.server import start_server
from hpc_multinode.person import find_login_name, find_state
from hpc_multinode.plan import LaunchPlan
from hpc_multinode.registry import register
from hpc_multinode.report import Report, render_report
from hpc_multinode.runs import RunFolder, wait_for
from hpc_multinode.slurm.environment import parse_cluster_name, parse_node_context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hpc_multinode.context import NodeContext
    from hpc_multinode.node.server import Server

_SECRET_BYTES = 32
_POLL_S = 0.05
# For a plan that did not come: how long the others wait to be told so, and node 0 to tell them.
_REFUSE_S = 10.0
_DEFAULT_JOIN_S = 300.0


def run_here(
    prepare: Callable[[NodeContext], tuple[LaunchPlan, str]], *, fill: Callable[[LaunchPlan, RunFolder], str]
) -> int:
    """Be this node's agent in the job step that we are in, and return the exit code of this task.

    Args:
        prepare: Composes the plan and the configuration's text for node 0's place.
        fill: Adds to the run folder what the plan says, and composes the header of the run.

    Raises:
        MultiNodeError: Our place cannot be known, or on node 0 the plan is wrong; the other nodes have been told.
    """
    user = find_login_name()
    node = parse_node_context(os.environ, local_world_size=1, hostname=socket.gethostname(), user=user)
    secret = _derive_secret(node)
    if node.node_rank > 0:
        return asyncio.run(_follow(node, secret))
    try:
        plan, config_text = prepare(node)
        node = _take_plan(node, plan)
        folder = RunFolder.create(plan, config_text=config_text, may_exist=True)
        header = fill(plan, folder)
        register(plan, job_id=node.job_id, step_id=node.step_id, cluster=parse_cluster_name(os.environ))
    except BaseException:  # whatever it was, the others wait for a plan
        if node.num_nodes > 1:
            asyncio.run(refuse(node, secret, timeout_s=_REFUSE_S))
        raise
    print(header, flush=True)  # noqa: T201
    began = time.monotonic()
    agent = Agent(folder=folder, plan=plan, node=node, secret=secret, server=start_server(plan, node), sends_plan=True)
    code = asyncio.run(_show_while(agent, plan, node))
    report = Report.read(folder.path)
    closing = render_report(report, duration_s=time.monotonic() - began, has_shown_logs=True)
    print(closing, flush=True)  # noqa: T201
    return code


async def _follow(node: NodeContext, secret: bytes) -> int:
    """Wait for node 0's plan and be the agent that it asks for."""
    link = await join_remote(node, secret, address=node.hosts[0], timeout_s=_DEFAULT_JOIN_S, tell=_say)
    first = await link.receive()
    while first is not None and first["kind"] == "beat":
        first = await link.receive()
    if first is None or first["kind"] != "start":  # node 0 has said why
        return 0
    plan = LaunchPlan.from_json(first["plan"])
    folder = RunFolder(path=Path(plan.run_dir), is_private=plan.is_private)
    server: Server | MultiNodeError
    try:
        node = _take_plan(node, plan)
        wait_for(folder.path, timeout_s=plan.join_timeout_s)
        server = start_server(plan, node)
    except MultiNodeError as error:
        server = error
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201
    agent = Agent(folder=folder, plan=plan, node=node, secret=secret, server=server, joined=(link, first))
    return await _show_while(agent, plan, node)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _take_plan(node: NodeContext, plan: LaunchPlan) -> NodeContext:
    """Return this node's place once the plan tells what is asked of it.

    Raises:
        MultiNodeError: The step is not what the plan asks for.
    """
    checked = parse_node_context(
        os.environ,
        local_world_size=plan.local_world_size,
        hostname=socket.gethostname(),
        gpus_per_node=plan.gpus_per_node,
        main_address=plan.main_address,
        num_nodes=plan.num_nodes,
        user=plan.user,
    )
    return replace(checked, port_candidates=node.port_candidates)


async def _show_while(agent: Agent, plan: LaunchPlan, node: NodeContext) -> int:
    """Print this node's ranks' lines while the agent runs; a reader that is slow holds up nobody but the printing."""
    ended = threading.Event()
    follower = LogFollower(Path(plan.run_dir), ranks=node.global_ranks)

    def follow() -> None:
        while not ended.wait(_POLL_S):
            _print_all(follower.read_new())
        _print_all(follower.read_rest())

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        return await agent.run()
    finally:
        ended.set()
        thread.join()


def _print_all(lines: Iterable[tuple[int, str]]) -> None:
    for rank, line in lines:
        sys.stdout.write(f"[{rank}] {line}\n")
    sys.stdout.flush()


def _derive_secret(node: NodeContext) -> bytes:
    """Derive the run's secret from the person's own, which only their processes can read, and the job step."""
    identity = f"{node.job_id} {node.step_id} {node.component} {node.restart_count}"
    return hmac.new(_read_own_secret(), identity.encode(), hashlib.sha256).digest()


def _read_own_secret() -> bytes:
    """Return the person's secret; made by whoever comes first, all at once, and never written again."""
    state = find_state(os.environ)
    if state is None:
        raise ConfigError(
            what="there is no home folder to keep your secret in",
            found="HOME and XDG_STATE_HOME are unset",
            fix="export XDG_STATE_HOME=FOLDER, private and shared by all nodes",
        )
    path = state / "secret"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".secret.{socket.gethostname()}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(_SECRET_BYTES))
    try:
        os.link(draft, path)  # fails where another node was first
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_bytes()
