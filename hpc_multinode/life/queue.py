"""Slurm's word on a person's runs: one call for all of them, kept for a while, shared by all who watch.

A site's controller serves everybody. So one answer to squeue, kept in a file of the person's, serves all their watchers
on this machine, whoever watches long asks less and less often, and an answer that does not come is replaced by the last
one, with its age.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from hpc_multinode.life.slurm_word import SlurmWord
from hpc_multinode.life.view import is_new
from hpc_multinode.registry import read_state, write_state
from hpc_multinode.slurm.commands import find_cluster_name, list_accounting, list_queue, list_steps
from hpc_multinode.slurm.jobs import ACTIVE, AccountedJob, QueuedJob, find_accounted, parse_accounting, parse_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpc_multinode.registry import Entry

# Watchers ask first after this time, then less and less often. Seconds.
FIRST_S = 2.0
_LAST_S = 30.0
_GROWTH = 1.4
# Hold back after Slurm did not answer: it has trouble enough. Seconds.
_SILENT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    taken: datetime
    jobs: dict[str, QueuedJob]


class Queue:
    """Asks Slurm for all jobs of this person at once.

    Args:
        read_clock: Tells the time.
    """

    def __init__(self, *, read_clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc).astimezone()) -> None:
        self._read_clock = read_clock
        self._answers: dict[str | None, _Answer] = {}
        self._silent_since: datetime | None = None
        self._steps: tuple[datetime, dict[str, str] | None] | None = None
        self._has_accounting = shutil.which("sacct") is not None

    @cached_property
    def _is_there(self) -> bool:
        return shutil.which("squeue") is not None

    @cached_property
    def _cluster(self) -> str | None:
        """The cluster that commands from here reach: asked once on each machine, and kept."""
        name = _name_kept("cluster", None)
        kept = read_state(name)
        found = kept.decode() if kept else find_cluster_name()
        if found and not kept:
            write_state(name, found.encode())
        return found

    def read_word(self, entry: Entry, *, max_age_s: float) -> SlurmWord:
        """Return what Slurm says of a run.

        Args:
            entry: Which run.
            max_age_s: Ask if the last answer is older. Seconds.
        """
        if entry.job_id is None or not self._is_there:
            return SlurmWord()
        if not self._is_here(entry):
            return SlurmWord(is_elsewhere=True)
        answer = self._read(max_age_s, not_before=entry.queued_since, cluster=entry.named_cluster)
        if answer is None:
            return SlurmWord()
        now = self._read_clock()
        age_s = None
        if self._silent_since is not None:
            age_s = round((now - answer.taken).total_seconds(), 1)
        job = answer.jobs.get(entry.job_id)
        is_step = entry.mode in ("step", "allocation")
        if is_step and job is not None and job.state in ACTIVE:
            return SlurmWord(taken=answer.taken, age_s=age_s, job=job, is_gone=self._is_step_gone(entry, max_age_s))
        is_gone = job is None and age_s is None and not is_new(entry, now=now)
        return SlurmWord(taken=answer.taken, age_s=age_s, job=job, is_gone=is_gone)

    def read_accounts(self, entries: Sequence[Entry]) -> dict[str, AccountedJob]:
        """Return the accounting's rows of some runs, by run id, with one call a cluster; none without accounting."""
        found = {}
        wanted = [entry for entry in entries if entry.job_id is not None and self._is_here(entry)]
        for cluster in {entry.named_cluster for entry in wanted}:
            there = [entry for entry in wanted if entry.named_cluster == cluster]
            rows = self.read_accounting([str(entry.job_id) for entry in there], cluster=cluster)
            for entry in there:
                if entry.step_id is not None:
                    row = rows.get(f"{entry.job_id}.{entry.step_id}")
                else:
                    row = find_accounted(rows, str(entry.job_id)) if entry.mode == "slurm" else None
                if row is not None:
                    found[entry.run] = row
        return found

    def read_accounting(self, job_ids: Sequence[str], *, cluster: str | None) -> dict[str, AccountedJob]:
        """Return the accounting's rows of some jobs and their steps, by Slurm's ids; none where there is none."""
        if not self._has_accounting:
            return {}
        text = list_accounting(tuple(sorted({job_id.partition("+")[0] for job_id in job_ids})), cluster)
        self._has_accounting = text is not None
        return parse_accounting(text or "")

    @property
    def lacks_accounting(self) -> bool:
        """Say whether there is a Slurm here whose sacct is not there, or has said that it knows nothing."""
        return self._is_there and not self._has_accounting

    def _is_here(self, entry: Entry) -> bool:
        """Say whether a run's job is on a cluster that our commands reach: homes may be shared between clusters."""
        return entry.is_remote or entry.cluster is None or self._cluster in (None, entry.cluster)

    def _is_step_gone(self, entry: Entry, max_age_s: float) -> bool:
        now = self._read_clock()
        if self._steps is None or (now - self._steps[0]).total_seconds() > max_age_s:
            self._steps = (now, list_steps())
        steps = self._steps[1]
        if steps is None or is_new(entry, now=now):
            return False
        job_id = (entry.job_id or "").replace("+", "_")
        if entry.step_id is not None:
            return f"{job_id}.{entry.step_id}" not in steps
        return entry.run not in steps.values()

    def _read(self, max_age_s: float, *, not_before: datetime, cluster: str | None) -> _Answer | None:
        now = self._read_clock()

        def is_new_enough(answer: _Answer | None) -> bool:
            is_young = answer is not None and 0 <= (now - answer.taken).total_seconds() <= max_age_s
            return is_young and answer is not None and answer.taken > not_before

        answer = self._answers.get(cluster)
        is_silent = self._silent_since is not None and (now - self._silent_since).total_seconds() < _SILENT_S
        if is_new_enough(answer) or (is_silent and answer is not None):
            return answer
        kept = _load(cluster)  # somebody else may have asked
        if kept is not None and (is_new_enough(kept) or answer is None):
            answer = self._answers[cluster] = kept
        if is_new_enough(answer):
            self._silent_since = None
            return answer
        text = None if is_silent else list_queue(cluster)
        if text is None:
            self._silent_since = self._silent_since if is_silent else self._read_clock()
            return answer
        self._silent_since = None
        answer = self._answers[cluster] = _Answer(taken=now, jobs=parse_queue(text))
        kept_text = json.dumps({"uid": os.getuid(), "taken": now.isoformat(), "text": text})
        write_state(_name_kept("queue", cluster), kept_text.encode())
        return answer


def make_interval(interval_s: float) -> float:
    """Return how long to wait before Slurm is asked again, given how long it was before. Seconds."""
    # Not all watchers of a site at the same moment.
    return min(_LAST_S, interval_s * _GROWTH) * random.uniform(0.9, 1.1)  # noqa: S311 - no secret


def _name_kept(what: str, cluster: str | None) -> str:
    # A home may be shared by the machines of several clusters.
    where = [
        socket.gethostname(),
        os.environ.get("SLURM_CONF", ""),
        os.environ.get("SLURM_CLUSTERS", ""),
        cluster or "",
    ]
    return f"{what}-{hashlib.sha256('|'.join(where).encode()).hexdigest()[:8]}.json"


def _load(cluster: str | None) -> _Answer | None:
    kept = read_state(_name_kept("queue", cluster))
    try:
        data = json.loads(kept or b"null")
        if data is None or data["uid"] != os.getuid():
            return None
        return _Answer(taken=datetime.fromisoformat(data["taken"]), jobs=parse_queue(data["text"]))
    except (ValueError, KeyError, TypeError):
        return None
