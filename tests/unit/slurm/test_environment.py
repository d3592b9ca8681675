"""From Slurm's variables to a node context that is right, or to an error that says why it is not.

The real environments in ``tests/data/env`` were recorded on the cluster of this suite; what each of them must
give stands in ``CONTEXTS`` and ``REFUSED``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.errors import ConfigError, MultiNodeError, SlurmEnvironmentError
from hpc_multinode.slurm.environment import (
    has_job,
    is_plain_step,
    parse_cpus_on_node,
    parse_gpus_on_node,
    parse_job_id,
    parse_node_context,
    parse_restart_count,
)
from hpc_multinode.slurm.leaking import is_leaking

if TYPE_CHECKING:
    from hpc_multinode.context import NodeContext

DATA = Path(__file__).parents[2] / "data" / "env"
DUMPS = sorted(DATA.glob("*/*.env"))

NODE_0 = {"node_rank": 0, "num_nodes": 2, "hosts": ("node1", "node2"), "main_address": "node1", "step_id": "0"}
CONTEXTS: dict[str, dict[str, Any]] = {
    "srun-2nodes-node0": NODE_0,
    "srun-2nodes-node1": {**NODE_0, "node_rank": 1},
    "srun-subset-step": {**NODE_0, "hosts": ("node2", "node3"), "main_address": "node2"},
    "sbatch-srun-node0": NODE_0,
    "sbatch-srun-node1": {**NODE_0, "node_rank": 1},
    "array-task": NODE_0,
    "hetjob-component-1": {**NODE_0, "hosts": ("node2", "node3"), "main_address": "node2"},
    "requeued": {**NODE_0, "restart_count": 1},
    "gpus": {**NODE_0, "devices": ("0", "1")},
}
REFUSED = {
    "sbatch-batch-script": "outside srun",
    "requeued-batch-script": "outside srun",
    "salloc-interactive-step": "outside srun",
    "salloc-shell": "not a task of a Slurm step",
    "hetjob-batch-script": "heterogeneous job: choose a group",
}

# One task of a step on two nodes, as Slurm writes it but for what no test here needs.
STEP = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "0",
    "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n1",
}
NODE_1 = {"SLURM_NODEID": "1", "SLURMD_NODENAME": "n2"}
STEP_VARIABLES = [name for name in STEP if name.startswith("SLURM_STEP_")]
BATCH_1 = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "n7",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NODEID": "0",
    "SLURMD_NODENAME": "n7",
}


def read_dump(path: Path) -> dict[str, str]:
    """Read an environment of KEY=VALUE lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def parse(environ: dict[str, str], **overrides: Any) -> NodeContext:
    """Parse with four workers a node, and a host name that fits no node."""
    arguments = {"local_world_size": 4, "hostname": "elsewhere", **overrides}
    return parse_node_context(environ, **arguments)


def refuse(environ: dict[str, str], **overrides: Any) -> SlurmEnvironmentError:
    """Return the error that an environment must give."""
    with pytest.raises(SlurmEnvironmentError) as caught:
        parse(environ, **overrides)
    return caught.value


def name_of(path: Path) -> str:
    """Name a recorded environment in the list of tests."""
    return f"{path.parent.name}-{path.stem}"


# --- real environments ---


def test_real_environments_are_all_known() -> None:
    """Every recorded environment has an expectation, and every expectation an environment of each version."""
    versions = {path.parent.name for path in DUMPS}
    assert versions
    for version in versions:
        assert {path.stem for path in DUMPS if path.parent.name == version} == {*CONTEXTS, *REFUSED}


@pytest.mark.parametrize("path", [path for path in DUMPS if path.stem not in REFUSED], ids=name_of)
def test_real_task_gives_its_context(path: Path) -> None:
    """A real task's environment gives the nodes, rank and address that it had."""
    environ = read_dump(path)
    context = parse(environ)
    expected = {
        "source": "slurm-step",
        "restart_count": 0,
        "devices": (),
        "local_world_size": 4,
        "world_size": 8,
        "job_id": environ["SLURM_JOB_ID"],
        **CONTEXTS[path.stem],
    }
    if path.stem == "array-task":
        expected["job_id"] = f"{environ['SLURM_ARRAY_JOB_ID']}_3"
    assert {name: getattr(context, name) for name in expected} == expected


@pytest.mark.parametrize("path", [path for path in DUMPS if path.stem in REFUSED], ids=name_of)
def test_real_process_outside_a_step_is_refused(path: Path) -> None:
    """A real batch script or shell on several nodes is told to start a step."""
    error = refuse(read_dump(path))
    assert REFUSED[path.stem] in error.what
    assert "srun" in error.fix


@pytest.mark.parametrize("version", sorted({path.parent.name for path in DUMPS}))
def test_real_nodes_of_one_step_agree_on_ports(version: str) -> None:
    """Both nodes of a real step derive one list of ports."""
    contexts = [parse(read_dump(DATA / version / f"sbatch-srun-node{rank}.env")) for rank in (0, 1)]
    assert contexts[0].port_candidates == contexts[1].port_candidates


# --- scope ---


def test_step_on_part_of_the_job_has_its_own_main_host() -> None:
    """List, count and id come from the step, so a step on n3 and n4 never waits for n1."""
    environ = {
        "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_NUM_NODES": "4",
        "SLURM_STEP_NODELIST": "n[3-4]", "SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "2",
        "SLURM_NODEID": "0", "SLURM_STEP_ID": "0", "SLURMD_NODENAME": "n3", "SLURM_TASKS_PER_NODE": "1(x4)",
    }  # fmt: skip
    context = parse(environ)
    assert (context.hosts, context.num_nodes, context.main_address) == (("n3", "n4"), 2, "n3")


def test_step_count_may_be_in_the_old_name_only() -> None:
    """SLURM_NNODES describes the step inside srun, so it counts the step's list and not the job's."""
    environ = {**STEP, "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_NUM_NODES": "4", "SLURM_NNODES": "2"}
    del environ["SLURM_STEP_NUM_NODES"]
    assert parse(environ).num_nodes == 2


def test_job_list_does_not_serve_a_smaller_step() -> None:
    """Without the step's list the job's is taken only if it has as many nodes as the step."""
    environ = {**STEP, "SLURM_JOB_NODELIST": "n[1-4]"}
    del environ["SLURM_STEP_NODELIST"]
    error = refuse(environ)
    assert error.what == "SLURM_JOB_NODELIST and SLURM_STEP_NUM_NODES disagree on the nodes"
    assert "SLURM_JOB_NODELIST=n[1-4] names 4 nodes, SLURM_STEP_NUM_NODES=2" in error.found


def test_list_and_count_must_agree() -> None:
    """A list with another number of nodes than its count is an error with both numbers."""
    error = refuse({**STEP, "SLURM_STEP_NUM_NODES": "3"})
    assert error.found == "SLURM_STEP_NODELIST=n[1-2] names 2 nodes, SLURM_STEP_NUM_NODES=3 on n1 (job 4711)"


def test_a_node_twice_is_an_error() -> None:
    """A list with one name twice is no list of nodes, even if its length fits."""
    assert "a name comes twice" in refuse({**STEP, "SLURM_STEP_NODELIST": "n1,n1"}).found


def test_variables_of_two_jobs_are_not_mixed() -> None:
    """A step whose nodes are not in its job is left over from another job."""
    error = refuse({**STEP, "SLURM_JOB_NODELIST": "m[1-2]"})
    assert "SLURM_STEP_NODELIST=n[1-2], SLURM_JOB_NODELIST=m[1-2]" in error.found


@pytest.mark.parametrize("ids", [{}, {"SLURM_STEP_ID": "4294967291"}, {"SLURM_STEP_ID": "4294967290"}])
def test_batch_script_on_several_nodes_is_refused_at_once(ids: dict[str, str]) -> None:
    """Outside srun nothing of ours runs on the other nodes, so nobody waits for them."""
    environ = {name: value for name, value in STEP.items() if name not in STEP_VARIABLES} | ids
    error = refuse(environ)
    assert error.what == "this process runs outside srun, and nothing of us runs on the other nodes of 2"
    assert "SLURM_JOB_NUM_NODES=2, SLURM_JOB_NODELIST=n[1-2]" in error.found


def test_batch_script_on_one_node_is_a_run() -> None:
    """In the batch script of a job on one node there is nobody to wait for."""
    context = parse({**BATCH_1, "SLURM_TASKS_PER_NODE": "64"})
    assert (context.source, context.step_id, context.hosts) == ("slurm-batch", None, ("n7",))
    assert (context.node_rank, context.num_nodes, context.main_address) == (0, 1, "127.0.0.1")


@pytest.mark.parametrize("environ", [{"SLURM_JOB_ID": "5"}, {"SLURM_JOBID": "5", "SLURM_STEP_ID": ""}])
def test_login_into_a_node_is_not_a_step(environ: dict[str, str]) -> None:
    """A job id alone, as ssh into a node leaves it, is an error that names both ways out."""
    error = refuse(environ)
    assert "not a task of a Slurm step" in error.what
    assert "cluster=local" in error.fix


def test_shell_of_salloc_on_one_node_is_not_on_that_node() -> None:
    """A job's variables without a node of our own belong to a shell on the login host."""
    environ = {name: BATCH_1[name] for name in BATCH_1 if name.startswith("SLURM_JOB")}
    assert "a shell of salloc" in refuse(environ).what


def test_no_job_is_an_error() -> None:
    """Without a job id there is nothing to read."""
    error = refuse({"SLURM_NODEID": "0"})
    assert error.what == "this process belongs to no Slurm job"
    assert error.found == "neither SLURM_JOB_ID nor SLURM_JOBID is set"


def test_old_names_serve() -> None:
    """A Slurm with only the old names gives the same context."""
    environ = {"SLURM_JOBID": "77", "SLURM_NNODES": "2", "SLURM_NODELIST": "n[1-2]", "SLURM_STEPID": "0", **NODE_1}
    context = parse(environ)
    assert (context.job_id, context.num_nodes, context.hosts, context.node_rank) == ("77", 2, ("n1", "n2"), 1)


def test_new_names_win_over_old_ones() -> None:
    """Where an old name says something else, the new one counts."""
    old = {
        "SLURM_JOBID": "1",
        "SLURM_NNODES": "9",
        "SLURM_NODELIST": "x[1-9]",
        "SLURM_STEPID": "8",
        "SLURM_NPROCS": "5",
    }
    assert parse({**STEP, **old}) == parse(STEP)


def test_empty_variables_are_unset() -> None:
    """An empty new name does not hide the old one."""
    environ = {**STEP, "SLURM_STEP_NUM_NODES": "", "SLURM_NNODES": "2", "SLURM_RESTART_COUNT": " "}
    assert parse(environ) == parse(STEP)


@pytest.mark.parametrize("name", ["SLURM_NODEID", "SLURM_STEP_NUM_NODES"])
def test_a_missing_variable_is_named(name: str) -> None:
    """A variable that is absent is an error that names it, never a default."""
    environ = {key: value for key, value in STEP.items() if key != name}
    error = refuse(environ)
    assert error.what == f"{name} is missing from the environment of this task"


# --- heterogeneous jobs ---

HET = {
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "cpu1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "gpu[1-2]",
}


@pytest.mark.parametrize("environ", [{**BATCH_1, **HET}, {"SLURM_JOB_ID": "8", "SLURM_STEP_ID": "0", **HET}])
def test_het_job_without_a_component_is_refused(environ: dict[str, str]) -> None:
    """Where our own component cannot be known, all of them are shown and none is guessed."""
    error = refuse(environ)
    assert error.what.startswith("heterogeneous job: choose a group")
    assert "SLURM_JOB_NODELIST_HET_GROUP_1=gpu[1-2]" in error.found
    assert "--het-group" in error.fix


def test_het_step_has_the_nodes_of_its_component() -> None:
    """A step in one component has that component's nodes, whatever the job's list says."""
    environ = {
        **STEP,
        **HET,
        "SLURM_STEP_NODELIST": "gpu[1-2]",
        "SLURM_JOB_NODELIST": "cpu1",
        "SLURMD_NODENAME": "gpu1",
    }
    assert parse(environ).hosts == ("gpu1", "gpu2")


def test_het_step_over_two_components_is_refused() -> None:
    """Hosts of two components are never mixed."""
    error = refuse({**STEP, **HET, "SLURM_STEP_NODELIST": "cpu1,gpu1", "SLURMD_NODENAME": "cpu1"})
    assert error.what == "heterogeneous job: the step's nodes are not those of one component"
    assert "0: cpu1; 1: gpu1, gpu2" in error.found


def test_components_of_one_job_have_their_own_ports() -> None:
    """Slurm gives steps in two components one job id and one step id; their ports differ all the same."""
    nodes = {"SLURM_JOB_NODELIST_HET_GROUP_0": "n[1-2]", "SLURM_JOB_NODELIST_HET_GROUP_1": "m[1-2]"}
    first = parse({**STEP, **HET, **nodes})
    second = parse({**STEP, **HET, **nodes, "SLURM_STEP_NODELIST": "m[1-2]", "SLURMD_NODENAME": "m1"})
    assert first.port_candidates != second.port_candidates


# --- ranks ---


def test_rank_is_the_node_id() -> None:
    """The rank is Slurm's number: no host name is compared, no address looked up."""
    context = parse({**STEP, "SLURM_NODEID": "1", "SLURMD_NODENAME": "cn02.cluster.local"}, hostname="localhost")
    assert (context.node_rank, context.main_address) == (1, "n1")


@pytest.mark.parametrize("value", ["abc", "-1", "2", "1.0", "99999999999999999999999", "\u0661"])
def test_a_wrong_node_id_is_named(value: str) -> None:
    """A node id that is no number, or not below the number of nodes, is shown."""
    assert f"SLURM_NODEID={value}" in refuse({**STEP, "SLURM_NODEID": value}).found


def test_global_ranks_are_dense() -> None:
    """Over all nodes the global ranks are exactly those of the world."""
    contexts = [parse(STEP), parse({**STEP, **NODE_1})]
    ranks = [rank for context in contexts for rank in context.global_ranks]
    assert ranks == list(range(8))
    assert {context.world_size for context in contexts} == {8}


ARBITRARY = {
    **STEP, "SLURM_JOB_NODELIST": "n[583,752,801,869]", "SLURM_STEP_NODELIST": "n[583,752,801,869]",
    "SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_NUM_NODES": "4", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)", "SLURM_DISTRIBUTION": "arbitrary", "SLURMD_NODENAME": "n801",
}  # fmt: skip


def test_custom_order_of_nodes_is_refused_on_node_0() -> None:
    """Where node 0 is not the list's first, the others would call the wrong host: both are named, and the way out."""
    error = refuse(ARBITRARY)
    assert error.what == "node 0 is n801, but the node list begins with n583, where the others would look for it"
    assert "SLURM_DISTRIBUTION=arbitrary" in error.found
    assert "launch.main_address=n801" in error.fix


@pytest.mark.parametrize("ids", [{}, {"SLURM_NODEID": "1", "SLURMD_NODENAME": "n869"}])
def test_main_address_is_the_way_out_of_a_custom_order(ids: dict[str, str]) -> None:
    """With the true node 0 given by hand, every node of a custom order accepts it."""
    assert parse({**ARBITRARY, **ids}, main_address="n801").main_address == "n801"


def test_placeholder_does_not_help_in_a_custom_order() -> None:
    """{host} stands for the list's first, so node 0 must still be that one."""
    assert "n583" in refuse(ARBITRARY, main_address="{host}i").what


@pytest.mark.parametrize("hostname", ["n1", "n1.cluster.local", "N1"])
def test_host_name_serves_where_slurm_gives_no_node_name(hostname: str) -> None:
    """Without SLURMD_NODENAME the host name is compared, with or without its domain."""
    environ = {name: value for name, value in STEP.items() if name != "SLURMD_NODENAME"}
    assert parse(environ, hostname=hostname).main_address == "n1"
    assert "node 0 is n2" in refuse(environ, hostname="n2").what


def test_broken_bytes_in_a_name_can_be_shown() -> None:
    """A node name that is no text is written out, so that any terminal can show the error."""
    error = refuse({**STEP, "SLURMD_NODENAME": "n\udcff"})
    assert error.what.startswith(r"node 0 is 'n\udcff', but the node list begins with n1")
    assert str(error).encode("utf-8")


# --- main address ---


def test_address_of_the_machine_that_called_srun_is_not_used() -> None:
    """SLURM_LAUNCH_NODE_IPADDR is the login node, and main address is the list's first with and without it."""
    assert parse({**STEP, "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}) == parse(STEP)


@pytest.mark.parametrize("address", ["jw07i", "n1", "n1.ib.site", "n1i", "10.0.0.5", "fd00::1", "master.site"])
@pytest.mark.parametrize("node", [{}, NODE_1])
def test_address_by_hand_reaches_the_workers_unchanged(address: str, node: dict[str, str]) -> None:
    """Aliases, IP addresses and other names of node 0 are taken as they are, on every node."""
    assert parse({**STEP, **node}, main_address=address).main_address == address


@pytest.mark.parametrize(("pattern", "address"), [("{host}i", "n1i"), ("{host}.ib.site", "n1.ib.site"), ("", "n1")])
def test_placeholder_stands_for_the_computed_host(pattern: str, address: str) -> None:
    """{host} is the list's first on every node; an empty setting is none."""
    assert parse({**STEP, **NODE_1}, main_address=pattern).main_address == address


@pytest.mark.parametrize("address", ["n2", "N2", "n2i", "n2-ib", "n2.cluster"])
@pytest.mark.parametrize("node", [{}, NODE_1])
def test_address_of_another_node_is_refused(address: str, node: dict[str, str]) -> None:
    """An address that names node 1 would make everyone wait for a rank 0 that is not there."""
    error = refuse({**STEP, **node}, main_address=address)
    assert error.what == "launch.main_address names n2, but node 0, where global rank 0 runs, is n1"
    assert f"launch.main_address={address}" in error.found


def test_an_ip_address_names_no_node() -> None:
    """Where nodes have numbers for names, 10.0.0.5 is still an address and not node 10."""
    nodes = {"SLURM_STEP_NODELIST": "[9-10]", "SLURM_JOB_NODELIST": "[9-10]", "SLURMD_NODENAME": "9"}
    assert parse({**STEP, **nodes}, main_address="10.0.0.5").main_address == "10.0.0.5"


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "127.0.1.1", "::1", "0.0.0.0"])  # noqa: S104
def test_loopback_is_refused_on_several_nodes(address: str) -> None:
    """An address that leads every node to itself is no meeting point."""
    error = refuse(STEP, main_address=address)
    assert error.what == "the main address leads every node to itself"
    assert address in error.found


def test_a_node_named_localhost_is_refused_among_several() -> None:
    """The computed address is checked like one by hand."""
    nodes = {
        "SLURM_STEP_NODELIST": "localhost,n2",
        "SLURM_JOB_NODELIST": "localhost,n2",
        "SLURMD_NODENAME": "localhost",
    }
    assert "leads every node to itself" in refuse({**STEP, **nodes}).what


def test_loopback_serves_on_one_node() -> None:
    """On a single node any address of its own will do."""
    assert parse(BATCH_1, main_address="localhost").main_address == "localhost"


@pytest.mark.parametrize("address", ["10.0.0.9", "login1", "login1.site.org"])
def test_address_of_the_login_node_is_refused(address: str) -> None:
    """The machine that submitted or called srun is not the host of global rank 0."""
    login = {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9", "SLURM_SUBMIT_HOST": "login1"}
    assert "the main address is" in refuse({**STEP, **login}, main_address=address).what


@pytest.mark.parametrize("inside", [{"ENVIRONMENT": "BATCH"}, {"SLURM_PTY_PORT": "40001"}])
def test_srun_may_be_called_on_node_0(inside: dict[str, str]) -> None:
    """In a batch script or salloc's shell on a node, srun's own machine is node 0 and its address is right."""
    environ = {**STEP, "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1", "SLURM_SUBMIT_HOST": "n1", **inside}
    assert parse(environ, main_address="10.0.0.1").main_address == "10.0.0.1"


@pytest.mark.parametrize("address", ["fe80::1 10.0.0.5", "n1:29500", "{node}", " "])
def test_what_is_not_one_address_is_refused(address: str) -> None:
    """Two addresses on one line, a port or another placeholder is an error of the configuration."""
    with pytest.raises(ConfigError, match=r"launch\.main_address"):
        parse(STEP, main_address=address)


# --- counts ---


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, "SLURM_STEP_TASKS_PER_NODE=2(x2)"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1,2"}, "SLURM_STEP_TASKS_PER_NODE=1,2"),
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x3)"}, "SLURM_STEP_TASKS_PER_NODE=1(x3) describes 3 nodes"),
        ({"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_TASKS_PER_NODE": "4,3"}, "SLURM_TASKS_PER_NODE=4,3"),
        ({"SLURM_STEP_TASKS_PER_NODE": "", "SLURM_STEP_NUM_TASKS": "8"}, "SLURM_STEP_NUM_TASKS=8"),
        ({"SLURM_STEP_TASKS_PER_NODE": "x"}, "SLURM_STEP_TASKS_PER_NODE=x"),
        ({"SLURM_LOCALID": "1"}, "SLURM_LOCALID=1"),
    ],
)
def test_other_than_one_task_a_node_is_refused(changes: dict[str, str], shown: str) -> None:
    """Several tasks on a node would be several agents there: the list or number is shown."""
    error = refuse({**STEP, **changes})
    assert shown in error.found
    assert error.exit_code == 2


def test_requested_tasks_are_not_believed() -> None:
    """SLURM_NTASKS_PER_NODE is a request; where it differs from what runs, both are named."""
    environ = {**STEP, "SLURM_STEP_TASKS_PER_NODE": "", "SLURM_STEP_NUM_TASKS": "", "SLURM_NTASKS": "2"}
    error = refuse({**environ, "SLURM_NTASKS_PER_NODE": "2"})
    assert error.found.startswith("SLURM_NTASKS_PER_NODE=2, but SLURM_NTASKS=2 ")


def test_requested_tasks_are_not_believed_in_a_batch_script() -> None:
    """The same holds on one node outside srun."""
    error = refuse({**BATCH_1, "SLURM_NTASKS": "1", "SLURM_NTASKS_PER_NODE": "2"})
    assert error.found.startswith("SLURM_NTASKS_PER_NODE=2, but SLURM_NTASKS=1 ")


def test_number_of_tasks_may_be_missing() -> None:
    """Node id, count and list are all that is needed."""
    environ = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODEID": "1",
    }  # fmt: skip
    assert parse(environ).num_nodes == 2


def test_smallest_job() -> None:
    """One node, one task, one worker: rank 0 of 1, and no name to resolve."""
    environ = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "n", "SLURM_NNODES": "1",
        "SLURM_NTASKS": "1", "SLURM_TASKS_PER_NODE": "1", "SLURM_NODEID": "0",
    }  # fmt: skip
    context = parse(environ, local_world_size=1)
    assert (context.world_size, context.hosts, context.main_address) == (1, ("n",), "127.0.0.1")


@pytest.mark.parametrize(("num_nodes", "have"), [(4, "fewer"), (1, "more")])
def test_step_must_have_the_nodes_that_the_run_asks_for(num_nodes: int, have: str) -> None:
    """A step of another size than asked for is an error with both numbers and both ways out."""
    error = refuse(STEP, num_nodes=num_nodes)
    assert error.what == f"the step has {have} nodes than the run asks for"
    assert error.found == f"SLURM_STEP_NUM_NODES=2 on n1 (job 4711), nodes={num_nodes}"
    assert error.fix == f"nodes=2, or start the step with srun --nodes={num_nodes}"


def test_step_of_the_right_size_is_accepted() -> None:
    """Asking for what the step has changes nothing."""
    assert parse(STEP, num_nodes=2) == parse(STEP)


@pytest.mark.parametrize("arguments", [{"local_world_size": 0}, {"num_nodes": 0}, {"gpus_per_node": -1}])
def test_arguments_must_make_sense(arguments: dict[str, int]) -> None:
    """No nodes, no workers or a negative number of GPUs is an error of the configuration."""
    with pytest.raises(ConfigError, match="at least one node and one worker"):
        parse(STEP, **arguments)


@pytest.mark.parametrize(
    ("environ", "cpus"),
    [
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "64"}, 8),
        ({"SLURM_JOB_CPUS_PER_NODE": "72(x2)"}, 72),
        ({"SLURM_JOB_CPUS_PER_NODE": "72,36", "SLURM_JOB_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n2"}, 36),
        ({"SLURM_JOB_CPUS_PER_NODE": "72,36"}, None),
        ({"SLURM_CPUS_ON_NODE": ""}, None),
    ],
)
def test_reads_cpus_of_this_node(environ: dict[str, str], cpus: int | None) -> None:
    """The step's own number comes first, then the job's list at this node's place, else nothing is guessed."""
    assert parse_cpus_on_node(environ) == cpus


# --- devices ---


def test_devices_stay_as_slurm_gave_them() -> None:
    """A job that was given cards 2 and 3 keeps these."""
    assert parse({**STEP, "CUDA_VISIBLE_DEVICES": "2,3"}, gpus_per_node=2).devices == ("2", "3")


@pytest.mark.parametrize(
    ("changes", "visible"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 0),
        ({"ROCR_VISIBLE_DEVICES": "0"}, 1),
        ({"SLURM_GPUS_ON_NODE": "3"}, 3),
    ],
)
def test_fewer_devices_than_asked_are_refused(changes: dict[str, str], visible: int) -> None:
    """Fewer GPUs than asked for is an error on that node with both numbers, not a smaller world."""
    error = refuse({**STEP, **changes}, gpus_per_node=4)
    name, value = next(iter(changes.items()))
    assert f"asked 4 (resources.gpus_per_node), visible {visible}: {name}=" in error.found
    assert value in error.found
    assert "on n1 (job 4711)" in error.found


def test_more_devices_than_asked_are_kept() -> None:
    """Worker i takes entry i, so entries beyond the workers do no harm."""
    assert parse({**STEP, "CUDA_VISIBLE_DEVICES": "0,1,2"}, gpus_per_node=2).devices == ("0", "1", "2")


@pytest.mark.parametrize("gpus_per_node", [None, 0, 4])
def test_unknown_devices_are_no_error(gpus_per_node: int | None) -> None:
    """Where no variable tells, nothing is claimed: the agent counts on the node itself."""
    assert parse(STEP, gpus_per_node=gpus_per_node).devices == ()


def test_no_gpus_asked_for_needs_none() -> None:
    """A run without GPUs starts where none are visible."""
    assert parse({**STEP, "CUDA_VISIBLE_DEVICES": ""}, gpus_per_node=0).devices == ()


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({"SLURM_GPUS_PER_TASK": "", "SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"SLURM_GPUS_PER_NODE": "a100:8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({}, None),
    ],
)
def test_reads_gpus_of_this_node(environ: dict[str, str], gpus: int | None) -> None:
    """What is visible comes first, then what Slurm gave, then what was asked, else nothing is guessed."""
    assert parse_gpus_on_node(environ) == gpus


# --- attempts and ports ---


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_ID": "4712"},
        {"SLURM_STEP_ID": "1"},
        {"SLURM_RESTART_COUNT": "1"},
        {"SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "1"},
    ],
)
def test_whatever_differs_has_other_ports(changes: dict[str, str]) -> None:
    """Jobs, steps, attempts and array tasks do not meet on each other's ports."""
    assert parse({**STEP, **changes}).port_candidates[0] != parse(STEP).port_candidates[0]


def test_user_and_secret_change_the_ports() -> None:
    """Two users never share a list, and nobody can compute one without the secret."""
    lists = {parse(STEP, user=user, secret=secret).port_candidates for user in ("a", "b") for secret in (b"", b"s")}
    assert len(lists) == 4


def test_all_nodes_have_the_same_ports() -> None:
    """Nothing of one node alone goes into the list."""
    other = {**STEP, **NODE_1, "CUDA_VISIBLE_DEVICES": "3", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}
    assert parse(other, hostname="n2").port_candidates == parse(STEP, hostname="n1").port_candidates


def test_reads_job_id_and_restarts() -> None:
    """An array task is named as people write it; no restart count means none."""
    environ = {"SLURM_JOB_ID": "4703", "SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "3"}
    assert (parse_job_id(environ), parse_job_id({}), parse_job_id({"SLURM_JOBID": "7"})) == ("4700_3", None, "7")
    assert (parse_restart_count({}), parse_restart_count({"SLURM_RESTART_COUNT": "2"})) == (0, 2)


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_RESTART_COUNT"])
def test_a_malformed_number_is_named(name: str) -> None:
    """A number that is none is shown with its variable."""
    assert refuse({**STEP, name: "x1"}).found == f"{name}=x1"


# --- where we are ---


@pytest.mark.parametrize(
    ("environ", "is_step"),
    [
        ({"SLURM_STEP_ID": "0"}, True),
        ({"SLURM_STEP_ID": "4294967279"}, True),
        ({"SLURM_STEP_ID": "4294967280"}, False),
        ({"SLURM_STEP_ID": "4294967291"}, False),
        ({"SLURM_STEPID": "3"}, True),
        ({"SLURM_STEP_ID": "batch"}, False),
        ({"SLURM_STEP_ID": ""}, False),
        ({}, False),
    ],
)
def test_knows_a_plain_step(environ: dict[str, str], *, is_step: bool) -> None:
    """Only a step of srun counts, not the special ones of batch scripts and interactive shells."""
    assert is_plain_step(environ) is is_step


def test_knows_a_job() -> None:
    """Either name of the job id makes a job, an empty one does not."""
    assert has_job({"SLURM_JOB_ID": "1"})
    assert has_job({"SLURM_JOBID": "1"})
    assert not has_job({"SLURM_JOB_ID": ""})


@pytest.mark.parametrize(
    "name",
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK",
     "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "TORCHELASTIC_RUN_ID", "PMIX_RANK", "PMI_RANK", "PMI2_SIZE",
     "SUBMITIT_EXECUTOR", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURMD_NODENAME", "SBATCH_ACCOUNT", "SRUN_DEBUG",
     "OMPI_COMM_WORLD_RANK", "LT_DEVICES", "PL_TRAINER_NUM_NODES", "PET_RDZV_ENDPOINT"],
)  # fmt: skip
def test_variables_of_an_outer_job_leak(name: str) -> None:
    """What an outer job or launcher says about ranks must not reach our workers."""
    assert is_leaking(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "CUDA_VISIBLE_DEVICES", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS", "SLURM_CONF", "PL_TRAINER_MAX_EPOCHS",
     "LT_PRECISION", "MASTER_KEY", "RANKING", "HYDRA_FULL_ERROR", "WANDB_MODE", "OMPI_MCA_btl", "PET_SCANS"],
)  # fmt: skip
def test_variables_of_the_person_do_not_leak(name: str) -> None:
    """What the person has set for the work, and where Slurm is found, stays."""
    assert not is_leaking(name)


# --- any input ---

NAMES = sorted({*STEP, *BATCH_1, *HET, "SLURM_NNODES", "SLURM_NODELIST", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE",
                "SLURM_RESTART_COUNT", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_GPUS_ON_NODE",
                "SLURM_SUBMIT_HOST", "SLURM_LAUNCH_NODE_IPADDR", "CUDA_VISIBLE_DEVICES"})  # fmt: skip
VALUES = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="n[]-,012(x) ", max_size=12),
    st.integers(-1, 5).map(str),
    st.sampled_from(["n[1-2]", "1(x2)", "n1", "n2", "4294967291", "9" * 5000, "\udcff", "n[1-99999999999]"]),
)


@given(
    st.sampled_from([{}, STEP, BATCH_1]),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6),
    st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["n2", "{host}i", "::1", "{", "[::1]"])),
    st.one_of(st.none(), st.integers(-1, 3)),
)
def test_any_environment_gives_a_context_or_our_error(
    base: dict[str, str], changes: dict[str, str], main_address: str | None, number: int | None
) -> None:
    """No input makes anything but a context whose parts agree, or our own error with its three parts."""
    try:
        context = parse({**base, **changes}, main_address=main_address, gpus_per_node=number, num_nodes=number)
    except MultiNodeError as caught:
        error = caught
    else:
        assert 0 <= context.node_rank < context.num_nodes == len(context.hosts)
        assert context.main_address
        assert all(1024 < port < 32768 for port in context.port_candidates)
        return
    assert error.what
    assert error.found
    assert error.fix
    # A terminal of any kind can show it: broken bytes of the environment are written out.
    str(error).encode("utf-8")
