"""Carry out a sweep: as job arrays on Slurm, or one run after the other on this machine or in this allocation."""

from __future__ import annotations

import gc
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.errors import EXIT_DETACHED, SubmissionError
from hpc_multinode.launching import describe_plan, launch
from hpc_multinode.life.files import read_report
from hpc_multinode.person import shorten
from hpc_multinode.registry import register
from hpc_multinode.runs import CODE, SWEEP, RunFolder
from hpc_multinode.slurm.commands import find_cluster_name, find_max_array_size
from hpc_multinode.slurm.jobs import split_job_id
from hpc_multinode.snapshot import take_snapshot
from hpc_multinode.submission.array import make_arrays, render_array, render_numbers
from hpc_multinode.submission.slurm import (
    RefusedError,
    Withdrawn,
    hand_in,
    make_refusal,
    require_sbatch,
    warn_of_left_out,
)
from hpc_multinode.sweep import make_record
from hpc_multinode.sweep_record import SubmittedArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.registry import Entry
    from hpc_multinode.submission.array import Array
    from hpc_multinode.sweep import Sweep, SweepPoint
    from hpc_multinode.sweep_selection import Selection

_WRITERS = 16


def launch_sweep(sweep: Sweep, selection: Selection, *, out: TextIO | None = None) -> int:
    """Run or submit the chosen points and return the exit code, here the worst of all runs.

    Args:
        sweep: The sweep.
        selection: Which of its points.
        out: Where the text goes; None: stdout.

    Raises:
        MultiNodeError: A run could not be handed over.
    """
    gc.enable()
    out = out or sys.stdout
    left_out = _describe_left_out(selection)
    if left_out:
        print(left_out, file=out)
    if not selection.todo:
        print("nothing to start", file=out)
        return 0
    if sweep.mode == "slurm":
        return _submit(sweep, selection.todo, out)
    return _run_here(sweep, selection.todo, out)


def render_sweep(sweep: Sweep, selection: Selection) -> str:
    """Return the sbatch texts of a sweep one below the other, without writing anything; empty where none is needed."""
    arrays = _make_arrays(sweep, selection.todo)
    _warn(arrays)
    texts = [render_array(array) for array in arrays]
    if len(texts) == 1:
        return texts[0]
    return "\n".join(
        f"# job {place} of {len(texts)}, points {render_numbers(array.numbers)}:\n{text}"
        for place, (array, text) in enumerate(zip(arrays, texts, strict=True), start=1)
    )


def _describe_left_out(selection: Selection) -> str:
    groups = {"have succeeded": selection.succeeded, "wait or run": selection.queued}
    parts = [
        f"{render_numbers([point.number for point in points])} {words}" for words, points in groups.items() if points
    ]
    return f"left out: points {', '.join(parts)}" if parts else ""


def _make_arrays(sweep: Sweep, points: Sequence[SweepPoint]) -> tuple[Array, ...]:
    return make_arrays(
        {point.number: point.plan for point in points},
        folder=sweep.folder,
        parallel=sweep.parallel,
        max_size=find_max_array_size(),
    )


def _warn(arrays: Sequence[Array]) -> None:
    """Name once what the shell wishes in vain of any of the jobs."""
    if arrays:
        options = {option: value for array in arrays for option, value in array.plan.sbatch.items()}
        warn_of_left_out(replace(arrays[0].plan, sbatch=options))


def _make_folder(sweep: Sweep, points: Sequence[SweepPoint], out: TextIO) -> RunFolder:
    folder = RunFolder.create_empty(sweep.folder, is_private=sweep.is_private)
    try:
        make_record(points).write(folder)
        copied = take_snapshot(sweep.code, folder) if sweep.code is not None else None
    except BaseException:
        shutil.rmtree(folder.path)
        raise
    shown = shorten(str(folder.path))
    count = f"{len(points)} point{'s' * (len(points) != 1)}"
    print(f"sweep: {count}, each in {shown}/NUMBER; {shown}/{SWEEP} tells which is which", file=out)
    if copied is not None:
        print(f"{CODE}:  {copied}", file=out)
    out.flush()
    return folder


# -- on Slurm --------------------------------------------------------------------------------------------------------


def _submit(sweep: Sweep, points: Sequence[SweepPoint], out: TextIO) -> int:
    require_sbatch()
    arrays = _make_arrays(sweep, points)
    _warn(arrays)
    folder = _make_folder(sweep, points, out)
    _write_points(points, folder)
    submitted: list[SubmittedArray] = []
    entries: dict[int, Entry] = {}
    cluster = find_cluster_name()
    scripts = [f"submission-{place}.sh" for place in range(len(arrays))]
    try:
        for script, array in zip(scripts, arrays, strict=True):
            folder.write(script, render_array(array).encode())
            job_id = hand_in(folder.path / script, user=sweep.user)
            submitted.append(SubmittedArray(job_id=job_id, first=array.first, numbers=array.numbers))
            make_record(points, submitted).write(folder)
            entries.update(_register(submitted[-1], {point.number: point.plan for point in points}, cluster))
            print(f"submitted: {_describe(submitted[-1])}: {describe_plan(array.plan)}", file=out, flush=True)
    except RefusedError as error:
        refusal = make_refusal(folder, scripts[len(submitted)], error) if not submitted else None
        raise refusal or _undo(error, folder, points, submitted) from None
    except Withdrawn as withdrawn:
        if submitted or withdrawn.job_id is not None:
            _remove_left(folder, points, submitted)
            print(f"cancel: python -m hpc_multinode cancel {sweep.sweep_id}", file=sys.stderr)  # noqa: T201
        else:
            shutil.rmtree(folder.path)
        raise
    first = submitted[0].task_of(submitted[0].numbers[0])
    print(
        f"list:   python -m hpc_multinode list --name {sweep.sweep_id}\n"
        f"follow: python -m hpc_multinode logs -f {first}\n"
        f"cancel: python -m hpc_multinode cancel {sweep.sweep_id}",
        file=out,
        flush=True,
    )
    return _wait_for_all(sweep, [entries[point.number] for point in points], out) if points[0].plan.waits else 0


def _write_points(points: Sequence[SweepPoint], folder: RunFolder) -> None:
    """Make all run folders, or none and no sweep either."""

    def write(point: SweepPoint) -> None:
        run = RunFolder.create(point.plan, config_text=point.config_text)
        run.make(run.path / "submitit")

    try:
        folder.make(folder.path / "submitit")
        with ThreadPoolExecutor(_WRITERS) as pool:  # every file waits for the disk, or for a file server
            list(pool.map(write, points))
    except BaseException:
        shutil.rmtree(folder.path)
        raise


def _register(array: SubmittedArray, plans: Mapping[int, LaunchPlan], cluster: str | None) -> dict[int, Entry]:
    """Note each point as a run of its own, under the id of its task."""
    _, named = split_job_id(array.job_id)

    def note(number: int) -> Entry:
        task = array.task_of(number)
        return register(plans[number], job_id=task, cluster=named or cluster, is_remote=named is not None)

    with ThreadPoolExecutor(_WRITERS) as pool:
        return dict(zip(array.numbers, pool.map(note, array.numbers), strict=True))


def _wait_for_all(sweep: Sweep, entries: Sequence[Entry], out: TextIO) -> int:
    """Wait for all runs, tell how each has ended, and return the worst exit code; Ctrl-C leaves them alone."""
    from hpc_multinode.life.closing import print_closing  # noqa: PLC0415 - only where somebody waits
    from hpc_multinode.life.waiting import Teller, wait_for_end  # noqa: PLC0415

    teller = Teller()
    try:
        return max(print_closing(wait_for_end(entry, tell=teller), out=out) for entry in entries)
    except KeyboardInterrupt:
        print(  # noqa: T201
            f"\ndetached: the sweep goes on\ncancel: python -m hpc_multinode cancel {sweep.sweep_id}",
            file=sys.stderr,
            flush=True,
        )
        return EXIT_DETACHED


def _describe(array: SubmittedArray) -> str:
    return f"job {array.job_id}, point{'s' * (len(array.numbers) > 1)} {render_numbers(array.numbers)}"


def _undo(
    error: RefusedError, folder: RunFolder, points: Sequence[SweepPoint], submitted: Sequence[SubmittedArray]
) -> SubmissionError:
    """Remove the run folders of the points that no job will come for, and compose the error."""
    left = _remove_left(folder, points, submitted)
    return SubmissionError(
        what="sbatch refuses a part of the sweep, after another part was submitted",
        found=f"{error}\nsubmitted: {'; '.join(map(_describe, submitted))}\n"
        f"not submitted: points {render_numbers(left)}",
        fix="mend that; the same words with rerun=failed then submit the rest\n"
        f"cancel: python -m hpc_multinode cancel {folder.path.name}",
    )


def _remove_left(folder: RunFolder, points: Sequence[SweepPoint], submitted: Sequence[SubmittedArray]) -> list[int]:
    taken = {number for array in submitted for number in array.numbers}
    left = [point.number for point in points if point.number not in taken]
    for number in left:
        shutil.rmtree(folder.path / str(number))
    make_record([point for point in points if point.number in taken], submitted).write(folder)
    return left


# -- here ------------------------------------------------------------------------------------------------------------


def _run_here(sweep: Sweep, points: Sequence[SweepPoint], out: TextIO) -> int:
    _make_folder(sweep, points, out)
    codes: dict[int, int] = {}
    for place, point in enumerate(points, start=1):
        print(f"\npoint {point.number} ({place} of {len(points)}): {_name(point)}", file=out, flush=True)
        codes[point.number] = launch(point.plan, config_text=point.config_text, out=out)
        if _was_stopped(point):
            break
    bad = {number: code for number, code in codes.items() if code}
    left = [point.number for point in points if point.number not in codes]
    print(f"\nsweep: {len(codes) - len(bad)} of {len(points)} points succeeded", file=out)
    for point in points:
        if point.number in bad:
            print(f"  point {point.number} ended with exit code {bad[point.number]}: {_name(point)}", file=out)
    if left:
        print(f"  points not started: {render_numbers(left)}", file=out)
    return max(codes.values())


def _name(point: SweepPoint) -> str:
    return " ".join(point.words) or "the only one"


def _was_stopped(point: SweepPoint) -> bool:
    """Say whether the person has ended the run, which then ends the sweep."""
    report = read_report(Path(point.plan.run_dir))
    return report is not None and report.state == "CANCELLED"
