"""Which run is meant: a job id, a run folder, a name, the beginning of a run's id, or the newest."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError
from hpc_multinode.registry import Entry, read_entries, read_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

_JOB_ID = re.compile(r"\d+(_\d+|\+\d+)?(\.\d+)?")
_SHOWN = 5


def find_run(word: str | None) -> Entry:
    """Return the run that is meant.

    Args:
        word: A job id, a run folder, a name (its newest run) or a beginning that only one run has; None: the newest.

    Raises:
        ConfigError: There is none, or there are several.
    """
    found = find_runs(word)
    if len(found) > 1 and word != found[0].name:
        shown = ", ".join(entry.run for entry in found[:_SHOWN])
        raise ConfigError(
            what=f"several runs are meant by {word!r}",
            found=f"{len(found)} runs: {shown}{', ...' if len(found) > _SHOWN else ''}",
            fix="write more of the run's id, or its job id",
        )
    return found[0]


def find_runs(word: str | None) -> list[Entry]:
    """Return all runs that may be meant, newest first, at least one.

    Args:
        word: As of ``find_run``; the job id of an array means all its runs.

    Raises:
        ConfigError: There is none.
    """
    if word is not None and not word.strip():  # as of an unset variable: it must not mean every run
        raise ConfigError(what="RUN is empty", found=repr(word), fix="leave it out for the newest run, or name one")
    if word is not None and (Path(word).is_dir() and ("/" in word or (Path(word) / "plan.json").exists())):
        return [_open_folder(Path(word))]
    entries = read_entries()
    if not entries:
        raise ConfigError(
            what="there is no run yet",
            found="the registry is empty",
            fix="python -m hpc_multinode starts one; a run folder can be named by its path",
        )
    if word is None:
        return entries[:1]
    matching = (
        [entry for entry in entries if entry.run == word],
        [entry for entry in entries if word in _job_ids(entry)],
        [entry for entry in entries if any(job_id.partition("_")[0] == word for job_id in _job_ids(entry))],
        [entry for entry in entries if entry.name == word],
        [entry for entry in entries if entry.run.startswith(word)],
    )
    found = next((some for some in matching if some), [])
    if not found:
        raise _make_not_found(word, entries)
    return found


def _job_ids(entry: Entry) -> tuple[str, ...]:
    return entry.job_ids if entry.step_id is None else (*entry.job_ids, f"{entry.job_id}.{entry.step_id}")


def _open_folder(path: Path) -> Entry:
    entry = read_entry(path.resolve())
    if entry is None:
        raise ConfigError(
            what="this folder is not that of a run", found=f"{path} holds no run.json", fix="name a folder below runs/"
        )
    return entry


def _make_not_found(word: str, entries: Sequence[Entry]) -> ConfigError:
    names = [name for entry in entries for name in (entry.run, entry.name)]
    close = difflib.get_close_matches(word, names, n=1)
    fix = f"did you mean {close[0]}?" if close else "python -m hpc_multinode list shows all"
    kind = "job id" if _JOB_ID.fullmatch(word) else "id, name or folder"
    return ConfigError(what=f"no run is known by {word!r}", found=f"no {kind} of your {len(entries)} runs", fix=fix)
