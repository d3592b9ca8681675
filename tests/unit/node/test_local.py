"""Where an agent stands among those that run side by side on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.config import Config
from hpc_multinode.errors import RendezvousError
from hpc_multinode.node.local import parse_local_context
from hpc_multinode.planning import make_plan
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.context import NodeContext
    from hpc_multinode.plan import LaunchPlan

TASK = "SUBMITIT_LOCAL_GLOBALID"


def make_local_plan(nodes: int = 2, devices: tuple[str, ...] = ()) -> LaunchPlan:
    """Return the plan of a local run with two workers a node."""
    config = Config(nodes=nodes)
    config.resources.workers_per_node = 2
    facts = make_facts(devices=devices, num_cpus=8)
    return make_plan(config, facts=facts, target=None)


def parse(task: str, plan: LaunchPlan, secret: bytes = b"s") -> NodeContext:
    """Return the place of one task."""
    return parse_local_context({TASK: task}, plan=plan, secret=secret, hostname="laptop")


def test_the_task_is_the_node() -> None:
    """Submitit's task number is the node rank, and every node bears this machine's name."""
    node = parse("1", make_local_plan(3))
    assert (node.node_rank, node.num_nodes, node.hosts) == (1, 3, ("laptop",) * 3)


def test_ranks_follow_from_the_node() -> None:
    """The second node of two with two workers each holds the global ranks 2 and 3 of 4."""
    node = parse("1", make_local_plan())
    assert (list(node.global_ranks), node.world_size) == ([2, 3], 4)


def test_a_local_run_has_no_job() -> None:
    """There is neither job nor step, and nothing was requeued."""
    node = parse("0", make_local_plan())
    assert (node.job_id, node.step_id, node.restart_count, node.source) == (None, None, 0, "local")


def test_workers_meet_on_the_loopback_address() -> None:
    """No name of this machine has to resolve."""
    assert parse("1", make_local_plan()).main_address == "127.0.0.1"


def test_an_address_by_hand_is_used() -> None:
    """The person's own address wins, with {host} filled in."""
    plan = replace(make_local_plan(), main_address="{host}.local")
    assert parse("1", plan).main_address == "laptop.local"


def test_devices_are_shared_out_between_the_nodes() -> None:
    """Each node has its own part of the GPUs that this machine shows."""
    plan = make_local_plan(2, devices=("0", "2", "GPU-a", "GPU-b"))
    assert [parse(task, plan).devices for task in ("0", "1")] == [("0", "2"), ("GPU-a", "GPU-b")]


def test_without_gpus_a_node_has_no_devices() -> None:
    """A machine without GPUs gives none."""
    assert parse("0", make_local_plan()).devices == ()


def test_all_nodes_know_the_same_ports() -> None:
    """The nodes of one run look for each other on one list."""
    plan = make_local_plan()
    assert parse("0", plan).port_candidates == parse("1", plan).port_candidates


def test_two_runs_do_not_meet() -> None:
    """Runs in other folders, or with other secrets, have other ports."""
    plan = make_local_plan()
    lists = {
        parse("0", plan).port_candidates,
        parse("0", replace(plan, run_dir="/home/ada/runs/run-2")).port_candidates,
        parse("0", plan, secret=b"t").port_candidates,
    }
    assert len(lists) == 3


@pytest.mark.parametrize("task", ["", "2", "-1", "1.0", "x", " 1"])
def test_an_agent_without_a_place_is_an_error(task: str) -> None:
    """A task number that is absent, malformed or beyond the run is named, and never becomes rank 0."""
    with pytest.raises(RendezvousError) as caught:
        parse(task, make_local_plan())
    assert f"{TASK}={task!r}, nodes=2" in caught.value.found


def test_an_agent_started_by_hand_is_an_error() -> None:
    """Without submitit's variable nobody knows which node this is."""
    with pytest.raises(RendezvousError, match="does not know which node it is"):
        parse_local_context({}, plan=make_local_plan(), secret=b"s", hostname="laptop")
