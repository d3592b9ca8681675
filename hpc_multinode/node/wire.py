"""Words between agents: one JSON line each, after both ends have proved that they know the run's secret.

Nothing that arrives here is ever unpickled, no line is longer than ``MAX_LINE``, and who has not proved anything yet
gets no more than ``MAX_HELLO`` bytes kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
from typing import Any

MAX_LINE = 4 << 20
MAX_HELLO = 4096
# How long the coordinator waits for an agent's hello: many may come at once.
HELLO_S = 10.0
# How long an agent waits at a port: the coordinator speaks first, so whoever is silent is somebody else.
CHALLENGE_S = 2.0
_NONCE_BYTES = 16
_READ_BYTES = 1 << 16


class HandshakeError(Exception):
    """Whoever is at the other end does not belong to this run."""


class WrongSecretError(HandshakeError):
    """The other end is a coordinator of ours, of another run or with another secret."""


class LineReader:
    """Reads lines off a connection, each up to a limit that is given with every call.

    Args:
        reader: The connection; its own limit bounds what is kept of it beside one line.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._unread = reader, b""

    async def read(self, limit: int) -> bytes:
        """Return the next line with its end; what there is of it where the connection ends or the limit is passed."""
        parts, size = [self._unread], len(self._unread)
        self._unread = b""
        while b"\n" not in parts[-1]:
            if size > limit:
                return b"".join(parts)
            data = await self._reader.read(_READ_BYTES)
            if not data:
                return b"".join(parts)
            parts.append(data)
            size += len(data)
        line, _, self._unread = b"".join(parts).partition(b"\n")
        return line + b"\n" if len(line) <= limit else line


async def welcome(lines: LineReader, writer: asyncio.StreamWriter, secret: bytes) -> dict[str, Any]:
    """Let one agent in, as the coordinator.

    Returns:
        The agent's hello: ``node_rank`` and ``host``.

    Raises:
        WrongSecretError: It speaks our language and does not know the secret; it has been told so.
        HandshakeError: It is silent, or talks of something else.
    """
    nonce = secrets.token_hex(_NONCE_BYTES)
    writer.write(encode({"challenge": nonce}))
    answer = await _read_early(lines, HELLO_S)
    hello, theirs = answer.get("hello"), answer.get("nonce")
    if not (isinstance(hello, dict) and isinstance(theirs, str)):
        raise HandshakeError("no hello")
    proof = _prove(secret, "agent", nonce, theirs, hello)
    if not _is_same(proof, answer.get("proof")):
        writer.write(encode({"refused": "secret"}))
        raise WrongSecretError("wrong proof")
    if not (isinstance(hello.get("node_rank"), int) and isinstance(hello.get("host"), str)):
        raise HandshakeError("incomplete hello")
    writer.write(encode({"proof": _prove(secret, "coordinator", nonce, theirs, hello)}))
    await writer.drain()
    return hello


async def knock(lines: LineReader, writer: asyncio.StreamWriter, secret: bytes, hello: dict[str, Any]) -> None:
    """Ask the coordinator to be let in, as an agent.

    Raises:
        WrongSecretError: It says that it is a coordinator and that our secret is not its own.
        HandshakeError: What listens there is not this run's coordinator.
    """
    challenge = (await _read_early(lines, CHALLENGE_S)).get("challenge")
    if not isinstance(challenge, str):
        raise HandshakeError("no challenge")
    nonce = secrets.token_hex(_NONCE_BYTES)
    writer.write(encode({"hello": hello, "nonce": nonce, "proof": _prove(secret, "agent", challenge, nonce, hello)}))
    answer = await _read_early(lines, HELLO_S)
    if answer.get("refused") == "secret":
        raise WrongSecretError("it refuses our secret")
    if not _is_same(_prove(secret, "coordinator", challenge, nonce, hello), answer.get("proof")):
        raise HandshakeError("wrong proof")


async def read_message(lines: LineReader) -> dict[str, Any] | None:
    """Read one message; None where the connection is gone or no longer speaks our language."""
    try:
        line = await lines.read(MAX_LINE)
    except OSError:
        return None
    message = _parse(line)
    return message if message is not None and isinstance(message.get("kind"), str) else None


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as its line."""
    return json.dumps(message).encode() + b"\n"


def write_line(writer: asyncio.StreamWriter, line: bytes) -> None:
    """Queue one encoded message; a connection that is gone is noticed by its reader."""
    if not writer.is_closing():
        writer.write(line)


async def _read_early(lines: LineReader, timeout_s: float) -> dict[str, Any]:
    try:
        line = await asyncio.wait_for(lines.read(MAX_HELLO), timeout_s)
    except (asyncio.TimeoutError, OSError) as error:
        raise HandshakeError(str(error) or "silence") from None
    message = _parse(line)
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
