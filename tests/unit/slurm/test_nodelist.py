"""Node lists: every form that Slurm writes, and nothing else."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.errors import MultiNodeError, SlurmEnvironmentError
from hpc_multinode.slurm.counts import MAX_NODES
from hpc_multinode.slurm.nodelist import expand_node_list, find_named_node, is_same_host

FORMS = {
    "n": ["n"],
    "alpha,beta,gamma": ["alpha", "beta", "gamma"],
    "big-site-ia810": ["big-site-ia810"],
    "d05-[41-42]": ["d05-41", "d05-42"],
    "host-[001-002]": ["host-001", "host-002"],
    "nodeA,nodeB[001,003],nodeC": ["nodeA", "nodeB001", "nodeB003", "nodeC"],
    "rack[0-1]_blade[0-1],x": ["rack0_blade0", "rack0_blade1", "rack1_blade0", "rack1_blade1", "x"],
    "r[1-2]n[01-03]": ["r1n01", "r1n02", "r1n03", "r2n01", "r2n02", "r2n03"],
    "nodes[006,011]": ["nodes006", "nodes011"],
    "ml-16-node-[001-002,004],ml-17-node-[001-002]": [
        "ml-16-node-001", "ml-16-node-002", "ml-16-node-004", "ml-17-node-001", "ml-17-node-002",
    ],
    "n[098-101]": ["n098", "n099", "n100", "n101"],
    "node[09-11]": ["node09", "node10", "node11"],
    "node[9-11]": ["node9", "node10", "node11"],
    "node[3,1-2]": ["node3", "node1", "node2"],
    "z9,a1": ["z9", "a1"],
    "n[1-2]-ib": ["n1-ib", "n2-ib"],
    "n[1-2].site.org,m[0-1]i": ["n1.site.org", "n2.site.org", "m0i", "m1i"],
    "r[1-2]c[0,3]s[7]x": ["r1c0s7x", "r1c3s7x", "r2c0s7x", "r2c3s7x"],
    "n[000-001]": ["n000", "n001"],
    "n[0,00,000]": ["n0", "n00", "n000"],
    "[1-2]": ["1", "2"],
    " node[1-2] ": ["node1", "node2"],
    "node[1-2]\n": ["node1", "node2"],
    "n1, n2": ["n1", "n2"],
    "n1,n1": ["n1", "n1"],
}  # fmt: skip

MALFORMED = [
    "", " ", ",", "node[2-1]", "node1]", "node[1", "node1,,node2", "node1,", ",node1", "node[]", "node[,]", "node[1,]",
    "node[-1]", "node[1-]", "node[1-2-3]", "node[a-c]", "node[1, 2]", "node[[1-2]]", "n[1]]", "n 1", "n[1-2] x",
    "(null)", "None assigned", "n1;rm", "n/1", "-n1", ".n1", "n\x00", "n\u00e9", "n[\u0661-\u0663]", "n[0x1-0x2]",
    "n[1-99999999999]", "n[1-999][1-999]", f"n[{'9' * 5000}]", "n[1-2]" * 60, "n[1-100000],m[1-100000]",
]  # fmt: skip


@pytest.mark.parametrize(("text", "names"), FORMS.items())
def test_expands_a_form_that_slurm_writes(text: str, names: list[str]) -> None:
    """Each form expands to its names, in the order in which they are written."""
    assert list(expand_node_list(text, variable="SLURM_JOB_NODELIST")) == names


@pytest.mark.parametrize("text", MALFORMED)
def test_refuses_a_malformed_list(text: str) -> None:
    """A malformed or absurdly long list is an error that names the variable."""
    with pytest.raises(SlurmEnvironmentError, match="SLURM_STEP_NODELIST is not a node list") as caught:
        expand_node_list(text, variable="SLURM_STEP_NODELIST")
    assert caught.value.found.startswith("SLURM_STEP_NODELIST=")


def test_error_shows_the_value() -> None:
    """The value that was found stands in the error."""
    with pytest.raises(SlurmEnvironmentError) as caught:
        expand_node_list("node[2-1]", variable="V")
    assert str(caught.value) == (
        "V is not a node list: the range 2-1 runs backwards\n"
        "  found: V=node[2-1]\n"
        "  fix:   a list looks like n[01-04],gpu7; srun and sbatch set it, do not set it by hand"
    )


def test_error_cuts_a_huge_value() -> None:
    """A value of a megabyte does not fill the screen."""
    with pytest.raises(SlurmEnvironmentError) as caught:
        expand_node_list("n" * 1_000_000 + "!", variable="V")
    assert len(str(caught.value)) < 1000
    assert "(1000001 characters)" in caught.value.found


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("n[1-10000]", "n10000"),
        ("r[1-100]n[1-100]", "r100n100"),
        (",".join(f"n{number}" for number in range(10_000)), "n9999"),
        ("n[" + ",".join(str(number) for number in range(0, 20_000, 2)) + "]", "n19998"),
    ],
    ids=["range", "two-groups", "names", "singles"],
)
def test_expands_ten_thousand_nodes(text: str, last: str) -> None:
    """A list of 10,000 nodes expands to all of them, in each of its forms."""
    names = expand_node_list(text, variable="V")
    assert (len(set(names)), names[-1]) == (10_000, last)


def test_largest_list_is_accepted() -> None:
    """The limit itself is still a list."""
    assert len(expand_node_list(f"n[1-{MAX_NODES}]", variable="V")) == MAX_NODES


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("n2", "n2"),
        ("N2", "n2"),
        ("n2i", "n2"),
        ("n2-ib", "n2"),
        ("n2.ib.site", "n2"),
        ("n12", "n12"),
        ("n12i", "n12"),
        ("n13", None),
        ("alpha-ib", "alpha"),
        ("alphabet", None),
        ("10.0.0.2", None),
        ("fd00::2", None),
        ("", None),
    ],
)
def test_finds_the_node_that_an_address_names(address: str, node: str | None) -> None:
    """A node is named by its name, a domain or a suffix; a longer number is another node."""
    assert find_named_node(address, ("n1", "n2", "n12", "alpha")) == node


@pytest.mark.parametrize(
    ("name", "host", "is_same"),
    [("cn2.a.b", "cn2", True), ("cn2", "cn2.a", True), ("CN2", "cn2", True), ("cn2.a", "cn2.b", False)],
)
def test_compares_short_and_full_names(name: str, host: str, *, is_same: bool) -> None:
    """A short name is the same as one with a domain; two domains must be equal."""
    assert is_same_host(name, host) is is_same


def compress(names: list[str]) -> str:
    """Write a list as Slurm does: neighbours that differ in a last number of one width become a range."""

    def part(name: str) -> tuple[str, str]:
        match = re.fullmatch(r"(.*?)([0-9]{0,15})", name)
        return (match[1], match[2]) if match else (name, "")

    items = []
    for (prefix, width), group in itertools.groupby(names, key=lambda name: (part(name)[0], len(part(name)[1]))):
        numbers = [part(name)[1] for name in group]
        if not width:
            items.extend([prefix] * len(numbers))
            continue
        ranges: list[list[str]] = []
        for number in numbers:
            if ranges and int(number) == int(ranges[-1][-1]) + 1:
                ranges[-1].append(number)
            else:
                ranges.append([number])
        items.append(f"{prefix}[{','.join(r[0] if len(r) == 1 else f'{r[0]}-{r[-1]}' for r in ranges)}]")
    return ",".join(items)


NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,6}[0-9]{0,4}", fullmatch=True)


@given(
    st.one_of(
        st.lists(NAMES, min_size=1, max_size=30),
        st.lists(st.integers(0, 1200), min_size=1, max_size=30).map(lambda ns: [f"n{n:03d}" for n in sorted(ns)]),
    )
)
def test_expanding_undoes_compressing(names: list[str]) -> None:
    """expand(compress(x)) == x, order and repetitions included."""
    assert list(expand_node_list(compress(names), variable="V")) == names


@given(st.one_of(st.text(max_size=40), st.text(alphabet="n[]-,0129. ", max_size=40)))
def test_any_text_gives_names_or_our_error(text: str) -> None:
    """No text makes anything but at least one non-empty name or our own error."""
    try:
        names = expand_node_list(text, variable="V")
    except MultiNodeError:
        return
    assert names
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) for name in names)
