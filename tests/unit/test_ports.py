"""Ports that are the same on every node and differ between runs, and addresses by hand."""

from __future__ import annotations

import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.errors import ConfigError, RendezvousError
from hpc_multinode.ports import (
    find_free_port,
    is_loopback,
    is_same_address,
    make_port_candidates,
    render_main_address,
)


def test_candidates_do_not_change_between_releases() -> None:
    """Nodes with other versions of Python, or in other processes, find the same list."""
    assert make_port_candidates("4711", "0", "0", "ada") == (10707, 28041, 15697, 10173, 24706, 19315, 27571, 25190)


@given(st.lists(st.text(max_size=8), max_size=5), st.binary(max_size=8), st.integers(1, 40))
def test_candidates_are_distinct_and_in_range(identity: list[str], secret: bytes, count: int) -> None:
    """Every list has the wanted length, no port twice, none privileged, ephemeral or torch's default."""
    ports = make_port_candidates(*identity, secret=secret, count=count)
    assert len(ports) == len(set(ports)) == count
    assert all(1024 < port < 32768 and port not in {29400, 29500} for port in ports)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("1", "23"), ("12", "3")),
        (("1", ""), ("1",)),
        (("1500",), ("2500",)),
        (("7730012",), ("1230012",)),
        (("100_1", "0"), ("100_2", "0")),
        (("100", "0"), ("100", "1")),
        (("100", "0", "0"), ("100", "0", "1")),
        (("100",), ("101",)),
    ],
)
def test_other_identities_have_other_ports(left: tuple[str, ...], right: tuple[str, ...]) -> None:
    """Jobs, array tasks, steps and attempts that differ share neither the list nor its first port."""
    assert make_port_candidates(*left)[0] != make_port_candidates(*right)[0]
    assert make_port_candidates(*left) != make_port_candidates(*right)


def test_secret_changes_the_ports() -> None:
    """Without the secret nobody can compute the list."""
    lists = {make_port_candidates("4711", secret=secret) for secret in (b"", b"a", b"b")}
    assert len(lists) == 3


def test_ten_thousand_jobs_never_share_a_list() -> None:
    """No two of 10,000 neighbouring jobs have the same list, and few share their first port."""
    lists = [make_port_candidates(str(job)) for job in range(10_000)]
    assert len(set(lists)) == len(lists)
    assert sum(left[0] == right[0] for left, right in itertools.pairwise(lists)) < 10


@pytest.mark.parametrize("count", [0, -1, 1001])
def test_refuses_an_absurd_number_of_candidates(count: int) -> None:
    """The length of the list has limits, so the search for distinct ports always ends."""
    with pytest.raises(ValueError, match="from 1 to 1000"):
        make_port_candidates("1", count=count)


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_free_port_can_be_bound(host: str) -> None:
    """A free port is below the ephemeral range and can be bound."""
    port = find_free_port(host)
    assert 10_000 <= port < 32_768
    with socket.socket() as probe:
        probe.bind((host or "127.0.0.1", port))


def test_free_port_of_a_stranger_is_an_error() -> None:
    """An address that is not this machine's has no free port, and the error says which."""
    with pytest.raises(RendezvousError, match=r"no free port on 192\.0\.2\.1") as caught:
        find_free_port("192.0.2.1")
    assert "launch.main_port" in caught.value.fix


@pytest.mark.parametrize(
    ("given_address", "address"),
    [
        ("jw07i", "jw07i"),
        ("{host}i", "n1i"),
        ("{host}.ib.site", "n1.ib.site"),
        ("10.0.0.5", "10.0.0.5"),
        ("fe80::1", "fe80::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("[fd00::1]", "[fd00::1]"),
    ],
)
def test_address_by_hand_is_unchanged(given_address: str, address: str) -> None:
    """An address by hand stays as it is, IPv6 literals too; only {host} is filled in."""
    assert render_main_address(given_address, host="n1") == address


@pytest.mark.parametrize(
    ("given_address", "problem"),
    [
        ("fe80::1 10.0.0.5", "without blanks"),
        (" n1", "without blanks"),
        ("n1\n", "without blanks"),
        ("   ", "without blanks"),
        ("", "without blanks"),
        ("n\u00a01", "without blanks"),
        ("{node}i", "no placeholder but"),
        ("{host", "no placeholder but"),
        ("n1:29500", "without a port"),
        ("tcp://n1", "without a port"),
        ("n1,n2", "without a port"),
    ],
)
def test_refuses_what_is_not_one_address(given_address: str, problem: str) -> None:
    """Two addresses, a port or an unknown placeholder is an error that shows the value."""
    with pytest.raises(ConfigError, match=problem) as caught:
        render_main_address(given_address, host="n1")
    assert caught.value.found.startswith("launch.main_address=")


@pytest.mark.parametrize(
    "address",
    ["localhost", "LOCALHOST", "localhost.localdomain", "a.localhost", "127.0.0.1", "127.0.1.1", "127.1", "::1",
     "[::1]", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "0.0.0.0", "::", "localhost."],  # noqa: S104
)  # fmt: skip
def test_knows_loopback(address: str) -> None:
    """Every way to write an address that leads each machine to itself is known."""
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["n1", "localhost7", "127n", "10.0.0.1", "fd00::1", "128.0.0.1", ""])
def test_knows_what_is_no_loopback(address: str) -> None:
    """Ordinary names and addresses are not taken for loopback."""
    assert not is_loopback(address)


def test_compares_addresses_by_value() -> None:
    """The same IPv6 address may be written in two ways; names are never compared."""
    assert is_same_address("fd00:0::1", "[fd00::1]")
    assert not any(is_same_address(*pair) for pair in itertools.product(["n1", "10.0.0.1"], ["n1", "10.0.0.2"]))
