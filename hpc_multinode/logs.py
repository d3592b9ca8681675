"""Follow the ranks' logs of a run as they grow: whole lines, each with the rank that wrote it.

Reads files that workers write by themselves, so it can never slow a worker down.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpc_multinode.layout import find_attempts, find_rank_logs, name_attempt

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping
    from pathlib import Path

    Line = tuple[int, str]

# After this line a log holds nothing but the traceback, which the agent has been told too: whoever shows the log as it
# grows stops here, so that a failure is told once.
TRACEBACK_HEADER = "hpc_multinode: this worker failed, its traceback:"
_READ_BYTES = 1 << 20
# A line that grows beyond this is passed on in pieces.
_MAX_LINE = 1 << 20
# What the agents of nodes 0 and 1, or srun, print: one of these two says for whom all wait.
_AGENT_LOGS = ("submitit/*_0_log.out", "submitit/*_1_log.out", "submitit/controller.log")
_WAITING = re.compile(r"(?:^|: )(waiting for node.*)")


@dataclass(slots=True)
class _Log:
    rank: int
    path: Path
    offset: int = 0
    rest: bytes = b""
    is_muted: bool = False


class LogFollower:
    """Reads what has come to the logs of one run since the last look.

    A log is open only while it is read: a thousand ranks are more than a process may hold open.

    Args:
        run_dir: The run's folder; attempts and logs may come later.
        ranks: Global ranks to follow; None: all.
        first_attempt: Logs of attempts before this one are passed over.
        last_attempt: Those of attempts after this one as well; None: all are followed.
        offsets: Where to begin in logs that have been read up to there. Bytes.
        shows_traceback: Pass on the traceback at the end of a failed worker's log as well.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        ranks: Container[int] | None = None,
        first_attempt: int = 0,
        last_attempt: int | None = None,
        offsets: Mapping[Path, int] | None = None,
        shows_traceback: bool = False,
    ) -> None:
        self._run_dir, self._ranks = run_dir, ranks
        self._first_attempt, self._last_attempt = first_attempt, last_attempt
        self._offsets, self._shows_traceback = offsets or {}, shows_traceback
        self._logs: dict[Path, _Log] = {}

    def read_new(self) -> Iterator[tuple[int, str]]:
        """Yield global rank and line, without its end, of every whole line that is new."""
        self._find_logs()
        for log in self._logs.values():
            yield from self._read(log)

    def read_rest(self) -> Iterator[tuple[int, str]]:
        """Yield what is new, and then last lines that never got an end."""
        yield from self.read_new()
        for log in self._logs.values():
            if log.rest and not log.is_muted:
                yield log.rank, log.rest.decode(errors="replace")
            log.rest = b""

    def _read(self, log: _Log) -> Iterator[tuple[int, str]]:
        try:
            if log.path.stat().st_size <= log.offset:
                return
            file = log.path.open("rb")
        except OSError:  # the work has removed it
            return
        with file:
            file.seek(log.offset)
            while data := file.read(_READ_BYTES):
                log.offset += len(data)
                yield from self._split(log, data)

    def _split(self, log: _Log, data: bytes) -> Iterator[tuple[int, str]]:
        *lines, log.rest = (log.rest + data).split(b"\n")
        if len(log.rest) > _MAX_LINE:
            lines, log.rest = [*lines, log.rest], b""
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            # What follows is the traceback, which the report tells, once for all ranks.
            log.is_muted = log.is_muted or (text == TRACEBACK_HEADER and not self._shows_traceback)
            if not log.is_muted:
                yield log.rank, text

    def _find_logs(self) -> None:
        for attempt in find_attempts(self._run_dir):
            if attempt < self._first_attempt or (self._last_attempt is not None and attempt > self._last_attempt):
                continue
            for rank, path in find_rank_logs(name_attempt(self._run_dir, attempt)).items():
                if path not in self._logs and (self._ranks is None or rank in self._ranks):
                    self._logs[path] = _Log(rank=rank, path=path, offset=self._offsets.get(path, 0))


class RunFollower:
    """Reads what has come to the logs of a run, attempt after attempt.

    Args:
        run_dir: The run's folder; attempts and logs may come later.
        ranks: Global ranks to follow; None: all.
        first_attempt: Begin with this one.
        offsets: Where to begin in logs that have been read up to there. Bytes.
        shows_traceback: As of ``LogFollower``.
    """

    def __init__(
        self,
        run_dir: Path,
        *,
        ranks: Container[int] | None = None,
        first_attempt: int = 0,
        offsets: Mapping[Path, int] | None = None,
        shows_traceback: bool = False,
    ) -> None:
        self._run_dir, self._ranks, self._offsets = run_dir, ranks, offsets
        self._shows_traceback, self._attempt = shows_traceback, first_attempt
        self._follower = self._follow()

    def read_new(self) -> Iterator[tuple[int, list[Line]]]:
        """Yield an attempt and its new lines, which came together; an attempt after which another began to its end."""
        while name_attempt(self._run_dir, self._attempt + 1).exists():
            yield self._attempt, list(self._follower.read_rest())
            self._attempt += 1
            self._follower = self._follow()
        yield self._attempt, list(self._follower.read_new())

    def read_rest(self) -> Iterator[tuple[int, list[Line]]]:
        """Yield what is new, and then last lines that never got an end."""
        yield from self.read_new()
        yield self._attempt, list(self._follower.read_rest())

    def _follow(self) -> LogFollower:
        return LogFollower(
            self._run_dir,
            ranks=self._ranks,
            first_attempt=self._attempt,
            last_attempt=self._attempt,
            offsets=self._offsets,
            shows_traceback=self._shows_traceback,
        )


class WaitingFollower:
    """Reads for whom the agents of a run wait, as they say it, as long as the newest attempt has no worker.

    Args:
        run_dir: The run's folder; its files may come later.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._offsets: dict[Path, int] = {}

    def read_new(self) -> str | None:
        """Return the newest line that was not there at the last look; None where there is none."""
        found = [line for pattern in _AGENT_LOGS for path in self._run_dir.glob(pattern) for line in self._read(path)]
        return found[-1] if found and not self._has_workers() else None

    def _read(self, path: Path) -> list[str]:
        try:
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read(_READ_BYTES)
        except OSError:  # removed
            return []
        self._offsets[path] = self._offsets.get(path, 0) + len(data)
        matches = (_WAITING.search(line) for line in data.decode(errors="replace").splitlines())
        return [match[1] for match in matches if match is not None]

    def _has_workers(self) -> bool:
        attempts = find_attempts(self._run_dir)
        return bool(attempts) and bool(find_rank_logs(name_attempt(self._run_dir, attempts[-1])))
