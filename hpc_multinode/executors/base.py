"""The executor that every strategy derives from, and a person's own may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpc_multinode.context import WorkerContext
    from hpc_multinode.plan import StrategyPlan


class RunWorkExecutor:
    """Runs the work in one worker. Made once in each worker, after its environment is set and before the work loads.

    A subclass, named by ``strategy.executor=pkg.mod:Class``, may override ``setup``, ``run`` and ``teardown``. It runs
    in the worker only: never on the login side and never in the node agent.

    Args:
        options: The chosen strategy with its settings.
    """

    def __init__(self, options: StrategyPlan) -> None:
        self.options = options

    def setup(self, context: WorkerContext) -> None:
        """Make ready what the work finds, such as a device or a process group. Errors end the run."""

    def run(self, work: Callable[[], Any], context: WorkerContext) -> Any:  # noqa: ANN401 - whatever a work returns
        """Call the work and return what it returns.

        Args:
            work: The work with all its arguments bound; calling it runs it once.
            context: This worker's place.
        """
        del context
        return work()

    def teardown(self, context: WorkerContext) -> None:
        """Undo ``setup`` after the work has returned. Not called when it failed: peers may be gone by then."""
