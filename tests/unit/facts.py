"""The facts of a plan in tests: one set of values, of which a test names what it is about."""

from __future__ import annotations

import dataclasses
from typing import Any

from hpc_multinode.config import Mode
from hpc_multinode.plan import Facts

_FACTS = Facts(
    run_id="run-1",
    cwd="/home/ada",
    python="/usr/bin/python3",
    user="ada",
    mode=Mode.local,
    run_root="runs",
    num_allocated=None,
    devices=(),
    num_cpus=1,
    python_path=(),
)


def make_facts(**changes: Any) -> Facts:
    """Return facts with some of the values changed."""
    return dataclasses.replace(_FACTS, **changes)
