"""What ends around an agent on this machine: its launcher in the foreground, and the agents beside it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.node.environment import LAUNCHER_PID
from hpc_multinode.node.stray import count_siblings

if TYPE_CHECKING:
    from collections.abc import Callable

_CHECK_S = 0.5
# When an agent begins to look whether another one has ended before all have met.
_SIBLINGS_AFTER_S = 2.0


async def wait_for_launcher_end() -> None:
    """Return when the launcher that waits for us in the foreground has ended; never where there is none."""
    pid = os.environ.get(LAUNCHER_PID)
    if pid is None:
        await asyncio.Event().wait()
    while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110, ASYNC240 - the kernel tells nobody, and procfs answers at once
        await asyncio.sleep(_CHECK_S)


async def wait_for_lost_sibling(num_agents: int, *, until: Callable[[], bool]) -> None:
    """Return when one of the agents that submitit's controller has started has ended, or ``until`` says so.

    Args:
        num_agents: Agents that there should be, this one included. Count.
        until: Says that it no longer matters.
    """
    await asyncio.sleep(_SIBLINGS_AFTER_S)
    while not until() and count_siblings() >= num_agents:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(_CHECK_S)
