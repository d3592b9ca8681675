"""The Python API on Slurm: submit, wait, results, cancel, from the login node and from a shell of salloc."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.slurm.conftest import OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

SCRIPT = """
import json, socket, sys
from hpc_multinode import MultiNode, RunFailedError

class Place:
    @staticmethod
    def run(node_rank, num_nodes):
        return [node_rank, num_nodes, socket.gethostname()]

def fail(node_rank):
    if node_rank == 1: raise ValueError("on node 1")
    import time; time.sleep(60)

def sleep():
    import time; time.sleep(100)

if __name__ == "__main__":
    good = MultiNode(Place, num_nodes=2).submit()
    told = [good.results(), good.wait()]
    bad = MultiNode(fail, num_nodes=2).submit()
    try: bad.results()
    except RunFailedError as error: told.append(error.report.root_cause.message)
    long = MultiNode(sleep, num_nodes=2).submit()
    try: long.wait(2)
    except TimeoutError: long.cancel()
    print(json.dumps([*told, long.report().state, long.wait()]))
"""


@pytest.mark.parametrize("before", [(), ("salloc", "-N2")], ids=["login", "salloc"])
def test_api_runs_waits_and_cancels(on_slurm: OnSlurm, before: tuple[str, ...]) -> None:
    """Results come back by rank from two real nodes, a failure raises its cause, a cancelled run is CANCELLED."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "script.py", SCRIPT)
    ended = on_slurm.cluster.run([*before, "python", "script.py"], cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results, code, message, state, cancelled = json.loads(ended.stdout.splitlines()[-1])
    assert [place[:2] for place in results] == [[0, 2], [1, 2]]
    assert len({place[2] for place in results}) == 2
    assert (code, message, state) == (0, "on node 1", "CANCELLED")
    assert cancelled == 143


def test_run_is_a_job_of_submitits(on_slurm: OnSlurm) -> None:
    """``run.job`` is a SlurmJob whose results and logs are the workers' own."""
    cwd = on_slurm.make_folder()
    script = """
import json
from hpc_multinode import MultiNode

def work(node_rank):
    print("node", node_rank)
    return node_rank * 10

if __name__ == "__main__":
    run = MultiNode(work, num_nodes=2).submit()
    print(json.dumps([type(run.job).__mro__[1].__name__, run.job.results(), run.job.task(1).stdout(), run.wait()]))
"""
    on_slurm.write(cwd, "script.py", script)
    ended = on_slurm.cluster.run(["python", "script.py"], cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == ["SlurmJob", [0, 10], "node 1\n", 0]
