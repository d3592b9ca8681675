"""Where global rank 0 is found by the other nodes, and why an address given by hand cannot be it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.errors import SlurmEnvironmentError, format_value, format_variable
from hpc_multinode.ports import HOST_PLACEHOLDER, is_ip_literal, is_loopback, is_same_address, render_main_address
from hpc_multinode.slurm.nodelist import find_named_node, is_same_host
from hpc_multinode.slurm.variables import find, where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.slurm.scope import Scope


def choose_main_address(
    environ: Mapping[str, str], scope: Scope, *, node_rank: int, given: str | None, hostname: str
) -> str:
    """Return the address of node 0 as the other nodes reach it, 127.0.0.1 on a single node.

    Args:
        environ: Variables of one task of the step.
        scope: The step's nodes.
        node_rank: This node.
        given: ``launch.main_address``, or None.
        hostname: This machine's name, used only where ``SLURMD_NODENAME`` is unset.

    Raises:
        SlurmEnvironmentError: The others would not find node 0 there.
        ConfigError: ``given`` is no address.
    """
    hosts = scope.hosts
    is_computed = not given or HOST_PLACEHOLDER in given
    if node_rank == 0 and is_computed:
        _check_first_host(environ, scope, hostname)
    # On a single node nothing has to be resolved.
    computed = hosts[0] if len(hosts) > 1 else "127.0.0.1"
    address = render_main_address(given, host=hosts[0]) if given else computed
    if len(hosts) > 1:
        _check_reachable(environ, scope, address)
        if not is_computed:
            _check_names_node_0(environ, scope, address, node_rank=node_rank, hostname=hostname)
    return address


def _check_first_host(environ: Mapping[str, str], scope: Scope, hostname: str) -> None:
    """On node 0: its own name must be the one that the others will call."""
    name = find(environ, "SLURMD_NODENAME")
    first = scope.hosts[0]
    is_first = name.value == first if name else len(scope.hosts) == 1 or is_same_host(hostname, first)
    if is_first:
        return
    own = format_value(name.value if name else hostname)
    distribution = find(environ, "SLURM_DISTRIBUTION")
    raise SlurmEnvironmentError(
        what=f"node 0 is {own}, but the node list begins with {first}, where the others would look for it",
        found=f"SLURM_NODEID=0 with {name or format_variable('host name', hostname)}, {scope.node_list}"
        + (f", {distribution}" if distribution else ""),
        fix=f"set launch.main_address={own}, or start the step without a host file or arbitrary distribution",
    )


def _check_reachable(environ: Mapping[str, str], scope: Scope, address: str) -> None:
    """Refuse addresses that lead every node to itself, or all of them to the login node."""
    found, what = f"main address {address}, {scope.node_count} {where(environ)}", ""
    if is_loopback(address):
        what = "the main address leads every node to itself"
    # Inside a batch script or the shell of salloc on a node, srun's own machine is a node of the job.
    is_started_inside = environ.get("ENVIRONMENT") == "BATCH" or find(environ, "SLURM_PTY_PORT") is not None
    launch, submit = find(environ, "SLURM_LAUNCH_NODE_IPADDR"), find(environ, "SLURM_SUBMIT_HOST")
    if launch and not is_started_inside and is_same_address(address, launch.value):
        what, found = "the main address is that of the machine that called srun", f"{found}, {launch}"
    is_node = any(is_same_host(address, host) for host in scope.hosts)
    if submit and not is_node and is_same_host(address, submit.value):
        what, found = "the main address is the machine from which the job was submitted", f"{found}, {submit}"
    if what:
        raise SlurmEnvironmentError(
            what=what,
            found=found,
            fix=f"leave launch.main_address out, or name node 0 by an address the others reach: {scope.hosts[0]}",
        )


def _check_names_node_0(
    environ: Mapping[str, str], scope: Scope, address: str, *, node_rank: int, hostname: str
) -> None:
    """Refuse a hand-given address that names another node of the list; aliases and IP addresses cannot be judged."""
    named = None if is_ip_literal(address) else find_named_node(address, scope.hosts)
    if named is None:
        return
    name = find(environ, "SLURMD_NODENAME")
    own = next((host for host in scope.hosts if (host == name.value if name else is_same_host(hostname, host))), None)
    distribution = find(environ, "SLURM_DISTRIBUTION")
    is_arbitrary = distribution is not None and distribution.value.startswith("arbitrary")
    # Where nodes are not numbered in the order of the list, only node 0 knows who node 0 is.
    node_0 = own or scope.hosts[0]
    if node_rank:
        node_0 = "" if is_arbitrary or own != scope.hosts[node_rank] else scope.hosts[0]
    if (node_0 and named != node_0) or (node_rank and named == own):
        node_0, place = node_0 or f"not {named}", own or format_value(hostname)
        raise SlurmEnvironmentError(
            what=f"launch.main_address names {named}, but node 0, where global rank 0 runs, is {node_0}",
            found=f"launch.main_address={address}, SLURM_NODEID={node_rank} on {place}, {scope.node_list}",
            fix=f"leave launch.main_address out, or name node 0 in it ({{host}} stands for {scope.hosts[0]})",
        )
