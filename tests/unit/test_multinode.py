"""The Python API, as far as it goes before anything is started."""

from __future__ import annotations

import dataclasses
import functools
import pickle
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hpc_multinode
from hpc_multinode import (
    LiteMultiNode,
    MultiNode,
    MultiNodeError,
    PyTorchLightningMultiNode,
    PyTorchSpawnMultiNode,
    Run,
    RunFailedError,
)
from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError, SubmissionError, WorkError
from hpc_multinode.planning import make_plan
from hpc_multinode.report import Outcome, Report
from hpc_multinode.runs import RunFolder
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Callable

REPORT = Report(
    run="r-1",
    run_dir="/runs/r-1",
    job_id=None,
    state="FAILED",
    exit_code=1,
    failure_class="exception",
    world_size=2,
    num_nodes=1,
    root_cause=Outcome(
        node_rank=0, host="h", global_rank=0, local_rank=0, pid=1, exit_code=1, exception="ValueError", message="boom",
        log="/runs/r-1/attempt-0/rank0.log", last_lines=("Traceback", "ValueError: boom"),
    ),
    attempts=({"attempt": 0},),
)  # fmt: skip


class WithStatic:
    """A work with a static run."""

    @staticmethod
    def run(lr: float) -> float:
        """Return what was given."""
        return lr


class WithInstance:
    """A work that is constructed in the worker."""

    def __init__(self, lr: float) -> None:
        self.lr = lr

    def run(self, batch: int) -> None:
        """Ask for what nobody gives."""


class WithoutRun:
    """No work."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def _refuse(work: Any, kind: type[MultiNodeError] = WorkError, **options: Any) -> MultiNodeError:
    """Submit with a mode that starts nothing here: if the work passes, the mode is refused instead."""
    with pytest.raises(kind) as caught:
        MultiNode(work, overrides=["cluster=debug", *options.pop("overrides", [])], **options).submit()
    assert list(Path.cwd().iterdir()) == []
    return caught.value


def _passes(work: Any, **options: Any) -> bool:
    return _refuse(work, SubmissionError, **options).what == "the Python API cannot start a run in this mode"


# -- before the start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "strategy"),
    [
        (MultiNode, "base"),
        (PyTorchSpawnMultiNode, "pytorch_spawn"),
        (LiteMultiNode, "lite"),
        (PyTorchLightningMultiNode, "lightning"),
    ],
)
def test_each_class_stands_for_a_strategy(cls: type[MultiNode], strategy: str) -> None:
    """The names of the ancestor live on."""
    assert cls.strategy == strategy


@pytest.mark.parametrize(
    ("work", "options"),
    [
        (lambda world_size: world_size, {}),
        (lambda lr: lr, {"kwargs": {"lr": object()}}),
        (lambda lr: lr, {"args": [1]}),
        (WithStatic, {"args": [0.1]}),
        (WithInstance(1.0).run, {"kwargs": {"batch": 1}}),
        (functools.partial(WithStatic.run, 0.1), {}),
        (print, {}),
    ],
)
def test_takes_what_can_be_called(work: Callable[..., Any], options: dict[str, Any]) -> None:
    """Functions, classes, bound methods and partials, with any objects as arguments."""
    assert _passes(work, **options)


def test_debug_is_refused_with_both_ways_out() -> None:
    """Rank 0 in this process cannot be waited for by this process."""
    error = _refuse(lambda: None, SubmissionError)
    assert error.found == "cluster.mode=debug"
    assert error.fix == 'overrides=["cluster=local"], or the command line'


@pytest.mark.parametrize("work", [3, None, "train.py:run", object()])
def test_refuses_what_cannot_be_called(work: object) -> None:
    """A value is no work."""
    error = _refuse(work)
    assert (error.what, error.found) == ("the work cannot be called", f"a {type(work).__name__}")
    assert error.fix == "give a function or a class"


def test_refuses_a_class_without_run() -> None:
    """A class needs the method."""
    error = _refuse(WithoutRun)
    assert (error.what, error.found) == ("the class WithoutRun has no method run", repr(WithoutRun))
    assert error.fix == "add run to WithoutRun"


@pytest.mark.parametrize(
    ("work", "options", "what"),
    [
        (lambda lr: lr, {}, "lambda() asks for 'lr', which nobody gives"),
        (WithStatic, {}, "WithStatic.run() asks for 'lr', which nobody gives"),
        (WithStatic, {"args": [1, 2]}, "WithStatic.run() takes 1 of the 2 values in work.args"),
        (lambda: None, {"kwargs": {"x": 1}}, "lambda() does not take 'x' of work.kwargs"),
    ],
)
def test_refuses_a_call_that_cannot_be_met(work: Callable[..., Any], options: dict[str, Any], what: str) -> None:
    """The signature is checked here, before a process is started."""
    assert _refuse(work, **options).what == what


@pytest.mark.parametrize("kwargs", [{}, {"zzz": 1}, {"lr": 1}])
def test_refuses_a_class_that_cannot_be_made_or_run(kwargs: dict[str, Any]) -> None:
    """``__init__`` and ``run`` are read as they are from source on the command line."""
    _refuse(WithInstance, kwargs=kwargs)


async def _coroutine() -> None:
    """Return at once when called."""


def test_refuses_a_coroutine() -> None:
    """A coroutine function would return without having run."""
    _refuse(_coroutine)


class _NotCallable:
    run = 3


def test_refuses_a_run_that_is_no_method() -> None:
    """An attribute named run is not enough."""
    _refuse(_NotCallable)


def test_bad_settings_are_errors_of_ours() -> None:
    """Overrides are checked as on the command line."""
    assert _refuse(lambda: None, ConfigError, overrides=["nods=2"]).what == "unknown key 'nods'"
    assert _refuse(lambda: None, ConfigError, resources="zzz").what == "unknown resources 'zzz'"
    assert _refuse(lambda: None, ConfigError, num_nodes=0).what == "nodes is too small"


def test_refuses_a_work_that_cannot_be_sent() -> None:
    """What cloudpickle cannot carry is refused before anything is started."""
    lock = threading.Lock()
    with pytest.raises(WorkError) as caught:
        MultiNode(lambda: lock, overrides=["cluster=local"]).submit()
    assert caught.value.what == "the work lambda cannot be sent to the workers"
    assert caught.value.found == "TypeError: cannot pickle '_thread.lock' object"
    assert caught.value.fix == "put it into a module of its own, or leave out what cannot be pickled"
    assert list(Path.cwd().iterdir()) == []


# -- a run that has ended --------------------------------------------------------------------------------------------


class _Ended:
    """A local run that is over, in the place of agents."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.num_stops = 0

    def wait(self, **_: Any) -> Report | None:
        return self.report

    def stop(self) -> None:
        self.num_stops += 1


def _run(root: Path, report: Report | None) -> Run:
    facts = make_facts(run_id="r-1", cwd=str(root))
    plan = make_plan(Config(), facts=facts, target=None)
    RunFolder.create(plan, config_text="")
    local: Any = _Ended(report)
    return Run(plan, local)


def test_results_come_by_rank(tmp_path: Path) -> None:
    """Of the last attempt, in the order of ranks; what was not kept is None."""
    good = dataclasses.replace(
        REPORT, state="COMPLETED", exit_code=0, root_cause=None, world_size=3, attempts=({"attempt": 0}, {"attempt": 1})
    )
    run = _run(tmp_path, good)
    for attempt, rank, value in [(0, 0, "old"), (1, 0, "a"), (1, 2, {"c": 3})]:
        (run.run_dir / f"attempt-{attempt}").mkdir(exist_ok=True)
        (run.run_dir / f"attempt-{attempt}/rank{rank}.result.pkl").write_bytes(pickle.dumps(("success", value)))
    assert run.wait() == 0
    assert run.results() == ["a", None, {"c": 3}]


def test_results_of_a_failed_run_raise(tmp_path: Path) -> None:
    """The error tells the cause, the log and the last lines."""
    run = _run(tmp_path, REPORT)
    assert run.wait() == 1
    with pytest.raises(RunFailedError) as caught:
        run.results()
    assert str(caught.value) == (
        "run r-1 ended as FAILED\n"
        "  found: global_rank 0 (node 0 h, local_rank 0, pid 1) raised ValueError: boom\n"
        "  fix:   see /runs/r-1/attempt-0/rank0.log\n"
        "  Traceback\n"
        "  ValueError: boom"
    )
    assert caught.value.exit_code == 1


def test_a_failed_run_without_a_cause_points_to_its_folder() -> None:
    """A cancelled run has a state and a folder."""
    error = RunFailedError(dataclasses.replace(REPORT, state="CANCELLED", root_cause=None))
    assert (error.what, error.found, error.fix) == ("run r-1 ended as CANCELLED", "CANCELLED", "see /runs/r-1")


def test_errors_survive_a_pickle() -> None:
    """They cross process borders with all their parts."""
    failed = pickle.loads(pickle.dumps(RunFailedError(REPORT)))  # noqa: S301 - our own bytes
    assert failed.report == REPORT
    error = pickle.loads(pickle.dumps(ConfigError(what="a", found="b", fix="c")))  # noqa: S301
    assert (type(error), error.what, error.found, error.fix) == (ConfigError, "a", "b", "c")


def test_a_run_that_goes_on_is_a_timeout(tmp_path: Path) -> None:
    """Waiting for a time is not waiting for the end."""
    with pytest.raises(TimeoutError, match=r"r-1 still runs after 0\.1 s"):
        _run(tmp_path, None).wait(timeout_s=0.1)


def test_a_run_tells_its_state(tmp_path: Path) -> None:
    """In a notebook a run shows its id and its state."""
    run = _run(tmp_path, REPORT)
    assert repr(run) == "Run(r-1, RUNNING)"
    run.wait()
    assert repr(run) == "Run(r-1, FAILED)"


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", hpc_multinode.__all__)
def test_public_names_are_there(name: str) -> None:
    """Each is found and listed."""
    assert getattr(hpc_multinode, name).__name__ == name
    assert name in dir(hpc_multinode)


def test_other_names_are_not_there() -> None:
    """A misspelt name is an AttributeError as of any module."""
    with pytest.raises(AttributeError, match="module 'hpc_multinode' has no attribute 'MultiNod'"):
        hpc_multinode.__getattr__("MultiNod")
