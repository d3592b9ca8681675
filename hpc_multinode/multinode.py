"""The Python API: run a function or a class of the calling program on many nodes.

Example::

    run = PyTorchSpawnMultiNode(Train, num_nodes=2, resources="cpu").submit()
    run.wait()
    print(run.results())
"""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle

from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES, bind_work
from hpc_multinode.compose import compose_config, find_config_dirs, render_config
from hpc_multinode.errors import ConfigError, MultiNodeError, SubmissionError, WorkError
from hpc_multinode.launching import start_in_background
from hpc_multinode.preparation import prepare_plan
from hpc_multinode.report import Outcome, Report, describe
from hpc_multinode.runs import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import submitit

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.submission.foreground import WatchedRun


class RunFailedError(MultiNodeError):
    """A run that was waited for did not end well.

    Attributes:
        report: What is known of it.
    """

    exit_code = 1

    def __init__(self, report: Report) -> None:
        cause = describe(report.root_cause) if report.root_cause else report.state
        super().__init__(
            what=f"run {report.run} ended as {report.state}",
            found=cause,
            fix=f"see {(report.root_cause and report.root_cause.log) or report.run_dir}",
        )
        self.report = report

    def __str__(self) -> str:
        lines = self.report.root_cause.last_lines if self.report.root_cause else ()
        return "\n  ".join([super().__str__(), *lines])

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the report alone."""
        return type(self), (self.report,)


class Run:
    """A run that was submitted.

    Args:
        plan: The run.
        local: Its agents, children of this process.
    """

    def __init__(self, plan: LaunchPlan, local: WatchedRun) -> None:
        self._plan, self._local = plan, local
        self._report: Report | None = None

    def __repr__(self) -> str:
        state = self._report.state if self._report else "RUNNING"
        return f"Run({self._plan.run_id}, {state})"

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return Path(self._plan.run_dir)

    @property
    def job(self) -> submitit.Job[Any]:
        """The run as submitit's own job, with one task for each worker: ``job.results()``, ``job.task(3).stdout()``.

        Raises:
            SubmissionError: It is a step on an allocation, which submitit does not know.
        """
        from hpc_multinode.submission.submitit_job import make_job  # noqa: PLC0415 - only for those who ask

        controller = self._local.controller
        if controller.job_id is not None:
            return make_job(self._plan, job_id=controller.job_id, process=None)
        if self._plan.mode != "local" or controller.process is None:
            raise SubmissionError(
                what="this run has no job of submitit's: that is for submitted jobs and runs on this machine",
                found=f"cluster.mode={self._plan.mode}",
                fix="run.wait() and run.results() tell the same",
            )
        return make_job(self._plan, job_id=str(controller.process.pid), process=controller.process)

    def wait(self, timeout_s: float | None = None, *, stream: bool = False) -> int:
        """Wait for the end of the run.

        Args:
            timeout_s: How long to wait, in seconds; None: until the end.
            stream: Print the ranks' lines as they come, each with its rank.

        Returns:
            The run's exit code.

        Raises:
            TimeoutError: The run goes on.
            KeyboardInterrupt: Ctrl-C, after the run has been ended.
        """
        if self._report is None:
            try:
                self._report = self._local.wait(out=sys.stdout if stream else None, timeout_s=timeout_s)
            except KeyboardInterrupt:
                self.cancel()
                raise
        if self._report is None:
            msg = f"{self._plan.run_id} still runs after {timeout_s} s"
            raise TimeoutError(msg)
        return self._report.exit_code

    def cancel(self) -> None:
        """End the run and wait until nothing of it is left."""
        self._local.stop()
        self._report = self._local.wait()

    def report(self) -> Report:
        """Return the report, after waiting for the end."""
        self.wait()
        assert self._report is not None  # noqa: S101 - wait has set it or raised
        return self._report

    def results(self) -> list[Any]:
        """Return what each worker's work returned, by global rank, after waiting for the end.

        A value that could not be pickled is None; the worker's log says so.

        Raises:
            RunFailedError: The run did not end well.
        """
        report = self.report()
        if report.exit_code != 0:
            raise RunFailedError(report)
        folder = RunFolder(path=self.run_dir, is_private=self._plan.is_private)
        attempt = int(report.attempts[-1]["attempt"])
        return [_read_result(folder.result(attempt, rank)) for rank in range(report.world_size)]


class MultiNode:
    """A work on ``num_nodes`` nodes, one worker on each with all its devices (strategy ``base``).

    Args:
        work: A function, or a class with a static, class or instance method ``run``. Classes and functions of the
            calling script, lambdas and local functions travel by value; modules are imported by name.
        num_nodes: Nodes. Count, at least 1.
        resources: A file of ``conf/resources``, such as ``gpu-fast-multi``.
        args: Positional arguments of the work, any objects that can be pickled.
        kwargs: Keyword arguments of the work.
        overrides: More words as on the command line, such as ``resources.workers_per_node=2``.
        config_dirs: Folders as of ``--config-dir``.
    """

    strategy: ClassVar[str] = "base"

    def __init__(
        self,
        work: Callable[..., Any],
        num_nodes: int = 1,
        resources: str = "cpu",
        *,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        overrides: Sequence[str] = (),
        config_dirs: Sequence[str] = (),
    ) -> None:
        _check_words(overrides, config_dirs)
        self._work = work
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._words = [
            f"strategy={self.strategy}",
            f"resources={resources}",
            f"nodes={num_nodes}",
            *([] if any(word.startswith("name=") for word in overrides) else [f"name={_name_of(work)}"]),
            *overrides,
        ]
        self._config_dirs = tuple(config_dirs)

    def submit(self) -> Run:
        """Start the run and return at once.

        Raises:
            MultiNodeError: Something is wrong with the work or the configuration; nothing was started.
        """
        config_dirs = find_config_dirs(self._config_dirs, os.environ)
        config = compose_config(self._words, config_dirs=config_dirs)
        placeholders = dict.fromkeys((*RANK_NAMES, *OFFERED_NAMES))
        bind_work(self._work, label=_name_of(self._work), given=placeholders, args=self._args, kwargs=self._kwargs)
        plan = prepare_plan(
            config, cwd=Path.cwd(), config_dirs=config_dirs, python_path=_own_paths(), has_own_object=True
        )
        if plan.mode not in ("local", "step", "slurm"):
            raise SubmissionError(
                what="the Python API cannot start a run in this mode",
                found=f"cluster.mode={plan.mode}",
                fix='overrides=["cluster=local"], or the command line',
            )
        return Run(plan, start_in_background(plan, config_text=render_config(config), work_pickle=self._pickle()))

    def _pickle(self) -> bytes:
        try:
            return bytes(cloudpickle.dumps((self._work, self._args, self._kwargs)))
        except Exception as error:  # noqa: BLE001 - pickling runs code of the person's own
            raise WorkError(
                what=f"the work {_name_of(self._work)} cannot be sent to the workers",
                found=f"{type(error).__name__}: {error}",
                fix="put it into a module of its own, or leave out what cannot be pickled",
            ) from None


class PyTorchSpawnMultiNode(MultiNode):
    """One worker a GPU, torch's process group ready before ``run(world_size, node_rank, global_rank, local_rank)``."""

    strategy = "pytorch_spawn"


class LiteMultiNode(MultiNode):
    """One worker a GPU for a work that builds a Lightning Fabric, or a ``LightningLite``."""

    strategy = "lite"


class PyTorchLightningMultiNode(MultiNode):
    """One worker a GPU for a work that builds a Lightning Trainer."""

    strategy = "lightning"


def _check_words(overrides: Sequence[str], config_dirs: Sequence[str]) -> None:
    for name, words in (("overrides", overrides), ("config_dirs", config_dirs)):
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise ConfigError(what=f"{name} is a list of texts", found=f"{name}={words!r}", fix=f'{name}=["..."]')
    taken = [word for word in overrides if word.lstrip("+~").startswith(("work.", "strategy="))]
    if taken:
        raise ConfigError(
            what="the class itself says what runs, and by which strategy",
            found=f"overrides={taken}",
            fix="give the work, args and kwargs to the class, and choose the class for the strategy",
        )


def _name_of(work: object) -> str:
    if not callable(work) and not hasattr(work, "run"):
        return "the work"
    name = getattr(work, "__qualname__", None) or type(work).__qualname__
    return str(name).rpartition(".")[2].strip("<>") or "work"


def _own_paths() -> tuple[str, ...]:
    """List the folders on this process's path that a plain interpreter would not have, such as the script's own."""
    standard = [sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()]
    paths = [str(Path(entry or ".").resolve()) for entry in sys.path]
    return tuple(
        dict.fromkeys(p for p in paths if Path(p).is_dir() and not any(Path(p).is_relative_to(s) for s in standard))
    )


def _read_result(path: Path) -> object:
    if not path.exists():
        return None
    try:
        # The person's own workers wrote it into their own run folder.
        return pickle.loads(path.read_bytes())[1]  # noqa: S301
    except Exception as error:  # noqa: BLE001 - loading runs code of the person's own
        warnings.warn(f"{path.name} cannot be loaded and is dropped: {error}", stacklevel=4)
        return None


__all__ = [
    "LiteMultiNode",
    "MultiNode",
    "Outcome",
    "PyTorchLightningMultiNode",
    "PyTorchSpawnMultiNode",
    "Run",
    "RunFailedError",
]
