"""Handshake and messages over real sockets of this machine; a silent peer's 10 s are not waited for here."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_multinode.node.wire import (
    MAX_HELLO,
    MAX_LINE,
    HandshakeError,
    LineReader,
    WrongSecretError,
    encode,
    knock,
    read_message,
    welcome,
    write_line,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = b"the run's secret"
HELLO = {"node_rank": 1, "host": "n1"}

Line = tuple[LineReader, asyncio.StreamWriter]

# What is no JSON object, whatever a program on our port may say.
GARBAGE = [
    b"\n",
    b"GET / HTTP/1.1\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\xff\xfe\x00\x01\n",
    b"[]\n",
    b"null\n",
    b"3\n",
    b'"hello"\n',
    b'{"challenge": \n',
    b"[" * 4000 + b"\n",
    b"9" * 4000 + b"\n",
]
GARBAGE_IDS = [repr(line[:12]) for line in GARBAGE]


@asynccontextmanager
async def connect() -> AsyncIterator[tuple[Line, Line]]:
    """Yield the two ends of one connection: the coordinator's and the agent's."""
    arrived: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda reader, writer: arrived.set_result((LineReader(reader), writer)), "127.0.0.1", 0, limit=MAX_HELLO
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    agent = LineReader(reader), writer
    coordinator = await arrived
    try:
        yield coordinator, agent
    finally:
        for _, writer in (coordinator, agent):
            writer.transport.abort()
        server.close()
        await asyncio.sleep(0)


async def read_json(line: Line) -> dict[str, Any]:
    """Read one JSON line as a stranger would."""
    found = json.loads(await line[0].read(MAX_LINE))
    assert isinstance(found, dict)
    return found


async def welcome_line(line: bytes) -> dict[str, Any]:
    """Return what the coordinator makes of one line in answer to its challenge."""
    async with connect() as (coordinator, agent):
        agent[1].write(line)
        return await welcome(*coordinator, SECRET)


async def knock_at_line(line: bytes) -> None:
    """Have an agent knock at a program that greets with one line."""
    async with connect() as (coordinator, agent):
        coordinator[1].write(line)
        await knock(*agent, SECRET, HELLO)


async def read_line(line: bytes, *, hangs_up: bool = False) -> dict[str, Any] | None:
    """Return what is read where an agent, already let in, sends a line."""
    async with connect() as (coordinator, agent):
        agent[1].write(line)
        if hangs_up:
            agent[1].close()
        return await asyncio.wait_for(read_message(coordinator[0]), 10)


def test_both_ends_that_know_the_secret_agree() -> None:
    """An agent of the run is let in, and the coordinator learns who it is."""

    async def run() -> dict[str, Any]:
        async with connect() as (coordinator, agent):
            hello, _ = await asyncio.gather(welcome(*coordinator, SECRET), knock(*agent, SECRET, HELLO))
            return hello

    assert asyncio.run(run()) == HELLO


def test_an_agent_of_another_run_is_not_let_in() -> None:
    """Who does not know the secret is refused by the coordinator."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            knocking = asyncio.create_task(knock(*agent, b"another secret", HELLO))
            try:
                await welcome(*coordinator, SECRET)
            finally:
                coordinator[1].close()
                await asyncio.wait([knocking])
                assert isinstance(knocking.exception(), HandshakeError)

    with pytest.raises(HandshakeError, match="wrong proof"):
        asyncio.run(run())


def test_a_coordinator_of_another_run_is_not_believed() -> None:
    """Who lets everybody in and does not know the secret is not this run's coordinator."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            knocking = asyncio.create_task(knock(*agent, SECRET, HELLO))
            coordinator[1].write(b'{"challenge": "00"}\n')
            await read_json(coordinator)
            coordinator[1].write(json.dumps({"proof": "0" * 64}).encode() + b"\n")
            await knocking

    with pytest.raises(HandshakeError, match="wrong proof"):
        asyncio.run(run())


def test_an_echo_of_the_own_proof_is_not_believed() -> None:
    """The proofs of the two sides differ, so one that is sent back proves nothing."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            knocking = asyncio.create_task(knock(*agent, SECRET, HELLO))
            coordinator[1].write(b'{"challenge": "00"}\n')
            answer = await read_json(coordinator)
            coordinator[1].write(json.dumps({"proof": answer["proof"]}).encode() + b"\n")
            await knocking

    with pytest.raises(HandshakeError, match="wrong proof"):
        asyncio.run(run())


def test_a_replayed_handshake_fails() -> None:
    """What an agent has once said opens no second connection: each has its own challenge."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            welcoming = asyncio.create_task(welcome(*coordinator, SECRET))
            relayed = await read_json(agent)
            async with connect() as (relay, victim):
                knocking = asyncio.create_task(knock(*victim, SECRET, HELLO))
                relay[1].write(json.dumps(relayed).encode() + b"\n")
                overheard = await relay[0].read(MAX_LINE)
                agent[1].write(overheard)
                assert await welcoming == HELLO  # it is a good one the first time
                knocking.cancel()
                await asyncio.wait([knocking])
        await welcome_line(overheard)

    with pytest.raises(HandshakeError, match="wrong proof"):
        asyncio.run(run())


def test_a_changed_hello_fails() -> None:
    """The proof covers the hello: nobody turns node 1 into node 2 on the way."""

    async def run() -> None:
        async with connect() as (coordinator, agent), connect() as (relay, victim):
            welcoming = asyncio.create_task(welcome(*coordinator, SECRET))
            relay[1].write(await agent[0].read(MAX_LINE))
            knocking = asyncio.create_task(knock(*victim, SECRET, HELLO))
            said = await read_json(relay)
            agent[1].write(json.dumps({**said, "hello": {**HELLO, "node_rank": 2}}).encode() + b"\n")
            try:
                await welcoming
            finally:
                knocking.cancel()
                await asyncio.wait([knocking])

    with pytest.raises(HandshakeError, match="wrong proof"):
        asyncio.run(run())


@pytest.mark.parametrize("line", GARBAGE, ids=GARBAGE_IDS)
def test_garbage_is_not_let_in(line: bytes) -> None:
    """Whatever a stranger says to the coordinator, it is refused as a handshake that failed."""
    with pytest.raises(HandshakeError):
        asyncio.run(welcome_line(line))


@pytest.mark.parametrize("line", GARBAGE, ids=GARBAGE_IDS)
def test_garbage_is_no_coordinator(line: bytes) -> None:
    """Whatever a stranger's program says to an agent, it is passed over as a handshake that failed."""
    with pytest.raises(HandshakeError):
        asyncio.run(knock_at_line(line))


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"hello": HELLO},
        {"hello": [], "nonce": "0", "proof": "0"},
        {"hello": HELLO, "nonce": 0, "proof": "0"},
        {"hello": HELLO, "nonce": "0"},
        {"hello": HELLO, "nonce": "0", "proof": None},
        {"hello": HELLO, "nonce": "0", "proof": ["0"]},
        {"hello": HELLO, "nonce": "0", "proof": "é"},
        {"hello": HELLO, "nonce": "\ud800", "proof": "0"},
    ],
    ids=str,
)
def test_an_answer_of_the_wrong_form_is_not_let_in(answer: dict[str, Any]) -> None:
    """JSON that is no answer to the challenge is a handshake that failed, and nothing worse."""
    with pytest.raises(HandshakeError):
        asyncio.run(welcome_line(json.dumps(answer).encode() + b"\n"))


@pytest.mark.parametrize("proof", [None, 3, "", "é", ["0"]], ids=str)
def test_a_proof_of_the_wrong_form_is_not_believed(proof: Any) -> None:
    """A proof that is no hexadecimal text is a handshake that failed, and nothing worse."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            coordinator[1].write(b'{"challenge": "00"}\n' + json.dumps({"proof": proof}).encode() + b"\n")
            await knock(*agent, SECRET, HELLO)

    with pytest.raises(HandshakeError):
        asyncio.run(run())


@pytest.mark.parametrize("hello", [{}, {"node_rank": "1", "host": "n1"}, {"node_rank": 1}, {"host": "n1"}], ids=str)
def test_a_hello_without_rank_and_host_is_not_let_in(hello: dict[str, Any]) -> None:
    """Even one who knows the secret has to say who it is."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            knocking = asyncio.create_task(knock(*agent, SECRET, hello))
            try:
                await welcome(*coordinator, SECRET)
            finally:
                knocking.cancel()
                await asyncio.wait([knocking])

    with pytest.raises(HandshakeError, match="incomplete"):
        asyncio.run(run())


@pytest.mark.parametrize("size", [5_000, MAX_LINE + 100_000])
def test_an_early_line_that_is_too_long_is_refused(size: int) -> None:
    """Before the handshake a line is short, though it may be good JSON."""
    with pytest.raises(HandshakeError):
        asyncio.run(welcome_line(b'{"hello": "' + b"x" * size + b'"}\n'))


def test_one_who_hangs_up_is_refused() -> None:
    """A port scanner that connects and goes is a handshake that failed."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            agent[1].close()
            await welcome(*coordinator, SECRET)

    with pytest.raises(HandshakeError):
        asyncio.run(run())


def test_one_who_resets_the_connection_is_refused() -> None:
    """A connection that breaks in the handshake is a handshake that failed."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            coordinator[1].write(b"x" * 100)
            agent[1].transport.abort()
            await knock(*agent, SECRET, HELLO)

    with pytest.raises(HandshakeError):
        asyncio.run(run())


def test_a_message_arrives_as_it_was_sent() -> None:
    """Text in any language, line breaks and lone surrogates of file names survive the wire."""
    message = {"kind": "failed", "text": "Grüße\nλ\u2028 \udcff", "numbers": [1, 2.5, None, True]}

    async def run() -> dict[str, Any] | None:
        async with connect() as (coordinator, agent):
            write_line(agent[1], encode(message))
            return await read_message(coordinator[0])

    assert asyncio.run(run()) == message


def test_messages_arrive_in_order() -> None:
    """Two messages in one packet are two messages."""

    async def run() -> list[dict[str, Any] | None]:
        async with connect() as (coordinator, agent):
            write_line(agent[1], encode({"kind": "a"}))
            write_line(agent[1], encode({"kind": "b"}))
            return [await read_message(coordinator[0]), await read_message(coordinator[0])]

    assert asyncio.run(run()) == [{"kind": "a"}, {"kind": "b"}]


def test_a_message_of_a_megabyte_arrives() -> None:
    """The outcomes of many workers fit into one message."""

    async def run() -> dict[str, Any] | None:
        async with connect() as (coordinator, agent):
            write_line(agent[1], encode({"kind": "ended", "text": "x" * 1_000_000}))
            return await read_message(coordinator[0])

    found = asyncio.run(run())
    assert found is not None
    assert len(found["text"]) == 1_000_000


@pytest.mark.parametrize("line", [*GARBAGE, b"{}\n", b'{"kind": 3}\n', b'{"kind": null}\n'])
def test_what_is_no_message_ends_the_line(line: bytes) -> None:
    """Not JSON, no object, or without a kind: the connection counts as gone."""
    assert asyncio.run(read_line(line)) is None


def test_a_message_over_the_limit_ends_the_line() -> None:
    """A line longer than the limit is not gathered in memory: the connection counts as gone."""
    assert asyncio.run(read_line(b'{"kind": "' + b"x" * (MAX_LINE + 10) + b'"}\n')) is None


def test_half_a_message_is_none() -> None:
    """A connection that breaks in the middle of a line gives no message, though it may be whole JSON."""
    assert asyncio.run(read_line(b'{"kind": "stop"}', hangs_up=True)) is None


def test_the_end_of_the_connection_is_no_message() -> None:
    """Who hangs up is gone."""
    assert asyncio.run(read_line(b"", hangs_up=True)) is None


def test_writing_to_a_closed_connection_is_harmless() -> None:
    """A connection that was closed is noticed by its reader; the writer raises nothing."""

    async def run() -> bool:
        async with connect() as (_, agent):
            agent[1].close()
            write_line(agent[1], encode({"kind": "stop"}))
            return agent[1].is_closing()

    assert asyncio.run(run())


def test_an_agent_with_another_secret_is_told_so() -> None:
    """Homes that are not shared give other secrets: that is no stranger, and people are to hear of it."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            welcoming = asyncio.create_task(welcome(*coordinator, SECRET))
            try:
                await knock(*agent, b"another secret", HELLO)
            finally:
                await asyncio.wait([welcoming])
                assert isinstance(welcoming.exception(), WrongSecretError)

    with pytest.raises(WrongSecretError):
        asyncio.run(run())


def test_little_is_kept_of_a_stranger_that_floods() -> None:
    """Who sends megabytes before the handshake is refused after the first few kilobytes."""

    async def run() -> int:
        async with connect() as (coordinator, agent):
            agent[1].write(b"x" * (16 << 20))
            with pytest.raises(HandshakeError):
                await welcome(*coordinator, SECRET)
            return len(coordinator[0]._reader._buffer)  # type: ignore[attr-defined] # noqa: SLF001 - what is kept

    assert asyncio.run(run()) < 1 << 20


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=6_000))
def test_no_bytes_get_in(said: bytes) -> None:
    """Whatever a stranger sends, it is a handshake that failed and nothing else."""

    async def run() -> None:
        async with connect() as (coordinator, agent):
            agent[1].write(said)
            agent[1].close()
            await welcome(*coordinator, SECRET)

    with pytest.raises(HandshakeError):
        asyncio.run(run())
