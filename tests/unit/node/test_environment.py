"""Which variables workers get: torchrun's, the person's, and none of an outer launcher."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.config import Config, Mode
from hpc_multinode.context import NodeContext
from hpc_multinode.node.environment import LAUNCHER_PID, make_node_env, make_worker_env
from hpc_multinode.planning import make_plan
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

FOREIGN = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "ROLE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "SUBMITIT_LOCAL_GLOBALID",
    "PMI_RANK",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_RANK",
    "LT_CLI_USED",
    "LT_NUM_NODES",
    "PL_TRAINER_NUM_NODES",
    "SBATCH_PARTITION",
    LAUNCHER_PID,
]
KEPT = ["PATH", "HOME", "PYTHONPATH", "PL_TRAINER_MAX_EPOCHS", "MASTER", "RANKING", "SLURM_CONF", "NCCL_DEBUG"]


def make_environment_plan(*, mode: Mode = Mode.local, gpus_per_node: int | None = None) -> LaunchPlan:
    """Return the plan of a run of two nodes with two workers each, on 12 CPUs and 4 GPUs."""
    config = Config(nodes=2)
    config.resources.workers_per_node = 2
    config.resources.gpus_per_node = gpus_per_node
    facts = make_facts(mode=mode, devices=("0", "1", "2", "3"), num_cpus=12)
    return make_plan(config, facts=facts, target=None)


def make_node(*, source: str = "local", devices: tuple[str, ...] = ()) -> NodeContext:
    """Return the second of two nodes with two workers each."""
    return NodeContext(
        job_id=None if source == "local" else "4711",
        step_id=None if source == "local" else "0",
        node_rank=1,
        num_nodes=2,
        hosts=("n1", "n2"),
        main_address="n1",
        port_candidates=(10_000,),
        local_world_size=2,
        devices=devices,
        restart_count=0,
        source=source,
    )


def make_local_env(
    environ: dict[str, str], plan: LaunchPlan | None = None, devices: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return what the workers of a local node share."""
    return make_node_env(environ, plan=plan or make_environment_plan(), node=make_node(devices=devices))


def make_step_env(environ: dict[str, str], plan: LaunchPlan | None = None) -> dict[str, str]:
    """Return what the workers of a node in a step share."""
    return make_node_env(
        environ, plan=plan or make_environment_plan(mode=Mode.slurm), node=make_node(source="slurm-step")
    )


def test_a_worker_gets_the_variables_of_torchrun() -> None:
    """Ranks, sizes, address, port and attempt stand under the names that torchrun gives them."""
    place = make_node().make_worker(1, main_address="n1", main_port=1234, attempt=2, run_dir="/run-1")
    env = make_worker_env(replace(make_environment_plan(), max_restarts=3), place)
    assert env == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "3",
        "ROLE_WORLD_SIZE": "4",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "1234",
        "TORCHELASTIC_RUN_ID": "run-1-2",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
    }


@pytest.mark.parametrize("name", FOREIGN)
def test_an_outer_launcher_does_not_reach_local_workers(name: str) -> None:
    """A rank or size of somebody else's never becomes a worker's own."""
    assert name not in make_local_env({name: "7"})


@pytest.mark.parametrize("name", FOREIGN)
def test_an_outer_launcher_does_not_reach_the_workers_of_a_step(name: str) -> None:
    """What sbatch handed down from the login shell is not believed in a step either."""
    assert name not in make_step_env({name: "7"})


@pytest.mark.parametrize("name", KEPT)
def test_variables_of_the_person_are_kept(name: str) -> None:
    """What is not of a launcher comes through unchanged, here and in a step."""
    assert make_local_env({name: "7"})[name] == make_step_env({name: "7"})[name] == "7"


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_PROCID", "SLURMD_NODENAME"])
def test_slurm_variables_are_kept_in_a_step(name: str) -> None:
    """In a step of our own, Slurm's variables are the worker's job."""
    assert make_step_env({name: "7"})[name] == "7"


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "SLURM_PROCID", "SLURMD_NODENAME"])
def test_slurm_variables_of_an_outer_job_do_not_reach_local_workers(name: str) -> None:
    """A local run inside a job is not that job."""
    assert name not in make_local_env({name: "7"})


def test_the_own_variables_of_the_agent_are_not_changed() -> None:
    """The mapping that is given stays as it is."""
    environ = {"RANK": "7", "PATH": "/bin"}
    make_local_env(environ)
    assert environ == {"RANK": "7", "PATH": "/bin"}


def test_children_of_workers_do_not_hold_back_their_output() -> None:
    """Python started by a worker prints at once."""
    assert make_local_env({})["PYTHONUNBUFFERED"] == "1"


def test_threads_follow_from_the_cpus_of_this_machine() -> None:
    """12 CPUs over two nodes of two workers are three threads each."""
    assert make_local_env({})["OMP_NUM_THREADS"] == "3"


def test_threads_follow_from_the_cpus_of_the_step() -> None:
    """The CPUs that Slurm gave the node are shared between its workers."""
    assert make_step_env({"SLURM_CPUS_ON_NODE": "16"})["OMP_NUM_THREADS"] == "8"


def test_a_worker_has_at_least_one_thread() -> None:
    """More workers than CPUs give one thread each, never none."""
    assert make_step_env({"SLURM_CPUS_ON_NODE": "1"})["OMP_NUM_THREADS"] == "1"


def test_threads_are_not_guessed() -> None:
    """Where nobody says how many CPUs there are, the libraries decide."""
    assert "OMP_NUM_THREADS" not in make_step_env({})


def test_cpus_of_an_outer_job_do_not_count_locally() -> None:
    """The threads of a local run follow from the plan."""
    assert make_local_env({"SLURM_CPUS_ON_NODE": "64"})["OMP_NUM_THREADS"] == "3"


def test_threads_set_by_the_person_are_kept() -> None:
    """An OMP_NUM_THREADS that is there already wins."""
    assert make_local_env({"OMP_NUM_THREADS": "5"})["OMP_NUM_THREADS"] == "5"
    assert make_step_env({"OMP_NUM_THREADS": "5", "SLURM_CPUS_ON_NODE": "16"})["OMP_NUM_THREADS"] == "5"


def test_env_of_the_configuration_wins() -> None:
    """What the configuration sets stands above the environment and above what is computed."""
    plan = replace(make_environment_plan(), env={"OMP_NUM_THREADS": "9", "PATH": "/opt", "PYTHONUNBUFFERED": ""})
    env = make_local_env({"PATH": "/bin", "OMP_NUM_THREADS": "5"}, plan)
    assert (env["OMP_NUM_THREADS"], env["PATH"], env["PYTHONUNBUFFERED"]) == ("9", "/opt", "")


def test_local_workers_talk_over_the_loopback_interface() -> None:
    """On one machine gloo needs no name that resolves, unless the person chose an interface."""
    assert make_local_env({})["GLOO_SOCKET_IFNAME"] == "lo"
    assert make_local_env({"GLOO_SOCKET_IFNAME": "eth0"})["GLOO_SOCKET_IFNAME"] == "eth0"


def test_workers_of_a_cluster_choose_their_interface() -> None:
    """Between machines no interface is set."""
    assert "GLOO_SOCKET_IFNAME" not in make_step_env({})


def test_a_local_node_sees_its_share_of_the_gpus() -> None:
    """The node's own devices are what its workers see."""
    env = make_local_env({"CUDA_VISIBLE_DEVICES": "4,5,GPU-a"}, devices=("5", "GPU-a"))
    assert env["CUDA_VISIBLE_DEVICES"] == "5,GPU-a"


def test_a_share_is_written_where_nothing_was_set() -> None:
    """Without a mask of the person's, CUDA's variable carries the share."""
    assert make_local_env({}, devices=("2", "3"))["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_share_is_written_under_the_name_that_was_set() -> None:
    """On a machine that masks its devices with HIP's variable, that one carries the share."""
    env = make_local_env({"HIP_VISIBLE_DEVICES": "0,1"}, devices=("1",))
    assert (env["HIP_VISIBLE_DEVICES"], "CUDA_VISIBLE_DEVICES" in env) == ("1", False)


def test_a_run_that_asks_for_no_gpu_sees_none() -> None:
    """resources.gpus_per_node=0 hides the GPUs of this machine from local workers."""
    env = make_local_env({"CUDA_VISIBLE_DEVICES": "0,1"}, make_environment_plan(gpus_per_node=0))
    assert env["CUDA_VISIBLE_DEVICES"] == ""


def test_without_a_share_the_mask_is_the_persons() -> None:
    """A node that was given no devices, in a run that did not ask, leaves the variable alone."""
    assert make_local_env({"CUDA_VISIBLE_DEVICES": "3"})["CUDA_VISIBLE_DEVICES"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in make_local_env({})


def test_the_devices_of_a_step_are_slurms() -> None:
    """In a step the mask that Slurm set is not touched."""
    node = make_node(source="slurm-step", devices=("0", "1"))
    plan = make_environment_plan(mode=Mode.slurm, gpus_per_node=2)
    env = make_node_env({"CUDA_VISIBLE_DEVICES": "0,1"}, plan=plan, node=node)
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"
