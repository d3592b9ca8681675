"""Several light agents and a hub in one event loop, over real sockets of this machine."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.context import NodeContext
from hpc_multinode.errors import RendezvousError
from hpc_multinode.node.coordinator import Coordinator
from hpc_multinode.node.hub import Hub
from hpc_multinode.node.link import Link, SocketLink, join_remote
from hpc_multinode.ports import find_free_port
from hpc_multinode.report import Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

LOOPBACK = "127.0.0.1"
SECRET = b"the run's secret"
START = {"main_address": "n0", "main_port": 1234, "attempt": 0}
# Bounds a wait for what must come; nothing waits this long.
SOON_S = 10.0


class Nodes:
    """A hub on node 0 and what it has asked of its agent.

    Args:
        num_nodes: Nodes of the run.
        start_error: What the hub gets instead of coordinates to start with.
        heartbeat_s: Silence after which an agent counts as lost, in seconds.
    """

    def __init__(
        self, num_nodes: int, *, start_error: RendezvousError | None = None, heartbeat_s: float = 60.0
    ) -> None:
        self.num_nodes = num_nodes
        self.ports = (find_free_port(LOOPBACK), find_free_port(LOOPBACK))
        self.num_starts = 0
        self.coordinator = Coordinator(num_nodes=num_nodes)
        self.told: list[str] = []
        self.broken: list[Exception] = []
        self.events: list[tuple[int | None, dict[str, Any]]] = []
        self.hub = Hub(
            self.coordinator,
            make_start=self._make_start,
            finish=self._finish,
            heartbeat_s=heartbeat_s,
            record=lambda rank, message: self.events.append((rank, message)),
            on_broken=self.broken.append,
        )
        self._start_error = start_error
        self._links: list[SocketLink] = []

    async def _finish(self) -> int:
        return 7

    async def _make_start(self) -> dict[str, Any]:
        self.num_starts += 1
        if self._start_error is not None:
            raise self._start_error
        return START

    def context(self, node_rank: int) -> NodeContext:
        """Return one node's place."""
        return NodeContext(
            job_id=None,
            step_id=None,
            node_rank=node_rank,
            num_nodes=self.num_nodes,
            hosts=tuple(f"n{rank}" for rank in range(self.num_nodes)),
            main_address=LOOPBACK,
            port_candidates=self.ports,
            local_world_size=1,
            devices=(),
            restart_count=0,
            source="local",
        )

    async def listen(self) -> Link:
        """Open the hub and join as node 0."""
        await self.hub.listen(self.context(0), SECRET, bind_host=LOOPBACK)
        return self.hub.join_local("n0")

    async def join(self, node_rank: int, *, secret: bytes = SECRET, timeout_s: float = SOON_S) -> SocketLink:
        """Join as another node."""
        link = await join_remote(
            self.context(node_rank), secret, address=LOOPBACK, timeout_s=timeout_s, tell=self.told.append
        )
        self._links.append(link)
        return link

    async def close(self) -> None:
        """End all connections as the ends of the processes would."""
        for link in self._links:
            hang_up(link)
        if self.hub._server is not None:  # noqa: SLF001 - only the process's end closes it
            self.hub._server.close()  # noqa: SLF001
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=SOON_S)
        await asyncio.sleep(0)


@asynccontextmanager
async def open_nodes(num_nodes: int, **options: Any) -> AsyncIterator[Nodes]:
    """Yield the nodes of a run, and close everything after it."""
    nodes = Nodes(num_nodes, **options)
    try:
        yield nodes
    finally:
        await nodes.close()


def hang_up(link: SocketLink) -> None:
    """Close an agent's connection, as the end of its process does."""
    link._writer.close()  # noqa: SLF001 - only the process's end closes it


async def receive(link: Link) -> dict[str, Any] | None:
    """Wait for one message, but not for ever; of a stop only kind and reason."""
    message = await asyncio.wait_for(link.receive(), SOON_S)
    if message is not None and message["kind"] == "stop":
        assert message.pop("why")
    return message


def run(history: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a history to its end."""
    asyncio.run(history())


def fail(rank: int) -> dict[str, Any]:
    """Return the words with which a node tells a worker's failure."""
    outcome = Outcome(node_rank=rank, host=f"n{rank}", global_rank=rank, exit_code=1, exception="ValueError")
    return {"kind": "failed", "outcome": outcome.to_json()}


ENDED: dict[str, Any] = {"kind": "ended", "outcomes": []}


def test_all_nodes_start_when_the_last_has_come() -> None:
    """Every node gets the same start."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            links = [await nodes.listen(), await nodes.join(2), await nodes.join(1)]
            assert [await receive(link) for link in links] == [{"kind": "start", **START}] * 3

    run(history)


def test_nothing_starts_while_a_node_is_missing() -> None:
    """Two of three nodes wait."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            await nodes.listen()
            await nodes.join(1)
            assert nodes.coordinator.attempt.started is None
            assert nodes.num_starts == 0

    run(history)


def test_a_single_node_needs_no_socket() -> None:
    """A run of one node starts at once, and listens nowhere."""

    async def history() -> None:
        async with open_nodes(1) as nodes:
            assert await receive(nodes.hub.join_local("n0")) == {"kind": "start", **START}

    run(history)


def test_agents_may_come_before_the_coordinator() -> None:
    """A node that is early tries again until node 0 listens."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            joining = asyncio.create_task(nodes.join(1))
            await asyncio.sleep(0)
            await nodes.listen()
            assert await receive(await joining) == {"kind": "start", **START}

    run(history)


def test_many_nodes_join_at_once() -> None:
    """Fifty agents that come together all start."""

    async def history() -> None:
        async with open_nodes(50) as nodes:
            await nodes.listen()
            links = await asyncio.gather(*(nodes.join(rank) for rank in range(1, 50)))
            assert [await receive(link) for link in links] == [{"kind": "start", **START}] * 49

    run(history)


def test_a_failure_reaches_every_node() -> None:
    """A worker's failure on one node stops all, the failing one too."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            links = [await nodes.listen(), await nodes.join(1), await nodes.join(2)]
            assert [await receive(link) for link in links] == [{"kind": "start", **START}] * 3
            links[2].send(fail(2))
            assert [await receive(link) for link in links] == [{"kind": "stop", "reason": "failure"}] * 3

    run(history)


def test_done_comes_when_all_have_ended() -> None:
    """The run's exit code is told to all nodes at the very end, and once."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            links = [await nodes.listen(), await nodes.join(1)]
            assert [await receive(link) for link in links] == [{"kind": "start", **START}] * 2
            links[1].send(ENDED)
            links[0].send(ENDED)
            assert [await receive(link) for link in links] == [{"kind": "done", "exit_code": 7}] * 2

    run(history)


def test_a_node_that_hangs_up_stops_the_others() -> None:
    """The end of an agent's connection counts at once, and the node is named."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            local, leaving, staying = await nodes.listen(), await nodes.join(1), await nodes.join(2)
            assert await receive(local) == await receive(staying) == {"kind": "start", **START}
            hang_up(leaving)
            assert await receive(local) == await receive(staying) == {"kind": "stop", "reason": "failure"}
            assert [(lost.host, lost.failure_class) for _, lost in nodes.coordinator.attempt.failures] == [
                ("n1", "lost_node")
            ]

    run(history)


def test_a_node_that_talks_nonsense_is_lost() -> None:
    """An agent that no longer speaks our language is treated as gone."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            local, link = await nodes.listen(), await nodes.join(1)
            assert await receive(local) == {"kind": "start", **START}
            link._writer.write(b"nonsense\n")  # noqa: SLF001 - an agent of ours cannot say this
            assert await receive(local) == {"kind": "stop", "reason": "failure"}

    run(history)


def test_the_loss_of_the_coordinator_is_seen_by_the_agents() -> None:
    """An agent whose coordinator is gone gets None."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            await nodes.listen()
            link = await nodes.join(1)
            assert await receive(link) == {"kind": "start", **START}
            for writer in nodes.hub._writers.values():  # noqa: SLF001 - as the end of node 0's process does
                writer.transport.abort()
            assert await receive(link) is None

    run(history)


def test_node_0_leaves_last() -> None:
    """Node 0 waits until the others have hung up."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            await nodes.listen()
            link = await nodes.join(1)
            waiting = asyncio.create_task(nodes.hub.wait_until_left(SOON_S))
            await asyncio.sleep(0)
            assert not waiting.done()
            hang_up(link)
            began = time.monotonic()
            await waiting
            assert time.monotonic() - began < SOON_S / 2

    run(history)


def test_node_0_does_not_wait_for_ever() -> None:
    """An agent that never hangs up keeps node 0 for a bounded time."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            await nodes.listen()
            await nodes.join(1)
            await nodes.hub.wait_until_left(0.05)

    run(history)


def test_a_node_that_never_comes_is_named() -> None:
    """At the time limit the run fails with who is missing, by rank and host, where it was awaited, and a hint."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            local, link = await nodes.listen(), await nodes.join(1)
            told: list[str] = []
            await nodes.hub.watch_joining(nodes.context(0), timeout_s=0.1, tell=told.append)
            stop = {"kind": "stop", "reason": "failure"}
            assert await receive(local) == await receive(link) == stop
            _, absent = nodes.coordinator.attempt.failures[0]
            assert (absent.node_rank, absent.host, absent.failure_class) == (2, "n2", "rendezvous")
            for part in ("did not come within", LOOPBACK, *map(str, nodes.ports), "NCCL_SOCKET_IFNAME"):
                assert part in str(absent.message)
            assert "nor did" not in str(absent.message)

    run(history)


def test_the_run_says_for_whom_it_waits() -> None:
    """Waiting is told by rank and host with the seconds."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            await nodes.listen()
            told: list[str] = []
            await nodes.hub.watch_joining(nodes.context(0), timeout_s=0.1, tell=told.append)
            assert told == ["waiting for node 1 (n1), node 2 (n2): 0 s of 0 s"]

    run(history)


def test_nobody_is_missed_when_all_have_come() -> None:
    """Where all nodes are there, the watch ends without a word."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            await nodes.listen()
            await nodes.join(1)
            told: list[str] = []
            await nodes.hub.watch_joining(nodes.context(0), timeout_s=0.1, tell=told.append)
            assert told == []
            assert nodes.coordinator.attempt.failures == []

    run(history)


def test_a_node_that_joins_a_stopping_run_is_told() -> None:
    """Who comes when the run is already being stopped does not wait for a start that never comes."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            local = await nodes.listen()
            await nodes.join(1)
            local.send({"kind": "signal", "signal": "SIGTERM"})
            late = await nodes.join(2)
            told = await asyncio.wait_for(late.receive(), 1.0)
            assert told is not None
            assert told["kind"] in ("stop", "done")

    run(history)


def test_a_stopped_run_is_not_prepared_for_a_start() -> None:
    """No port is looked for and no attempt is counted for a run that was stopped before all had come."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            local = await nodes.listen()
            local.send({"kind": "signal", "signal": "SIGTERM"})
            await nodes.join(1)
            for _ in range(3):
                await asyncio.sleep(0)
            assert nodes.num_starts == 0

    run(history)


def test_a_start_that_cannot_be_made_ends_the_run() -> None:
    """A busy port that was given by hand stops all nodes and is named."""
    busy = RendezvousError(what="main_port 80 busy on host n0", found="launch.main_port=80", fix="another")

    async def history() -> None:
        async with open_nodes(2, start_error=busy) as nodes:
            local, link = await nodes.listen(), await nodes.join(1)
            stop = {"kind": "stop", "reason": "failure"}
            assert await receive(local) == await receive(link) == stop
            _, failure = nodes.coordinator.attempt.failures[0]
            assert failure.failure_class == "rendezvous"
            assert "main_port 80 busy on host n0" in str(failure.message)

    run(history)


def test_a_second_agent_of_one_rank_is_turned_away() -> None:
    """Who comes as a node that is there already is hung up on, and the run goes on."""

    async def history() -> None:
        async with open_nodes(3) as nodes:
            local, first = await nodes.listen(), await nodes.join(1)
            twin = await nodes.join(1)
            assert await receive(twin) is None
            await nodes.join(2)
            assert await receive(local) == await receive(first) == {"kind": "start", **START}

    run(history)


def test_a_rank_outside_the_run_is_turned_away() -> None:
    """An agent of a run with more nodes is hung up on."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            await nodes.listen()
            wide = Nodes(5)
            wide.ports = nodes.ports
            stranger = await join_remote(
                wide.context(4), SECRET, address=LOOPBACK, timeout_s=SOON_S, tell=nodes.told.append
            )
            assert await receive(stranger) is None
            hang_up(stranger)
            assert nodes.coordinator.missing == (1,)

    run(history)


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\n\r\n", b"", b"[" * 4000 + b"\n", b'{"hello": {}, "nonce": "0", "proof": "\xc3\xa9"}\n'],
    ids=["http", "nothing", "nested", "not-ascii"],
)
def test_a_stranger_on_the_port_is_hung_up_on(words: bytes) -> None:
    """A program that talks something else is dropped without a fault, and the run starts all the same."""

    async def history() -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with open_nodes(2) as nodes:
            local = await nodes.listen()
            reader, writer = await asyncio.open_connection(LOOPBACK, nodes.ports[0])
            try:
                writer.write(words)
                if not words:
                    writer.write_eof()
                await asyncio.wait_for(reader.read(), 2.0)  # to the end: the hub has hung up
            finally:
                writer.transport.abort()
            await nodes.join(1)
            assert await receive(local) == {"kind": "start", **START}
        assert faults == []

    run(history)


def test_silent_strangers_do_not_delay_the_start() -> None:
    """Programs that connect and say nothing keep nobody waiting."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            local = await nodes.listen()
            strangers = [await asyncio.open_connection(LOOPBACK, nodes.ports[0]) for _ in range(20)]
            await nodes.join(1)
            assert await receive(local) == {"kind": "start", **START}
            for _, writer in strangers:
                writer.transport.abort()

    run(history)


def test_a_taken_first_candidate_is_passed_over() -> None:
    """Where another program listens on the first port, the run meets on the second."""

    async def history() -> None:
        async with open_nodes(2) as nodes:

            def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"220 mail.example.org ESMTP\r\n")
                writer.close()

            server = await asyncio.start_server(greet, LOOPBACK, nodes.ports[0])
            local = await nodes.listen()
            link = await nodes.join(1)
            assert await receive(local) == await receive(link) == {"kind": "start", **START}
            server.close()

    run(history)


def test_another_run_on_the_first_candidate_is_passed_over() -> None:
    """A coordinator with another secret on the same port is not this run's."""

    async def history() -> None:
        async with open_nodes(2) as theirs, open_nodes(2) as ours:
            await theirs.listen()
            ours.ports = (theirs.ports[0], ours.ports[1])
            await ours.hub.listen(ours.context(0), b"ours", bind_host=LOOPBACK)
            local = ours.hub.join_local("n0")
            link = await ours.join(1, secret=b"ours")
            assert await receive(local) == await receive(link) == {"kind": "start", **START}
            assert theirs.coordinator.missing == (1,)

    run(history)


def test_a_malicious_program_on_a_candidate_is_passed_over() -> None:
    """Whatever listens on the first port cannot end an agent's search."""

    async def history() -> None:
        async with open_nodes(2) as nodes:

            def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"[" * 4000 + b"\n")
                writer.close()

            server = await asyncio.start_server(greet, LOOPBACK, nodes.ports[0])
            await nodes.listen()
            try:
                assert await receive(await nodes.join(1)) == {"kind": "start", **START}
            finally:
                server.close()

    run(history)


def test_all_candidates_taken_is_an_error_that_names_them() -> None:
    """Without a port the coordinator says which it tried and where."""

    async def history() -> None:
        async with open_nodes(2) as nodes, AsyncExitStack() as taken:
            for port in nodes.ports:
                taken.enter_context(socket.create_server((LOOPBACK, port)))
            with pytest.raises(RendezvousError) as caught:
                await nodes.listen()
            assert all(str(port) in caught.value.found for port in nodes.ports)
            assert "n0" in caught.value.found

    run(history)


def test_no_coordinator_is_an_error_that_names_who_and_where() -> None:
    """An agent that finds nobody says who it is, where it looked and what it met there."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            with pytest.raises(RendezvousError) as caught:
                await nodes.join(1, timeout_s=0.1)
            assert "node 1 (n1)" in caught.value.what
            assert all(part in caught.value.found for part in (LOOPBACK, *map(str, nodes.ports), "refused"))

    run(history)


async def serve_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be a mail server."""
    writer.write(b"220 mail.example.org ESMTP\r\n")
    await reader.read()
    writer.close()


def test_a_stranger_instead_of_the_coordinator_is_told_as_such() -> None:
    """An agent that meets only another program says that something else listens there."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            nodes.ports = nodes.ports[:1]
            server = await asyncio.start_server(serve_nonsense, LOOPBACK, nodes.ports[0])
            with pytest.raises(RendezvousError) as caught:
                await nodes.join(1, timeout_s=0.2)
            assert f"port {nodes.ports[0]}: something else listens there" in caught.value.found
            server.close()

    run(history)


def test_another_secret_is_told_at_once_and_at_the_end() -> None:
    """Homes that are not shared are named long before the time is up, and the error says what to do."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            await nodes.listen()
            nodes.ports = nodes.ports[:1]
            with pytest.raises(RendezvousError) as caught:
                await nodes.join(1, secret=b"another", timeout_s=0.2)
            assert "knows another secret" in caught.value.found
            assert "XDG_STATE_HOME" in caught.value.fix
            (told,) = nodes.told
            assert "another secret" in told
            assert (None, "stranger") in [(rank, event["kind"]) for rank, event in nodes.events]

    run(history)


def test_a_name_that_does_not_resolve_is_told_as_such() -> None:
    """The error says that the name is the trouble, and how to give another."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            with pytest.raises(RendezvousError) as caught:
                await join_remote(
                    nodes.context(1), SECRET, address="no-such-host.invalid", timeout_s=0.2, tell=nodes.told.append
                )
            assert "does not resolve" in caught.value.found
            assert "launch.main_address" in caught.value.fix

    run(history)


def test_a_port_that_does_not_answer_is_told_as_such() -> None:
    """A program that takes connections and is silent is no coordinator, and holds nobody for longer than the limit."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            with socket.create_server((LOOPBACK, nodes.ports[0])):
                nodes.ports = nodes.ports[:1]
                began = time.monotonic()
                with pytest.raises(RendezvousError):
                    await nodes.join(1, timeout_s=0.2)
                assert time.monotonic() - began < SOON_S

    run(history)


def test_a_node_whose_heartbeats_stop_is_lost() -> None:
    """An agent that is connected and says nothing is lost, by name, when the time is up."""

    async def history() -> None:
        async with open_nodes(2, heartbeat_s=0.3) as nodes:
            local = await nodes.listen()
            await nodes.join(1)
            assert await receive(local) == {"kind": "start", **START}
            watching = asyncio.create_task(nodes.hub.watch_heartbeats())
            assert await receive(local) == {"kind": "stop", "reason": "failure"}
            watching.cancel()
            _, lost = nodes.coordinator.attempt.failures[0]
            assert (lost.host, lost.failure_class) == ("n1", "lost_node")
            assert "no heartbeat" in str(lost.message)

    run(history)


def test_a_node_that_sends_heartbeats_is_not_lost() -> None:
    """An agent that has nothing to say but that it is there stays, and hears the same of the coordinator."""

    async def history() -> None:
        async with open_nodes(2, heartbeat_s=0.3) as nodes:
            await nodes.listen()
            link = await nodes.join(1)
            assert await receive(link) == {"kind": "start", **START}
            watching = asyncio.create_task(nodes.hub.watch_heartbeats())
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                link.send({"kind": "beat"})
                assert await receive(link) == {"kind": "beat"}
            watching.cancel()
            assert nodes.coordinator.attempt.failures == []

    run(history)


def test_a_restart_starts_all_nodes_again() -> None:
    """After a failure, when all workers are gone, every agent is told the next start."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            nodes.coordinator._max_restarts = 1  # noqa: SLF001 - the rest of the run is the same
            links = [await nodes.listen(), await nodes.join(1)]
            assert [await receive(link) for link in links] == [{"kind": "start", **START}] * 2
            links[1].send(fail(1))
            assert [await receive(link) for link in links] == [{"kind": "stop", "reason": "failure"}] * 2
            for link in links:
                link.send(ENDED)
            assert [await receive(link) for link in links] == [{"kind": "start", **START}] * 2
            assert nodes.num_starts == 2

    run(history)


def test_a_stranger_at_the_end_of_the_loop_is_no_fault() -> None:
    """A program that is still connected, and has said nothing, when the agent ends makes no noise."""
    faults: list[dict[str, Any]] = []

    async def history() -> socket.socket:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        nodes = Nodes(2)
        await nodes.listen()
        stranger = socket.create_connection((LOOPBACK, nodes.ports[0]))
        while not nodes.hub._strangers:  # noqa: SLF001 - until it is there
            await asyncio.sleep(0.01)
        nodes.hub.hang_up()
        return stranger

    asyncio.run(history()).close()
    assert faults == []


def test_more_strangers_than_there_is_room_for_are_dropped() -> None:
    """Who has waited longest without a word goes first, and the run starts all the same."""

    async def history() -> None:
        async with open_nodes(2) as nodes:
            local = await nodes.listen()
            nodes.hub._max_strangers = 5  # noqa: SLF001 - thousands otherwise
            strangers = [await asyncio.open_connection(LOOPBACK, nodes.ports[0]) for _ in range(20)]
            await nodes.join(1)
            assert await receive(local) == {"kind": "start", **START}
            assert len(nodes.hub._strangers) <= 5  # noqa: SLF001
            for _, writer in strangers:
                writer.transport.abort()

    run(history)


def test_a_node_that_comes_after_the_end_is_told() -> None:
    """A run that is over before a node has come tells it so when it comes, and does not leave it waiting."""

    async def script() -> list[str]:
        async with open_nodes(2) as nodes:
            local = await nodes.listen()
            local.send({"kind": "failed", "outcome": Outcome(node_rank=0, host="n0", message="m").to_json()})
            local.send({"kind": "ended", "outcomes": []})
            late = await nodes.join(1)
            return [(await receive(late) or {})["kind"] for _ in range(2)]

    assert asyncio.run(script()) == ["stop", "done"]
