"""Words between agents: one JSON line each, after both ends have proved that they know the run's secret.

Nothing that arrives here is ever unpickled, and no line is longer than ``MAX_LINE``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from typing import Any

MAX_LINE = 4 << 20
# How long the coordinator waits for an agent's hello: many may come at once.
HELLO_S = 10.0
# How long an agent waits at a port: the coordinator speaks first, so whoever is silent is somebody else.
CHALLENGE_S = 2.0
_MAX_HELLO = 4096
_NONCE_BYTES = 16


class HandshakeError(Exception):
    """Whoever is at the other end does not belong to this run."""


async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes) -> dict[str, Any]:
    """Let one agent in, as the coordinator.

    Returns:
        The agent's hello: ``node_rank`` and ``host``.

    Raises:
        HandshakeError: It does not know the secret, is silent, or talks of something else.
    """
    nonce = secrets.token_hex(_NONCE_BYTES)
    _write(writer, {"challenge": nonce})
    answer = await _read_early(reader, HELLO_S)
    hello, theirs = answer.get("hello"), answer.get("nonce")
    if not (isinstance(hello, dict) and isinstance(theirs, str)):
        raise HandshakeError("no hello")
    proof = _prove(secret, "agent", nonce, theirs, hello)
    if not _is_same(proof, answer.get("proof")):
        raise HandshakeError("wrong proof")
    if not (isinstance(hello.get("node_rank"), int) and isinstance(hello.get("host"), str)):
        raise HandshakeError("incomplete hello")
    _write(writer, {"proof": _prove(secret, "coordinator", nonce, theirs, hello)})
    await writer.drain()
    return hello


async def knock(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, hello: dict[str, Any]
) -> None:
    """Ask the coordinator to be let in, as an agent.

    Raises:
        HandshakeError: What listens there is not this run's coordinator.
    """
    challenge = (await _read_early(reader, CHALLENGE_S)).get("challenge")
    if not isinstance(challenge, str):
        raise HandshakeError("no challenge")
    nonce = secrets.token_hex(_NONCE_BYTES)
    _write(writer, {"hello": hello, "nonce": nonce, "proof": _prove(secret, "agent", challenge, nonce, hello)})
    answer = await _read_early(reader, HELLO_S)
    if not _is_same(_prove(secret, "coordinator", challenge, nonce, hello), answer.get("proof")):
        raise HandshakeError("wrong proof")


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read one message; None where the connection is gone or no longer speaks our language."""
    try:
        line = await reader.readline()
    except (OSError, ValueError):  # ValueError: a line over the limit
        return None
    message = _parse(line)
    return message if message is not None and isinstance(message.get("kind"), str) else None


def write_message(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    """Queue one message; a connection that is gone is noticed by its reader."""
    if not writer.is_closing():
        _write(writer, message)


def _write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")


async def _read_early(reader: asyncio.StreamReader, timeout_s: float) -> dict[str, Any]:
    try:
        line = await asyncio.wait_for(reader.readline(), timeout_s)
    except (asyncio.TimeoutError, OSError, ValueError) as error:
        raise HandshakeError(str(error) or type(error).__name__) from None
    message = _parse(line) if len(line) <= _MAX_HELLO else None
    if message is None:
        raise HandshakeError("not our protocol")
    return message


def _parse(line: bytes) -> dict[str, Any] | None:
    """Read one line of JSON from whoever is there; None where it is no whole mapping."""
    try:
        message = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):  # RecursionError: brackets by the thousand
        return None
    return message if isinstance(message, dict) else None


def _is_same(proof: str, given: object) -> bool:
    # As bytes, because compare_digest takes no text beyond ASCII.
    return hmac.compare_digest(proof.encode(), str(given).encode("utf-8", "surrogatepass"))


def _prove(secret: bytes, role: str, challenge: str, nonce: str, hello: dict[str, Any]) -> str:
    text = json.dumps([role, challenge, nonce, hello], sort_keys=True)
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
