"""The hosts' network: one bridge in the namespace of the host ``hpcinfra``, one cable from it to every other host.

Nothing of it is in the machine's own network: no link, no address, no route, no rule. It is gone with the hosts.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.slurm_cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.slurm_cluster.hosts import Host

BRIDGE_HOST = "hpcinfra"


def connect_hosts(hosts: Mapping[str, Host], addresses: Mapping[str, str]) -> None:
    """Make the bridge and connect all hosts to it."""
    _ip_batch(
        hosts[BRIDGE_HOST],
        "link set lo up",
        "link add name br0 type bridge forward_delay 0",
        f"addr add {addresses[BRIDGE_HOST]}/24 dev br0",
        "link set br0 up",
    )
    for name, host in hosts.items():
        if name != BRIDGE_HOST:
            connect_host(hosts[BRIDGE_HOST], host, addresses[name])


def connect_host(bridge: Host, host: Host, address: str) -> None:
    """Lay the cable of one host. An older cable of that name, whose host is gone, went with it.

    A host that comes back has its old MAC address, as a machine has after a reboot: the others still have it in their
    ARP tables, and would send to the old one for some seconds, longer than srun tries to connect.
    """
    port = _port_name(address)
    link = ["ip", "link", "add", port, "netns", str(bridge.pid), "type", "veth"]
    _run([*link, "peer", "name", "eth0", "address", _mac_address(address), "netns", str(host.pid)])
    _ip_batch(bridge, f"link set {port} master br0", f"link set {port} up")
    _ip_batch(host, "link set lo up", f"addr add {address}/24 dev eth0", "link set eth0 up")


def cut_cable(bridge: Host, address: str) -> None:
    """Drop everything to and from a host silently: no reset, no ICMP, the link stays up, as with a dead switch.

    The port leaves the bridge. (To set its state to disabled has no effect while the bridge speaks no STP.)
    """
    _ip_batch(bridge, f"link set dev {_port_name(address)} nomaster")


def restore_cable(bridge: Host, address: str) -> None:
    """Undo ``cut_cable``."""
    _ip_batch(bridge, f"link set dev {_port_name(address)} master br0")


def _port_name(address: str) -> str:
    return f"port{address.rpartition('.')[2]}"


def _mac_address(address: str) -> str:
    """Return the hardware address that goes with an IPv4 address: locally administered, the four bytes at its end."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x00, *map(int, address.split("."))))


def _ip_batch(host: Host, *lines: str) -> None:
    command = ["nsenter", f"--target={host.pid}", "--net", "ip", "-batch", "-"]
    _run(command, "\n".join(lines) + "\n")


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(
            what="the cluster's network cannot be set up",
            found=f"{' '.join(command)}\n{text}{done.stderr}",
            fix="the kernel needs the modules veth and bridge, and iproute2 must be installed",
        )
