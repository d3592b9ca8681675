"""A run watched to its end: its ranks' lines as they come, Ctrl-C, and the closing text."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.errors import EXIT_FAILED
from hpc_multinode.layout import REPORT
from hpc_multinode.life.following import tell_waiting
from hpc_multinode.life.looking import look_at
from hpc_multinode.life.printing import LogPrinter
from hpc_multinode.life.settling import read_output
from hpc_multinode.life.table import wants_colour
from hpc_multinode.logs import RunFollower, WaitingFollower
from hpc_multinode.person import shorten
from hpc_multinode.registry import read_entry
from hpc_multinode.report import Outcome, Report, make_cancel_code, render_report

if TYPE_CHECKING:
    from types import FrameType

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.runs import RunFolder
    from hpc_multinode.submission.controller import Controller

_POLL_S = 0.03
# Lines that came within this time are shown together: the same line of many ranks once.
_SHOW_S = 0.25
_SHARED_S = 10.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WatchedRun:
    """A run that this process has started and waits for.

    Args:
        plan: The run.
        folder: Its folder.
        controller: submitit's controller, srun, or a job.
    """

    def __init__(self, plan: LaunchPlan, folder: RunFolder, controller: Controller) -> None:
        self._plan, self._folder, self._controller = plan, folder, controller
        self._is_stopped = False
        self._follower = RunFollower(folder.path)

    @property
    def controller(self) -> Controller:
        """What stands between us and the agents."""
        return self._controller

    @property
    def is_running(self) -> bool:
        """Say whether the agents are still there."""
        return self._controller.is_running()

    def stop(self) -> None:
        """Ask the agents to end the run; asked twice, they kill their workers at once."""
        self._is_stopped = True
        if self.is_running:
            self._controller.ask_to_stop()

    def wait(self, *, out: TextIO | None = None, timeout_s: float | None = None) -> Report | None:
        """Wait for the end of the run.

        Args:
            out: Where what the workers print is shown; None: nowhere. For whom the agents wait goes to stderr.
            timeout_s: How long to wait, in seconds; None: until the end.

        Returns:
            The report, or None where the time was up first.
        """
        printer = None if out is None else self._make_printer(out)
        waiting = WaitingFollower(self._folder.path)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        show_at = 0.0
        while self.is_running:
            if printer is not None and time.monotonic() >= show_at:
                show_at = time.monotonic() + _SHOW_S
                tell_waiting(waiting)
                for attempt, lines in self._follower.read_new():
                    printer.show(lines, attempt=attempt)
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(_POLL_S)
        if printer is not None:
            for attempt, lines in self._follower.read_rest():
                printer.show(lines, attempt=attempt)
        return self._read_report()

    def _make_printer(self, out: TextIO) -> LogPrinter:
        return LogPrinter(out, local_world_size=self._plan.local_world_size, is_coloured=wants_colour(out))

    def _read_report(self) -> Report:
        path = self._folder.path / REPORT
        until = time.monotonic() + (_SHARED_S if self._plan.mode == "slurm" and not self._is_stopped else 0.0)
        while not path.exists() and time.monotonic() < until:  # written on another machine, it may show late
            time.sleep(_POLL_S)
        if path.exists():
            return self._hear_slurm(Report.read(self._folder.path))
        report = self._make_report()
        with contextlib.suppress(OSError):  # a full disk, or a folder that the work removed: it is told all the same
            report.write(self._folder)
        return report

    def _hear_slurm(self, report: Report) -> Report:
        """Let Slurm's own word on a job stand where it knows better."""
        entry = read_entry(self._folder.path) if self._plan.mode == "slurm" else None
        return report if entry is None else look_at(entry).report or report

    def _make_report(self) -> Report:
        """Compose the report where the agent of node 0 left none."""
        if self._is_stopped:  # before the agents were there to write it
            return self._make_bare_report("CANCELLED", make_cancel_code("SIGTERM"), "cancelled", None)
        said = read_output(self._folder.path)
        cause = Outcome(
            node_rank=0,
            host=os.uname().nodename,
            message="its agent ended without a report",
            last_lines=said,
            log=str(self._folder.path / "submitit"),
            failure_class="lost_node",
        )
        return self._make_bare_report("FAILED", EXIT_FAILED, "lost_node", cause)

    def _make_bare_report(self, state: str, exit_code: int, failure_class: str, cause: Outcome | None) -> Report:
        return Report(
            run=self._plan.run_id,
            run_dir=self._plan.run_dir,
            job_id=None,
            state=state,
            exit_code=exit_code,
            failure_class=failure_class,
            world_size=self._plan.world_size,
            num_nodes=self._plan.num_nodes,
            root_cause=cause,
        )


def watch(run: WatchedRun, *, out: TextIO) -> int:
    """Show a run until its end and return its exit code; Ctrl-C, SIGTERM and a closed terminal end the run.

    Args:
        run: The run.
        out: Where the ranks' lines and the closing text go.
    """
    num_asked = 0

    def ask_to_stop(number: int, _: FrameType | None) -> None:
        nonlocal num_asked
        num_asked += 1
        if num_asked == 1:
            print(  # noqa: T201
                f"\n{signal.Signals(number).name}: stopping the run; once more to kill it", file=sys.stderr
            )
        run.stop()

    began = time.monotonic()
    before = {number: signal.signal(number, ask_to_stop) for number in _STOPPING}
    try:
        report = run.wait(out=out)
        if report is None:  # no time limit was given
            return EXIT_FAILED
        closing = render_report(report, duration_s=time.monotonic() - began, has_shown_logs=True, shorten=shorten)
        print(closing, file=out, flush=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return report.exit_code
