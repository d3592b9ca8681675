"""Where the nodes of a run find each other: the ports to try, a free one for the workers, an address by hand.

Pure, but for ``find_free_port``, which asks the kernel. No name is resolved but the ``host`` given to that one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import random
import re
import socket
from pathlib import Path

from hpc_multinode.errors import ConfigError, RendezvousError, format_variable

# Above the well-known ports, below the kernel's ephemeral range (32768 by default): an outgoing connection of any
# program can then never sit on one of them.
FIRST_PORT = 10_000
LAST_PORT = 31_999

# The defaults of torchrun and of torch's own rendezvous: every script without a port of its own collides there.
_CROWDED_PORTS = frozenset({29_400, 29_500})

# Stands for the computed host in launch.main_address.
HOST_PLACEHOLDER = "{host}"

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 200


def make_port_candidates(*identity: str, secret: bytes = b"", count: int = 8) -> tuple[int, ...]:
    """Derive the ports on which the coordinator of a run may listen, in the order to try.

    Pure, and the same on every node that knows the same identity and secret. Identities that differ in any part, or
    in where one part ends, give unrelated lists.

    Args:
        identity: What tells this run from every other: job, array task, step, restart, user.
        secret: Known to the person's own processes alone, so that nobody else can compute the list. May be empty.
        count: How many ports. Count, from 1 to 1000.

    Returns:
        ``count`` different ports in ``[FIRST_PORT, LAST_PORT]``.

    Raises:
        ValueError: ``count`` is out of range; a fault of the caller, never of a user.
    """
    if not 1 <= count <= 1000:  # noqa: PLR2004 - the range stands in the docstring
        raise ValueError(f"count must be from 1 to 1000, not {count}")
    # Each part is led by its length, so ("1", "23") and ("12", "3") differ.
    parts = [part.encode("utf-8", "surrogatepass") for part in identity]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    key = hashlib.sha256(b"hpc_multinode ports" + secret).digest()
    ports: dict[int, None] = {}
    block = 0
    while len(ports) < count:
        digest = hmac.new(key, block.to_bytes(4, "big") + message, hashlib.sha256).digest()
        # Eight bytes a port: the bias of the remainder is then below one in 10**14.
        for start in range(0, len(digest), 8):
            port = FIRST_PORT + int.from_bytes(digest[start : start + 8], "big") % (LAST_PORT - FIRST_PORT + 1)
            if port not in _CROWDED_PORTS:
                ports.setdefault(port)
        block += 1
    return tuple(ports)[:count]


def find_free_port(host: str = "") -> int:
    """Find a port that was free a moment ago. Impure: binds and closes sockets on this machine.

    Nothing reserves the port: between this call and its use another process can take it, so whoever uses it must
    still say so when the port turns out busy.

    Args:
        host: The address that will listen. Empty means all addresses, as torch's store does; no name is resolved
            then.

    Returns:
        A port in ``[FIRST_PORT, LAST_PORT]`` and below this machine's ephemeral range where that leaves enough.

    Raises:
        RendezvousError: ``host`` is not an address of this machine, or none of many ports was free.
    """
    candidates = random.SystemRandom().sample(range(FIRST_PORT, _last_usable_port() + 1), _TRIES)
    problem = ""
    for port in candidates:
        if port in _CROWDED_PORTS:
            continue
        try:
            _bind_once(host, port)
        except OSError as error:
            problem = str(error)
        else:
            return port
    raise RendezvousError(
        what=f"no free port on {host or 'this machine'}",
        found=f"{_TRIES} ports from {FIRST_PORT} to {_last_usable_port()} were tried, the last one said: {problem}",
        fix="set launch.main_port to a port that is free, or launch.main_address to an address of this node",
    )


def require_free_port(port: int, *, host_name: str) -> None:
    """Check that a port given by hand can be listened on. Impure: binds and closes a socket on this machine.

    Args:
        port: From 1 to 65535.
        host_name: This machine's name, for the error text.

    Raises:
        RendezvousError: It is busy, or not ours to use.
    """
    try:
        _bind_once("", port)
    except OSError as error:
        raise RendezvousError(
            what=f"main_port {port} busy on host {host_name}",
            found=f"launch.main_port={port}: {error.strerror}",
            fix="leave launch.main_port out, and a free one is found; or end what listens there",
        ) from None


def render_main_address(given: str, *, host: str) -> str:
    """Fill in an address that was given by hand. Pure; it is not resolved, nor changed otherwise.

    Args:
        given: ``launch.main_address``: a name, an IPv4 or IPv6 literal, or a pattern such as ``{host}.ib.site``.
        host: The computed host, which ``{host}`` stands for.

    Returns:
        The address, one token.

    Raises:
        ConfigError: It holds a blank (two addresses on one line), another placeholder, or more than an address.
    """
    address = given.replace(HOST_PLACEHOLDER, host)
    problem = ""
    if not address or not address.isprintable() or any(character.isspace() for character in address):
        problem = "must be one address without blanks"
    elif re.search(r"[{}]", address):
        problem = "knows no placeholder but {host}"
    elif re.search(r"[/,;]", address) or (":" in address and _parse_ip(address) is None):
        problem = "must be an address alone, without a port or a protocol"
    if problem:
        raise ConfigError(
            what=f"launch.main_address {problem}",
            found=format_variable("launch.main_address", given),
            fix="name one host or IP address, for example n01, {host}i or fd00::1; a port goes into launch.main_port",
        )
    return address


def is_loopback(address: str) -> bool:
    """Tell whether an address leads every machine to itself (``localhost``, ``127.x``, ``::1``) or to no machine."""
    name = address.lower().rstrip(".")
    # Resolvers read 127.1 as 127.0.0.1.
    if name.split(".", 1)[0] == "localhost" or name.endswith(".localhost") or re.fullmatch(r"127(\.[0-9]+)*", name):
        return True
    ip = _parse_ip(name)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return ip is not None and (ip.is_loopback or ip.is_unspecified)


def is_ip_literal(address: str) -> bool:
    """Tell whether an address is a number, IPv4 or IPv6 (brackets or not), and no name."""
    return _parse_ip(address) is not None


def is_same_address(left: str, right: str) -> bool:
    """Compare two addresses as IP literals; names are never the same as anything here."""
    ip = _parse_ip(left)
    return ip is not None and ip == _parse_ip(right)


def _parse_ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    try:
        return ipaddress.ip_address(bare)
    except ValueError:
        return None


def _bind_once(host: str, port: int) -> None:
    """Bind and close. No SO_REUSEADDR: a port in TIME_WAIT counts as taken."""
    if host:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, address = infos[0][0], infos[0][4]
    elif socket.has_dualstack_ipv6():
        family, address = socket.AF_INET6, ("::", port)
    else:
        family, address = socket.AF_INET, ("0.0.0.0", port)  # noqa: S104 - closed at once, nothing listens
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if not host and family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind(address)


def _last_usable_port() -> int:
    """Return the last port below the ephemeral range, or ours where a site has set the range too low to avoid."""
    try:
        lowest_ephemeral = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return LAST_PORT
    return min(LAST_PORT, lowest_ephemeral - 1) if lowest_ephemeral - FIRST_PORT > 2 * _TRIES else LAST_PORT
