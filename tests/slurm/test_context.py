"""``context``: what a process's environment says of its place, asked wherever a process of a real job can be."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

ASK = ("context", "--json")
_ASK_IN_SHELL = "python -m hpc_multinode context --json"


def read_told(text: str) -> list[dict[str, Any]]:
    """Return what each process has told, in the order of their node ranks."""
    told = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return sorted(told, key=lambda place: place["node_rank"])


def ask(on_slurm: OnSlurm, *before: str, words: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Ask behind some words, such as those of srun."""
    ended = on_slurm.run(*ASK, *words, before=before)
    assert ended.code == 0, ended.err
    return read_told(ended.out)


@pytest.fixture(scope="module")
def step(on_slurm: OnSlurm) -> list[dict[str, Any]]:
    """Ask in a step of three nodes."""
    return ask(on_slurm, "srun", "-N3")


def test_step_is_told_in_node_order(step: list[dict[str, Any]], on_slurm: OnSlurm) -> None:
    """Every task of a step has its node's rank, the same hosts, and the first of them as main address."""
    hosts = list(on_slurm.cluster.node_names)
    assert [place["node_rank"] for place in step] == [0, 1, 2]
    for place in step:
        expected = {
            "num_nodes": 3, "hosts": hosts, "main_address": hosts[0], "step_id": "0", "source": "slurm-step",
            "restart_count": 0, "local_world_size": 1, "world_size": 3, "devices": [], "component": "",
        }  # fmt: skip
        assert {name: place[name] for name in expected} == expected
        assert place["job_id"].isdigit()


def test_ports_are_the_same_on_all_nodes(step: list[dict[str, Any]]) -> None:
    """All tasks of a step name the same ports in the same order, above 1023 and below the ephemeral range."""
    assert step[0]["port_candidates"] == step[1]["port_candidates"] == step[2]["port_candidates"]
    assert all(1023 < port < 32768 for port in step[0]["port_candidates"])


def test_steps_of_a_job_have_other_ports(on_slurm: OnSlurm) -> None:
    """Two steps of one job share no list of ports, and have other step ids."""
    ended = on_slurm.run_batch(f"srun {_ASK_IN_SHELL}; srun {_ASK_IN_SHELL}", "-N1")
    first, second = (json.loads(line) for line in ended.out.splitlines())
    assert (first["step_id"], second["step_id"]) == ("0", "1")
    assert first["job_id"] == second["job_id"]
    assert first["port_candidates"] != second["port_candidates"]


def test_gpus_of_a_step(on_slurm: OnSlurm) -> None:
    """GPUs that Slurm gave are devices, and each makes a worker."""
    for place in ask(on_slurm, "srun", "-N2", "--gpus-per-node=2"):
        assert (place["devices"], place["local_world_size"], place["world_size"]) == (["0", "1"], 2, 4)


def test_login_side_is_this_machine(on_slurm: OnSlurm) -> None:
    """Outside any job the answer is this machine alone, with no job."""
    (place,) = ask(on_slurm)
    expected = {"source": "local", "job_id": None, "step_id": None, "node_rank": 0, "num_nodes": 1}
    assert {name: place[name] for name in expected} == expected


def test_text_has_a_line_for_every_field(on_slurm: OnSlurm) -> None:
    """Without ``--json`` every field has a line for people."""
    ended = on_slurm.run("context", before=("srun", "-N1"))
    assert ended.code == 0, ended.err
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in ended.out.splitlines())
    assert lines["source"] == "slurm-step"
    assert lines["hosts"] == on_slurm.cluster.node_names[0]
    assert lines["main_address"] == "127.0.0.1"  # one node needs no name that resolves
    assert {"job_id", "step_id", "node_rank", "num_nodes", "port_candidates", "restart_count", "devices"} <= set(lines)


def test_step_on_part_of_the_allocation(on_slurm: OnSlurm) -> None:
    """A step on the last two of three nodes has these alone, and its own main address."""
    last = list(on_slurm.cluster.node_names[1:])
    told = ask(on_slurm, "salloc", "-N3", "srun", "-N2", "-n2", "-w", ",".join(last))
    assert [place["node_rank"] for place in told] == [0, 1]
    for place in told:
        assert (place["hosts"], place["main_address"], place["num_nodes"]) == (last, last[0], 2)


def test_component_of_a_heterogeneous_job(on_slurm: OnSlurm) -> None:
    """A step in the second component has that component's nodes alone, and says which it is."""
    told = ask(on_slurm, "salloc", "-N1", ":", "-N2", "srun", "--het-group=1")
    assert len(told) == 2
    for place in told:
        assert (place["num_nodes"], place["component"]) == (2, "1")
        assert place["main_address"] == place["hosts"][0]


def test_both_components_at_once_are_refused(on_slurm: OnSlurm) -> None:
    """A step over two components is an error, or two worlds, never a mix of both."""
    ended = on_slurm.run(*ASK, before=("salloc", "-N1", ":", "-N1", "srun", "--het-group=0,1"))
    told = read_told(ended.out)
    assert (ended.code == 2 and not told) or {place["component"] for place in told} == {"0", "1"}, ended.out


def test_heterogeneous_batch_script_is_refused(on_slurm: OnSlurm) -> None:
    """In the script of a heterogeneous job the component cannot be known: exit code 2, with the option to choose."""
    cwd = on_slurm.make_folder()
    ended = on_slurm.run(*ASK, before=("salloc", "-N1", ":", "-N1"), cwd=cwd)
    assert ended.code == 2
    assert "--het-group=" in ended.err


@pytest.fixture(scope="module")
def array(on_slurm: OnSlurm) -> list[dict[str, Any]]:
    """Ask in a step of each of two tasks of an array."""
    cwd = on_slurm.make_folder()
    on_slurm.run_batch(f"srun {_ASK_IN_SHELL} > told-$SLURM_ARRAY_TASK_ID", "-N2", "--array=3,5", cwd=cwd)
    told = [cwd / f"told-{task}" for task in (3, 5)]
    for path in told:  # the job of the last task may be over before that of the first
        wait_until(lambda path=path: path.exists() and path.read_text().count("\n") == 2, what=f"two in {path.name}")
    return [place for path in told for place in read_told(path.read_text())]


def test_job_id_of_an_array_names_the_task(array: list[dict[str, Any]]) -> None:
    """The job id of an array's task is ``<array>_<task>``."""
    assert [re.sub(r"^\d+_", "", place["job_id"]) for place in array] == ["3", "3", "5", "5"]
    assert len({place["job_id"].partition("_")[0] for place in array}) == 1


def test_tasks_of_an_array_have_other_ports(array: list[dict[str, Any]]) -> None:
    """Two tasks of an array share no list of ports."""
    assert array[0]["port_candidates"] == array[1]["port_candidates"] != array[2]["port_candidates"]


def test_batch_script_of_one_node(on_slurm: OnSlurm) -> None:
    """In the batch script of a job of one node the answer is that node."""
    ended = on_slurm.run_batch(_ASK_IN_SHELL, "-N1", "--gpus-per-node=1")
    (place,) = read_told(ended.out)
    expected = {"source": "slurm-batch", "step_id": None, "num_nodes": 1, "node_rank": 0, "devices": ["0"]}
    assert {name: place[name] for name in expected} == expected


def test_batch_script_of_two_nodes_is_refused(on_slurm: OnSlurm) -> None:
    """In the batch script of a job of two nodes the answer is exit code 2, with srun as the fix, in about a second."""
    ended = on_slurm.run_batch(f"time -p {_ASK_IN_SHELL}", "-N2")
    assert ended.code == 2
    assert ended.out == ""
    assert "error: this process runs outside srun" in ended.err
    assert "SLURM_JOB_NUM_NODES=2" in ended.err
    took = re.search(r"^real (\S+)$", ended.err, re.MULTILINE)
    assert took is not None
    assert float(took[1]) < 20


@pytest.mark.parametrize("nodes", [1, 2])
def test_shell_of_salloc_is_refused(on_slurm: OnSlurm, nodes: int) -> None:
    """The shell of salloc runs on the login side, which is no node: exit code 2, with srun as the fix."""
    ended = on_slurm.run(*ASK, before=("salloc", f"-N{nodes}"))
    assert ended.code == 2
    assert "srun --ntasks-per-node=1" in ended.err


def test_interactive_step_is_no_step(on_slurm: OnSlurm) -> None:
    """With ``use_interactive_step`` the shell is on a node, but is no step: one node is known, two are refused."""
    cwd = on_slurm.make_folder()
    with on_slurm.cluster.configured("LaunchParameters=use_interactive_step"):
        for nodes in (1, 2):
            text = f"{_ASK_IN_SHELL} > told{nodes} 2>&1; echo rc=$? >> told{nodes}; exit\n"
            words = ["script", "-qec", f"salloc -N{nodes}", "/dev/null"]
            on_slurm.cluster.run(words, cwd=cwd, text_in=text, timeout_s=60)
    (place,) = read_told((cwd / "told1").read_text())
    assert (place["source"], place["num_nodes"], place["step_id"]) == ("slurm-batch", 1, None)
    assert place["hosts"][0] in on_slurm.cluster.node_names
    assert "error: this process runs outside srun" in (cwd / "told2").read_text()
    assert "rc=2" in (cwd / "told2").read_text()


@pytest.mark.parametrize("options", ["-N1 -n2", "-N2 -n3"])
def test_several_tasks_on_a_node_are_refused(on_slurm: OnSlurm, options: str) -> None:
    """More than one task on a node is an error that shows the list."""
    ended = on_slurm.run(*ASK, before=("srun", *options.split()))
    assert ended.code == 2
    assert re.search(r"SLURM_STEP_TASKS_PER_NODE=\S+", ended.err)
    assert ended.out == ""


def test_requeued_job_counts(on_slurm: OnSlurm) -> None:
    """After a requeue the restart count is 1, and the ports are others."""
    cwd = on_slurm.make_folder()
    text = f'srun {_ASK_IN_SHELL} > "told-${{SLURM_RESTART_COUNT:-0}}"; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    job = on_slurm.cluster.run(
        ["sbatch", "--parsable", "-N1", "--requeue", "--output=job.out"],
        cwd=cwd,
        text_in=f"#!/bin/bash\n{text}\n",
        check=True,
    ).stdout.strip()
    on_slurm.wait_until_told(cwd / "told-0")
    on_slurm.cluster.scontrol("requeue", job)
    on_slurm.wait_until_told(cwd / "told-1")
    on_slurm.wait_for_end(job)
    (first,), (second,) = (read_told((cwd / f"told-{count}").read_text()) for count in (0, 1))
    assert (first["restart_count"], second["restart_count"]) == (0, 1)
    assert first["job_id"] == second["job_id"] == job
    assert first["port_candidates"] != second["port_candidates"]


def test_login_into_a_node_is_no_task(on_slurm: OnSlurm) -> None:
    """A shell that knows the job id alone, as after ssh into a node, is refused with what was seen."""
    started = on_slurm.run(*ASK, before=("env", "SLURM_JOB_ID=4711"))
    assert started.code == 2
    assert "job 4711" in started.err


def test_other_size_is_refused(on_slurm: OnSlurm) -> None:
    """``nodes=3`` in a step of two is exit code 2 with both numbers."""
    ended: EndedOnSlurm = on_slurm.run(*ASK, "nodes=3", before=("srun", "-N2"))
    assert ended.code == 2
    assert "SLURM_STEP_NUM_NODES=2" in ended.err
