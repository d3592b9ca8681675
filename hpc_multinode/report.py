"""How a run ended: from the workers' outcomes to one root cause, as JSON for scripts and as text for people.

Pure. Node 0 composes and writes the report; the login side reads and shows it.
"""

from __future__ import annotations

import json
import re
import signal
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hpc_multinode.advice import advise
from hpc_multinode.errors import EXIT_FAILED, EXIT_USAGE
from hpc_multinode.layout import REPORT
from hpc_multinode.logs import TRACEBACK_HEADER
from hpc_multinode.records import check_attempt, take_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hpc_multinode.runs import RunFolder

EXIT_REQUEUED = 75
_SIGNAL_BASE = 128
_MAX_MESSAGE = 300
# Failures that arrive this long after the first may still be its cause.
SETTLE_S = 1.0
# What a rank reports because its peer has vanished.
_LOST_PEER = re.compile(
    r"connection (closed|reset|refused)|broken pipe|socket (closed|timeout)|peer (closed|vanished)"
    r"|connection was (forcibly )?closed|remote process exited|gloo.*(read|write) (error|failed)"
    r"|DistNetworkError|DistBackendError|DistStoreError|nccl.*(abort|remote error|system error|watchdog)",
    re.IGNORECASE,
)
_WATCHDOG = re.compile(r"nccl.*(watchdog|timeout|abort)|watchdog.*nccl", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one worker ended, or one agent where ``global_rank`` is None.

    Attributes:
        node_rank: Its node.
        host: The node's name.
        global_rank: Place in the world; None for an agent.
        local_rank: Place on the node; None for an agent.
        pid: Its pid on its host.
        exit_code: Its exit code; None where a signal ended it, or it is not known.
        signal: Name of the signal that ended it.
        exception: Type of the exception that ended it.
        message: The exception's text, or what happened, in words.
        log: Absolute path of its log.
        last_lines: The traceback, else the end of its log.
        is_stopped: It ended because we stopped it.
        failure_class: What it failed of, where its other fields do not tell.
    """

    node_rank: int
    host: str
    global_rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    exception: str | None = None
    message: str | None = None
    log: str | None = None
    last_lines: tuple[str, ...] = ()
    is_stopped: bool = False
    failure_class: str | None = None

    @property
    def is_failure(self) -> bool:
        """Say whether it ended by itself and not well."""
        return not self.is_stopped and (self.exit_code != 0 or self.signal is not None or self.exception is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """Read back what ``to_json`` made; keys of other versions are passed over.

        Raises:
            TypeError: It is no outcome.
        """
        known = take_fields(cls, data)
        return cls(**{**known, "last_lines": tuple(known.get("last_lines", ()))})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The last word on a run; the fields of ``report.json``.

    Attributes:
        run: The run's id.
        run_dir: Absolute run folder.
        job_id: Slurm's job id, or None on this machine.
        state: Slurm's word: ``COMPLETED``, ``FAILED``, ``CANCELLED``, ``TIMEOUT``, ``PREEMPTED``, ``NODE_FAIL``,
            ``OUT_OF_MEMORY``; ``REQUEUED`` until the next attempt is over.
        exit_code: The run's exit code.
        failure_class: What kind of failure, or None.
        world_size: Workers of the run.
        num_nodes: Nodes of the run.
        root_cause: The one failure that the others follow from, or None.
        consequences: Every other worker that failed or was stopped.
        attempts: What each attempt was.
        notes: What else a reader has to know, a sentence each.
    """

    run: str
    run_dir: str
    job_id: str | None
    state: str
    exit_code: int
    failure_class: str | None
    world_size: int
    num_nodes: int
    root_cause: Outcome | None = None
    consequences: tuple[Outcome, ...] = ()
    attempts: tuple[dict[str, Any], ...] = field(default=())
    notes: tuple[str, ...] = ()

    def write(self, folder: RunFolder) -> None:
        """Write it into the run's folder, in the place of an earlier one."""
        folder.write(REPORT, self.to_json().encode())

    @classmethod
    def read(cls, run_dir: Path) -> Report:
        """Read that of a run's folder; errors as of ``from_json``, and OSError where it cannot be read."""
        return cls.from_json((run_dir / REPORT).read_text())

    def to_json(self) -> str:
        """Return the text of ``report.json``."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Read ``report.json``.

        Raises:
            ValueError: It is no JSON, or a time in it is none.
            TypeError: It is no report.
            KeyError: It lacks a field.
        """
        data = take_fields(cls, json.loads(text))
        cause = data.pop("root_cause")
        consequences = data.pop("consequences")
        attempts = data.pop("attempts")
        notes = data.pop("notes", ())
        return cls(
            **data,
            root_cause=None if cause is None else Outcome.from_json(cause),
            consequences=tuple(Outcome.from_json(one) for one in consequences),
            attempts=tuple(check_attempt(one) for one in attempts),
            notes=tuple(str(note) for note in notes),
        )


def choose_root_cause(failures: Sequence[tuple[float, Outcome]]) -> Outcome | None:
    """Choose the failure that the others follow from.

    The first to arrive, among those of the first second after it; a lost connection stands behind any other failure,
    because a rank reports it when its peer is already gone.

    Args:
        failures: Time of arrival in seconds on one clock, and the failure, in order of arrival.
    """
    if not failures:
        return None
    first = failures[0][0]
    settled = [outcome for arrived, outcome in failures if arrived - first <= SETTLE_S]
    own = [outcome for outcome in settled if not is_lost_peer(outcome)]
    return (own or settled)[0]


def is_lost_peer(outcome: Outcome) -> bool:
    """Say whether this is what a rank reports because its peer has vanished, by type or text.

    NCCL's watchdog ends its process by SIGABRT when another rank no longer answers, and gloo where nobody catches it.
    """
    if outcome.signal == "SIGABRT":
        return any(_WATCHDOG.search(line) or _LOST_PEER.search(line) for line in outcome.last_lines)
    return outcome.exception is not None and _LOST_PEER.search(f"{outcome.exception}: {outcome.message}") is not None


def make_exit_code(cause: Outcome) -> int:
    """Return the run's exit code for its root cause: never 0, and never one of the launcher's own meanings."""
    if cause.failure_class == "usage":
        return EXIT_USAGE
    if cause.signal is not None:
        number = getattr(signal, cause.signal, None)
        return _SIGNAL_BASE + int(number) if number is not None else EXIT_FAILED
    if cause.exit_code in (None, 0, EXIT_USAGE, EXIT_REQUEUED):
        return EXIT_FAILED
    return int(cause.exit_code or 0) & 0xFF or EXIT_FAILED


def make_cancel_code(signal_name: str) -> int:
    """Return the exit code of a run that was ended by a signal to its agents."""
    return _SIGNAL_BASE + int(signal.Signals[signal_name])


def classify(cause: Outcome) -> str:
    """Name the kind of a failure, in the words of ``failure_class``."""
    if cause.failure_class is not None:
        return cause.failure_class
    return "signal" if cause.signal is not None else "exception"


def render_report(
    report: Report,
    *,
    duration_s: float | None = None,
    has_shown_logs: bool = False,
    shorten: Callable[[str], str] = str,
) -> str:
    """Compose the closing text of a run.

    Args:
        report: The report.
        duration_s: Wall time of the run in seconds, where it is known.
        has_shown_logs: The reader has just seen the logs, so their ends are not told again.
        shorten: Writes a path for the reader.
    """
    took = f" after {format_duration(duration_s)}" if duration_s is not None else ""
    name = f"job {report.job_id}" if report.job_id else report.run
    workers = _count(report.world_size, "worker")
    notes = [f"  note: {note}" for note in report.notes]
    if report.root_cause is None:
        what = f"{workers} on {_count(report.num_nodes, 'node')}" + _phase_text(report)
        return "\n".join([f"{report.state}  {name}{took}: {what}", *notes])
    cause = report.root_cause
    lines = [f"{report.state}  {name}{took}: {_count_ends(report, cause)}", f"  root cause: {describe(cause)}"]
    # A traceback is kept out of what is shown of a log as it grows; the report is where it is told.
    is_known = has_shown_logs and cause.exception is None and cause.global_rank is not None
    is_known = is_known and TRACEBACK_HEADER not in cause.last_lines
    if cause.last_lines and not is_known:
        lines += ["  last lines:", *(f"    {line}" for line in cause.last_lines)]
    if cause.log:
        lines.append(f"  log:  {shorten(cause.log)}")
    lines += notes
    lines.append(f"  next: {advise(cause, report.failure_class)}")
    return "\n".join(lines)


def describe(outcome: Outcome) -> str:
    """Tell in one line who it was and what happened."""
    if outcome.global_rank is None:
        return f"node {outcome.node_rank} ({outcome.host}): {outcome.message}"
    who = (
        f"global_rank {outcome.global_rank} (node {outcome.node_rank} {outcome.host}, "
        f"local_rank {outcome.local_rank}, pid {outcome.pid})"
    )
    if outcome.exception == "SystemExit" or (outcome.exception is None and outcome.signal is None):
        return f"{who} ended with exit code {outcome.exit_code}"
    if outcome.exception is not None:
        first = (outcome.message or "").strip().splitlines()[:1]
        return f"{who} raised {outcome.exception}" + (f": {first[0][:_MAX_MESSAGE]}" if first else "")
    because = ": the job's memory ran out" if outcome.failure_class == "out_of_memory" else ""
    return f"{who} was killed by {outcome.signal}{because}"


def format_duration(seconds: float) -> str:
    """Write a time span for people, such as ``3 min 12 s``."""
    if round(seconds, 1) < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _count_ends(report: Report, cause: Outcome) -> str:
    failed = sum(one.is_failure and one.global_rank is not None for one in (cause, *report.consequences))
    stopped = sum(one.is_stopped for one in report.consequences)
    by_us = f", {stopped} {'was' if stopped == 1 else 'were'} stopped by us" if stopped else ""
    if not failed and report.attempts and "spawned" not in report.attempts[-1].get("phases", {}):
        return "no worker was started"
    return f"{failed} of {_count(report.world_size, 'worker')} failed{by_us}"


def _phase_text(report: Report) -> str:
    phases = report.attempts[-1].get("phases", {}) if report.attempts else {}
    ready = phases.get("process_group")
    return f", ready after {ready:.1f} s" if ready is not None else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
