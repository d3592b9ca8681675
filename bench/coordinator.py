"""The coordinator with many agents: time to join and start, time for a failure to reach all, memory, strangers.

The hub runs in this process, all agents as light clients in another one, over sockets of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import resource
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from bench.figures import Figure, make_ratio
from bench.lab import pick, pick_both
from hpc_multinode.context import NodeContext
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.hub import Hub
from hpc_multinode.node.link import join_remote
from hpc_multinode.ports import find_free_port
from hpc_multinode.report import Outcome

if TYPE_CHECKING:
    from bench.lab import Lab

SECRET = b"the run's secret"
LOOPBACK = "127.0.0.1"
# How many of the clients connect at the same moment.
_AT_ONCE = 512
# The size that the target of a second is for.
_TARGET_AGENTS = 1_000
_NAMES = ("join_s", "join_cpu_s", "failure_s", "memory_mb")


def measure(lab: Lab) -> None:
    """Measure for each number of agents."""
    sizes = ((10, 0), (100, 0), (1_000, 0), (1_000, 1_000), (4_000, 0))
    rounds = lab.run_rounds({_name(*size): partial(_measure_once, *size) for size in sizes})
    for num_agents, num_strangers in sizes:
        who = _name(num_agents, num_strangers)
        is_aimed_at = num_agents == _TARGET_AGENTS and not num_strangers
        for name in _NAMES:
            *words, unit = name.split("_")
            if values := pick(rounds, who, name):
                lab.add(
                    Figure(
                        what=f"{who}: {' '.join(words)}",
                        unit={"s": "s", "mb": "MB"}[unit],
                        values=values,
                        most=1.0 if is_aimed_at and unit == "s" else None,
                        in_table=is_aimed_at and unit == "s",
                    )
                )
    for name in _NAMES:
        # Ten times the agents may cost ten times as much, with some room, and not a hundred times.
        more, less = pick_both(rounds, _name(1_000, 0), _name(100, 0), name)
        if less:
            lab.add(make_ratio(f"{' '.join(name.split('_')[:-1])}, 1,000 agents to 100", more, less, most=20.0))


def _name(num_agents: int, num_strangers: int) -> str:
    return f"{num_agents:,} agents" + (f", {num_strangers:,} silent strangers" if num_strangers else "")


def _measure_once(num_agents: int, num_strangers: int) -> dict[str, float]:
    """Run hub and agents once, each in a fresh process, so that one run's memory is not the next one's."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_hub, args=(num_agents, theirs))
    process.start()
    port = ours.recv()
    clients = context.Process(target=_run_clients, args=(num_agents, num_strangers, port))
    clients.start()
    figures: dict[str, float] = ours.recv()
    clients.join()
    process.join()
    return figures


def _make_node(node_rank: int, num_nodes: int, port: int) -> NodeContext:
    return NodeContext(
        job_id=None,
        step_id=None,
        node_rank=node_rank,
        num_nodes=num_nodes,
        hosts=(LOOPBACK,) * num_nodes,
        main_address=LOOPBACK,
        port_candidates=(port,),
        local_world_size=1,
        devices=(),
        restart_count=0,
        source="local",
    )


def _run_hub(num_agents: int, pipe: Any) -> None:  # noqa: ANN401 - multiprocessing's own
    asyncio.run(_serve(num_agents, pipe))


async def _serve(num_agents: int, pipe: Any) -> None:  # noqa: ANN401
    coordinator = Coordinator(num_nodes=num_agents + 1)
    times: dict[str, float] = {}

    def record(node_rank: int | None, message: dict[str, Any]) -> None:
        if message["kind"] == "joined" and node_rank:
            times.setdefault("first", time.monotonic())
            times.setdefault("first_cpu", time.process_time())
        times[message["kind"]] = time.monotonic()
        times[f"{message['kind']}_cpu"] = time.process_time()

    async def make_start() -> dict[str, Any]:
        return {"main_address": LOOPBACK, "main_port": 1, "attempt": 0}

    async def finish() -> int:
        return 0

    def fail(error: Exception) -> None:
        raise error

    hub = Hub(coordinator, make_start=make_start, finish=finish, heartbeat_s=60.0, record=record, on_broken=fail)
    port = find_free_port(LOOPBACK)
    await hub.listen(_make_node(0, num_agents + 1, port), SECRET, bind_host=LOOPBACK)
    link = hub.join_local("n0")
    pipe.send(port)
    while "start" not in times:
        await asyncio.sleep(0.001)
    joined_s, joined_cpu_s = times["start"] - times["first"], times["start_cpu"] - times["first_cpu"]
    while hub.num_remote < num_agents:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.5)
    memory_mb = psutil.Process().memory_info().rss / 2**20
    outcome = Outcome(node_rank=0, host="n0", global_rank=0, exit_code=1, exception="ValueError", message="boom")
    began = time.monotonic()
    link.send({"kind": "failed", "outcome": outcome.to_json()})
    link.send({"kind": "ended", "outcomes": []})
    while "done" not in times:
        await asyncio.sleep(0.001)
    # Each agent has answered the stop with its end.
    pipe.send(
        {
            "join_s": joined_s,
            # What of it is the coordinator's own; the rest waits for the agents, who share one process here.
            "join_cpu_s": joined_cpu_s,
            "failure_s": times["done"] - began,
            "memory_mb": memory_mb,
        }
    )
    await hub.wait_until_left(10.0)


def _run_clients(num_agents: int, num_strangers: int, port: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(_join_all(num_agents, num_strangers, port))


async def _join_all(num_agents: int, num_strangers: int, port: int) -> None:
    strangers = [await asyncio.open_connection(LOOPBACK, port) for _ in range(num_strangers)]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def be_agent(rank: int) -> None:
        async with gate:
            node = _make_node(rank, num_agents + 1, port)
            link = await join_remote(node, SECRET, address=LOOPBACK, timeout_s=60.0, tell=print)
        while (message := await link.receive()) is not None and message["kind"] != "done":
            if message["kind"] == "stop":
                link.send({"kind": "ended", "outcomes": []})

    await asyncio.gather(*(be_agent(rank) for rank in range(1, num_agents + 1)))
    for _, writer in strangers:
        with contextlib.suppress(OSError):
            writer.close()
