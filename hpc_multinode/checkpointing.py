"""A Lightning Trainer in a worker saves its state when the run is to stop, and goes on from there in the next attempt.

Lightning finds us by its entry points for callbacks, so the person's code says nothing. No torch here: every Trainer
in the same environment asks, also where there is no run of ours.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_multinode.runs import RunFolder
from hpc_multinode.stopping import StopAgreement, report_progress

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

_FOLDER = "trainer"
# How long a Trainer that writes in the background may take for what the run's end waits for, in seconds.
_WRITTEN_S = 3600.0
_LOOK_AGAIN_S = 0.05
# So many files of the person's own are remembered: the newest may be gone when it is needed.
_MAX_REMEMBERED = 5


@dataclass(slots=True)
class Record:
    """What is saved of one fit, in a file of its own.

    Attributes:
        saved: Paths that a fit can go on from, the newest last.
        is_finished: The newest was saved at the fit's end.
        logged_steps: Steps that loggers had counted when ours was saved, by its path; Lightning counts one too many.
    """

    saved: list[str] = field(default_factory=list)
    is_finished: bool = False
    logged_steps: dict[str, int] = field(default_factory=dict)

    def find_newest(self) -> str | None:
        """Return the newest that is still there."""
        return next((path for path in reversed(self.saved) if os.path.exists(path)), None)  # noqa: PTH110 - a text

    def add(self, path: str) -> None:
        """Remember one as the newest."""
        self.saved = [*(one for one in self.saved if one != path), path][-_MAX_REMEMBERED:]


@dataclass(slots=True, kw_only=True)
class _Own:
    """The worker that this process is.

    Attributes:
        pid: Its pid; a process that the work has forked is none.
        folder: The run's folder.
        attempt: Number of the attempt.
        is_main: It is global rank 0.
        saves_ends: Another attempt may come and pass by fits that have ended.
        num_fits: Fits that have begun in it.
    """

    pid: int
    folder: RunFolder
    attempt: int
    is_main: bool
    saves_ends: bool
    num_fits: int = 0


_own: list[_Own] = []


def enable(plan: LaunchPlan, *, attempt: int, global_rank: int) -> None:
    """Let each Trainer that is built in this worker from now on save and go on by itself.

    Args:
        plan: The run.
        attempt: Number of the attempt.
        global_rank: This worker.
    """
    _own[:] = [
        _Own(
            pid=os.getpid(),
            folder=RunFolder(path=Path(plan.run_dir), is_private=plan.is_private),
            attempt=attempt,
            is_main=global_rank == 0,
            saves_ends=plan.max_restarts > 0 or (plan.mode == "slurm" and plan.requeues is not False),
        )
    ]


def remove_saved(folder: RunFolder) -> None:
    """Remove what no attempt needs any more, when a run has completed."""
    shutil.rmtree(folder.path / _FOLDER, ignore_errors=True)


def make_lightning_callbacks() -> list[Any]:
    """Return the callbacks of every ``lightning.pytorch.Trainer``; none outside a worker.

    Source:
        Lightning's entry-point group ``lightning.pytorch.callbacks_factory``.
    """
    if not _is_here():
        return []
    from lightning.pytorch import Callback  # noqa: PLC0415 - a Trainer of its own asks

    return [_make_callback(Callback)]


def make_pytorch_lightning_callbacks() -> list[Any]:
    """Return the callbacks of every ``pytorch_lightning.Trainer``, the same Trainer in its other package."""
    if not _is_here():
        return []
    from pytorch_lightning import Callback  # noqa: PLC0415 - a Trainer of its own asks

    return [_make_callback(Callback)]


def _is_here() -> bool:
    return bool(_own) and _own[0].pid == os.getpid()


def _make_callback(base: type) -> Any:  # noqa: ANN401 - Lightning's own type, of one package or the other
    return type("StopAndGoOn", (_Hooks, base), {"__doc__": _Hooks.__doc__})(_own[0])


class _Hooks:
    """Saves when the run is to stop, ends all ranks in the same step, and goes on from there in the next attempt.

    The next step's start is where nothing of the last one is left to do: its validation is over, and checkpoints of
    the person's own are written.
    """

    def __init__(self, own: _Own) -> None:
        self._own = own
        self._number = 0
        self._record = Record()
        self._ours = 0
        self._agree = StopAgreement()
        self._agree_now = StopAgreement(every=1)
        self._is_fitting = False
        self._saved_step: int | None = None
        self._newest_s = 0.0
        self._logged_steps: int | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401, ARG002 - Lightning's form
        """Find what an earlier attempt has saved of this fit, and let the Trainer go on from it."""
        if stage != "fit" or trainer.fast_dev_run:
            return
        self._number, self._own.num_fits = self._own.num_fits, self._own.num_fits + 1
        # One rank looks: a shared file system may show the others another state.
        self._record = trainer.strategy.broadcast(self._read() if self._own.attempt else Record())
        path = self._record.find_newest() if self._own.is_main else None
        path = trainer.strategy.broadcast(path)
        if path is not None:
            _load_from(trainer, path, say=self._say)
            self._logged_steps = self._record.logged_steps.get(path)
            is_end = self._record.is_finished and path == self._record.saved[-1]
            # As it was when the fit ended; a fit that has stopped early would train on.
            trainer.should_stop = trainer.should_stop or is_end

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Take the files that are there already as old."""
        self._is_fitting = not trainer.fast_dev_run
        self._newest_s = max((_changed(path) for path in _own_files(trainer)), default=0.0)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ANN401, ARG002
        """Save and end, where all ranks are to."""
        if not self._is_fitting:
            return
        if self._logged_steps is not None:
            trainer.fit_loop.epoch_loop._batches_that_stepped, self._logged_steps = self._logged_steps, None  # noqa: SLF001
        self._remember(trainer)
        # Gradients of half a step are in no checkpoint.
        if batch_idx % trainer.accumulate_grad_batches == 0 and self._agree():
            self._save(trainer, logged_steps=trainer.fit_loop.epoch_loop._batches_that_stepped)  # noqa: SLF001
            raise SystemExit(0)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Save before a validation that may outlast the grace; the fit ends after it, if there is time."""
        if self._is_fitting and not trainer.sanity_checking and self._agree_now():
            self._save(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401, ARG002
        """Save the end of a fit, so that the next attempt passes by it."""
        if self._is_fitting and self._own.saves_ends:
            self._save(trainer, is_finished=True)
        self._is_fitting = False

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401, ARG002
        """Save nothing more of a fit that has failed."""
        self._is_fitting = False

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ANN401, ARG002
        """Note that somebody saves a state that can be gone on from."""
        self._saved_step = trainer.global_step

    def _remember(self, trainer: Any) -> None:  # noqa: ANN401
        """After a checkpoint of the person's own: it counts as progress, and the next attempt may go on from it."""
        if self._saved_step is None:
            return
        report_progress(self._saved_step)
        self._saved_step = None
        if not self._own.is_main:
            return
        newest = max(_own_files(trainer), key=_changed, default=None)
        if newest is not None and _changed(newest) > self._newest_s:
            self._newest_s = _changed(newest)
            self._record.add(os.path.abspath(newest))  # noqa: PTH100 - a text
            self._write()

    def _save(self, trainer: Any, *, is_finished: bool = False, logged_steps: int | None = None) -> None:  # noqa: ANN401
        """Save the whole state, on all ranks."""
        folder = self._own.folder.path / _FOLDER
        name = f"fit{self._number}-attempt{self._own.attempt}-{self._ours}"
        self._ours += 1
        draft, path = folder / f"{name}.draft.ckpt", folder / f"{name}.ckpt"
        self._make_folder()
        trainer.strategy.barrier("hpc_multinode")
        trainer.save_checkpoint(draft, weights_only=False)
        if self._own.is_main:
            _wait_for(draft)
            draft.rename(path)
            old = [one for one in self._record.saved if Path(one).parent == folder]
            self._record.add(str(path))
            self._record.is_finished = is_finished
            self._record.logged_steps = {} if logged_steps is None else {str(path): logged_steps}
            self._record.saved = [one for one in self._record.saved if one not in old]
            self._write()
            for one in old:
                _remove(Path(one))
            if not is_finished:
                self._say(f"step {trainer.global_step} of fit {self._number} is saved for the next attempt")
        # No rank ends before the file has its name.
        trainer.strategy.barrier("hpc_multinode")
        report_progress(trainer.global_step)
        self._saved_step = None

    @property
    def _file(self) -> str:
        return f"{_FOLDER}/fit{self._number}.json"

    def _read(self) -> Record:
        try:
            data = json.loads((self._own.folder.path / self._file).read_text())
        except FileNotFoundError:
            return Record()
        return Record(**data)

    def _write(self) -> None:
        record = self._record
        self._make_folder()
        data = {"saved": record.saved, "is_finished": record.is_finished, "logged_steps": record.logged_steps}
        self._own.folder.write(self._file, json.dumps(data).encode())

    def _make_folder(self) -> None:
        if self._own.is_main:
            with contextlib.suppress(FileExistsError):
                self._own.folder.make(self._own.folder.path / _FOLDER)

    def _say(self, words: str) -> None:
        if self._own.is_main:
            print(f"hpc_multinode: {words}", flush=True)  # noqa: T201 - the log is our stdout


def _load_from(trainer: Any, path: str, *, say: Any) -> None:  # noqa: ANN401
    """Let a Trainer load a checkpoint in place of the one it was given, when it comes to that.

    The one place that uses a private name of Lightning for loading: by public means a path is given to ``fit`` alone,
    which is the person's line. ``tests/local/test_checkpointing.py`` fails when the name moves.
    """
    connector = trainer._checkpoint_connector  # noqa: SLF001
    load = connector._restore_modules_and_callbacks  # noqa: SLF001
    # The file is the run's own, and may hold any object of the person's.
    more = {"weights_only": False} if "weights_only" in inspect.signature(load).parameters else {}

    def load_ours(given: Any = None, *_: Any, **__: Any) -> None:  # noqa: ANN401
        del connector._restore_modules_and_callbacks  # noqa: SLF001 - for this fit alone
        say(f"goes on from {path}" + (f", which came after ckpt_path={given}" if given else ""))
        load(path, **more)

    connector._restore_modules_and_callbacks = load_ours  # noqa: SLF001


def _own_files(trainer: Any) -> list[str]:  # noqa: ANN401
    """Return the checkpoints on disk that the person's Trainer keeps and can go on from."""
    found: set[str] = set()
    for callback in trainer.checkpoint_callbacks:
        if getattr(callback, "save_weights_only", True):
            continue
        names = ("best_model_path", "last_model_path")
        found |= {str(getattr(callback, name, "")) for name in names} | {*getattr(callback, "best_k_models", {})}
    return [path for path in found if path and _changed(path)]


def _changed(path: str) -> float:
    """Return when a file was written, in seconds since 1970; 0 where there is none, or it is on no disk."""
    try:
        return os.stat(path).st_mtime  # noqa: PTH116 - a text
    except OSError:
        return 0.0


def _wait_for(path: Path) -> None:
    until = time.monotonic() + _WRITTEN_S
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{path} was not written in {_WRITTEN_S:.0f} s")
        time.sleep(_LOOK_AGAIN_S)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
