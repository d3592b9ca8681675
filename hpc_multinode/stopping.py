"""How a work learns that it is to stop, and tells how far it has come.

Worker and forkserver share one page of memory, so asking costs as much as reading a byte, in every step.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE_BYTES = mmap.PAGESIZE
# At least so often, in seconds, all ranks ask each other, where nobody says every how many steps.
_AGREE_EVERY_S = 1.0
_MAX_STEPS_BETWEEN = 1_000
_STOP, _LISTENS, _NOTICED = 0, 1, 2
_STEP = struct.Struct("=q")
_STEP_AT = 8
_NO_STEP = -1


class Page:
    """What one worker and its forkserver tell each other.

    Args:
        descriptor: A file of ``PAGE_BYTES`` in memory; stays the caller's.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, PAGE_BYTES)

    @staticmethod
    def make() -> tuple[int, Page]:
        """Return a new file in memory and its page, on which nothing is set."""
        descriptor = os.memfd_create("hpc_multinode")
        os.truncate(descriptor, PAGE_BYTES)
        page = Page(descriptor)
        page.report(_NO_STEP)
        return descriptor, page

    @property
    def is_stop_requested(self) -> bool:
        """Say whether the work is to stop."""
        return self._memory[_STOP] == 1

    @property
    def listens(self) -> bool:
        """Say whether the work has ever asked."""
        return self._memory[_LISTENS] == 1

    @property
    def has_noticed(self) -> bool:
        """Say whether the work has asked and been told to stop."""
        return self._memory[_NOTICED] == 1

    @property
    def step(self) -> int | None:
        """The furthest step that the work has saved; None where it has never said."""
        step: int = _STEP.unpack_from(self._memory, _STEP_AT)[0]
        return None if step == _NO_STEP else step

    def request_stop(self) -> None:
        """Tell the work to stop."""
        self._memory[_STOP] = 1

    def note_handler(self) -> None:
        """Note that the work hears of a stop by a handler of its own."""
        self._memory[_LISTENS] = self._memory[_NOTICED] = 1

    def ask(self) -> bool:
        """Ask, as the work, whether to stop."""
        self._memory[_LISTENS] = 1
        if self._memory[_STOP] == 0:
            return False
        self._memory[_NOTICED] = 1
        return True

    def report(self, step: int) -> None:
        """Say, as the work, how far it has come."""
        _STEP.pack_into(self._memory, _STEP_AT, step)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


class _Own:
    """This process's page, where it is a worker, and who is told that its work has asked for the first time."""

    page: Page | None = None
    tell_first: Callable[[], None] | None = None


def take_page(descriptor: int) -> None:
    """Take the page that the forkserver has made for this worker."""
    _Own.page = Page(descriptor)


def on_first_ask(tell: Callable[[], None]) -> None:
    """Have somebody told when the work asks for the first time, as it does in its first step."""
    _Own.tell_first = tell


def is_worker() -> bool:
    """Say whether this process is a worker of a run, or a child that it has forked."""
    return _Own.page is not None


def stop_requested() -> bool:
    """Say whether the run is to stop soon: preempted, near its time limit, or cancelled.

    Costs next to nothing, so it may be asked in every step. Ranks hear of it some milliseconds apart; where all have to
    stop in the same step, ask a ``StopAgreement``. Outside a worker it is False.
    """
    page = _Own.page
    if page is None:
        return False
    if _Own.tell_first is not None:
        tell, _Own.tell_first = _Own.tell_first, None
        tell()
    return page.ask()


def report_progress(step: int) -> None:
    """Say that everything up to a step is saved, so that a run that gets nowhere is not requeued for ever.

    Args:
        step: Any number that grows, from 0 on.
    """
    if _Own.page is not None:
        _Own.page.report(max(step, 0))


class StopAgreement:
    """Asks whether to stop so that all ranks get the same answer in the same step.

    Every rank has to call it equally often, with the process group ready::

        agree_to_stop = hpc_multinode.StopAgreement()
        for step in range(first, last):
            train(step)
            if agree_to_stop():
                save(step)
                break

    Args:
        every: Ask the other ranks in every so many calls. Count, at least 1; None: about once a second.
    """

    def __init__(self, every: int | None = None) -> None:
        if every is not None and every < 1:
            raise ValueError(f"every={every}: at least 1")
        self._every = every
        self._left = 1
        self._asked_at = time.monotonic()
        self._steps = 1

    def __call__(self) -> bool:
        """Say whether to stop now; an all-reduce of two numbers in some calls, nothing in the others."""
        self._left -= 1
        if self._left > 0:
            stop_requested()  # so that we are known as one who listens from the first step on
            return False
        now = time.monotonic()
        is_stop, seconds = _reduce_max(stop_requested(), now - self._asked_at)
        # From what all ranks know alike, so that all come to the same number.
        self._steps = self._every or _choose_steps(self._steps, seconds)
        self._left, self._asked_at = self._steps, now
        return is_stop


def _choose_steps(steps: int, seconds: float) -> int:
    """Return in how many steps to ask again, when so many have taken so long on the slowest rank."""
    return min(_MAX_STEPS_BETWEEN, max(1, int(steps * _AGREE_EVERY_S / max(seconds, 1e-6))))


def _reduce_max(is_stop: bool, seconds: float) -> tuple[bool, float]:  # noqa: FBT001 - a pair of plain values
    import torch  # noqa: PLC0415 - never where the launcher itself runs
    import torch.distributed as dist  # noqa: PLC0415

    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return is_stop, seconds
    device: Any = "cuda" if dist.get_backend() == "nccl" else "cpu"
    both = torch.tensor([float(is_stop), seconds], dtype=torch.float64, device=device)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    told, longest = both.tolist()
    return told > 0, float(longest)
