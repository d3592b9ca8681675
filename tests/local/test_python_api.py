"""The Python API, from a script of its own: works of ``__main__``, return values, failures."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conftest import Launcher

HEAD = """
import json, threading
from hpc_multinode import (
    LiteMultiNode, MultiNode, PyTorchLightningMultiNode, PyTorchSpawnMultiNode, RunFailedError, MultiNodeError
)
LOCAL = ["cluster=local"]
"""


def run_script(launcher: Launcher, body: str) -> Any:
    """Run a script in the test's folder and return what it prints as JSON on its last line."""
    script = launcher.cwd / "my_script.py"
    script.write_text(HEAD + body)
    ended = subprocess.run(
        [sys.executable, str(script)], cwd="/", env={**launcher.env, "HPC_MULTINODE_RUN_ROOT": str(launcher.cwd)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_class_of_the_script_runs_and_its_results_come_back(launcher: Launcher) -> None:
    """A class defined in ``__main__`` and a module next to the script reach the workers; values come back by rank."""
    (launcher.cwd / "neighbour.py").write_text("VALUE = 7\n")
    body = """
class Train:
    @staticmethod
    def run(world_size, node_rank, global_rank, local_rank):
        import neighbour, torch.distributed as dist
        return [world_size, node_rank, global_rank, local_rank, dist.get_world_size(), neighbour.VALUE]

if __name__ == "__main__":
    overrides = [*LOCAL, "resources.workers_per_node=2"]
    run = PyTorchSpawnMultiNode(Train, num_nodes=2, resources="cpu", overrides=overrides).submit()
    code = run.wait()
    print(json.dumps([code, run.results()]))
"""
    code, results = run_script(launcher, body)
    assert code == 0
    assert results == [[4, 0, 0, 0, 4, 7], [4, 0, 1, 1, 4, 7], [4, 1, 2, 0, 4, 7], [4, 1, 3, 1, 4, 7]]


def test_lambdas_local_functions_and_instances_are_carried(launcher: Launcher) -> None:
    """What has no name in a module is carried by value; arguments may be any objects."""
    body = """
class Scale:
    def __init__(self, factor): self.factor = factor
    def run(self, node_rank): return self.factor * node_rank

if __name__ == "__main__":
    offset = 10
    def local(node_rank, values): return [node_rank + offset, sorted(values)]
    results = [
        MultiNode(lambda node_rank: node_rank + offset, 2, overrides=LOCAL).submit().results(),
        MultiNode(local, 2, args=[{3, 1}], overrides=LOCAL).submit().results(),
        MultiNode(Scale, 2, kwargs={"factor": 5}, overrides=LOCAL).submit().results(),
    ]
    print(json.dumps(results))
"""
    assert run_script(launcher, body) == [[10, 11], [[10, [1, 3]], [11, [1, 3]]], [0, 5]]


def test_value_that_cannot_be_pickled_is_dropped_with_a_warning(launcher: Launcher) -> None:
    """Such a return value is None for the caller, the run a success, and the log says why."""
    body = """
def work(node_rank): return threading.Lock() if node_rank else "kept"
if __name__ == "__main__":
    run = MultiNode(work, 2, overrides=LOCAL).submit()
    results = run.results()
    log = (run.run_dir / "attempt-0" / "rank1.log").read_text()
    print(json.dumps([results, log]))
"""
    results, log = run_script(launcher, body)
    assert results == ["kept", None]
    assert "cannot be pickled and is dropped" in log


def test_failed_run_raises_with_its_cause(launcher: Launcher) -> None:
    """``results`` of a failed run raises an error that holds report and traceback; ``wait`` gives the code."""
    body = """
def work(node_rank):
    if node_rank: raise ValueError("from node 1")
    import time; time.sleep(60)
if __name__ == "__main__":
    run = MultiNode(work, 2, overrides=LOCAL).submit()
    try: run.results()
    except RunFailedError as error: told = str(error); rank = error.report.root_cause.global_rank
    print(json.dumps([run.wait(), rank, told]))
"""
    code, rank, told = run_script(launcher, body)
    assert (code, rank) == (1, 1)
    assert "raised ValueError: from node 1" in told
    assert 'raise ValueError("from node 1")' in told or "in work" in told


def test_wrong_work_is_refused_before_anything_starts(launcher: Launcher) -> None:
    """What cannot be called, called with these arguments, or pickled is an error of submit, and no folder stays."""
    body = """
import os
class NoRun: pass
if __name__ == "__main__":
    lock = threading.Lock()
    tries = [
        (NoRun, {}), (lambda lr: lr, {}), (lambda: lock, {}), (lambda: 0, {"kwargs": {"x": 1}}),
        (lambda: 0, {"num_nodes": 0}), (3, {}),
    ]
    told = []
    for work, options in tries:
        try: MultiNode(work, overrides=LOCAL, **options).submit()
        except MultiNodeError as error: told.append(error.what)
    print(json.dumps([told, [n for n in os.listdir(os.environ["HPC_MULTINODE_RUN_ROOT"]) if n != "my_script.py"]]))
"""
    told, left = run_script(launcher, body)
    assert told == [
        "the class NoRun has no method run",
        "lambda() asks for 'lr', which nobody gives",
        "the work lambda cannot be sent to the workers",
        "lambda() does not take 'x' of work.kwargs",
        "nodes is too small",
        "the work cannot be called",
    ]
    assert left == []


def test_cancel_ends_a_run(launcher: Launcher) -> None:
    """``cancel`` ends a run in the background and waits until it is gone; ``wait`` with a limit says that it runs."""
    body = """
def work():
    import time; time.sleep(100)
if __name__ == "__main__":
    run = MultiNode(work, 2, overrides=LOCAL).submit()
    try: run.wait(1.0)
    except TimeoutError as error: told = str(error)
    run.cancel()
    print(json.dumps([told, run.wait(), run.report().state]))
"""
    told, code, state = run_script(launcher, body)
    assert "still runs after 1.0 s" in told
    assert (code, state) == (143, "CANCELLED")


def test_run_is_a_job_of_submitits(launcher: Launcher) -> None:
    """``run.job`` waits, and gives results, logs and a failure's text by submitit's own API, a task for each worker."""
    body = """
def work(node_rank):
    print("node", node_rank)
    return node_rank * 10

def fail(node_rank):
    if node_rank == 1: raise ValueError("no such luck")

if __name__ == "__main__":
    job = MultiNode(work, 2, overrides=LOCAL).submit().job
    told = [job.results(), job.done(), job.state, job.task(1).stdout()]
    bad = MultiNode(fail, 2, overrides=LOCAL).submit().job
    error = bad.task(1).exception()
    print(json.dumps([*told, type(error).__name__, "ValueError: no such luck" in str(error)]))
"""
    assert run_script(launcher, body) == [[0, 10], True, "FINISHED", "node 1\n", "FailedJobError", True]
