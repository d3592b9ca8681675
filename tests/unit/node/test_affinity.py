"""How CPUs are shared out between workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.node.affinity import find_near_cpus, find_own_cpus, share_cpus

NOWHERE = frozenset[int]()


def test_even_shares() -> None:
    """Without a word on what is near, each gets the next CPUs."""
    assert share_cpus(range(8), [NOWHERE] * 4) == ((0, 1), (2, 3), (4, 5), (6, 7))


def test_near_ones_first() -> None:
    """A worker gets the CPUs near its GPU, whatever their numbers."""
    near = [frozenset({4, 5, 6, 7}), frozenset({0, 1, 2, 3})]
    assert share_cpus(range(8), near) == ((4, 5, 6, 7), (0, 1, 2, 3))


def test_near_ones_that_are_taken() -> None:
    """Where two GPUs are near the same CPUs, the second worker takes what is left there, then others."""
    near = [frozenset({2, 3, 4})] * 2
    assert share_cpus(range(6), near) == ((2, 3, 4), (0, 1, 5))


def test_too_few() -> None:
    """Fewer CPUs than workers are bound to nobody."""
    assert share_cpus([3], [NOWHERE] * 2) == ((), ())


@given(st.sets(st.integers(0, 300)), st.lists(st.frozensets(st.integers(0, 300)), min_size=1, max_size=16))
def test_nobody_shares_a_cpu(cpus: set[int], near: list[frozenset[int]]) -> None:
    """Shares are of one size, part of what there is, and have no CPU in common."""
    shares = share_cpus(cpus, near)
    taken = [cpu for share in shares for cpu in share]
    assert len(taken) == len(set(taken))
    assert set(taken) <= cpus
    assert {len(share) for share in shares} == {len(cpus) // len(near)}


def test_cpus_of_others_are_not_bound() -> None:
    """Where the job was granted fewer CPUs than this process may use, nobody knows which are its own."""
    assert find_own_cpus(None) != ()
    assert find_own_cpus(0) == ()


def test_no_driver_knows_nothing() -> None:
    """Without a GPU driver nothing is near, and nothing fails."""
    assert find_near_cpus(()) == ()
    assert find_near_cpus(("0", "GPU-abc")) in ((NOWHERE, NOWHERE), find_near_cpus(("0", "GPU-abc")))
