"""Counts as Slurm writes them: ``2``, ``4(x2),3``.

Pure. Turns texts into numbers; which variable is read is the business of ``slurm.environment``.
"""

from __future__ import annotations

import re

from hpc_multinode.errors import SlurmEnvironmentError, format_variable

# Twice the largest range that Slurm itself accepts. Anything above is a broken value, not a cluster.
MAX_NODES = 131_072

_MAX_COUNT = 2**32 - 1
_REPEATED = re.compile(r"([0-9]{1,10})(?:\(x([0-9]{1,10})\))?", re.ASCII)


def parse_count(text: str, *, variable: str, minimum: int = 0, maximum: int = _MAX_COUNT) -> int:
    """Read one whole number.

    Args:
        text: The variable's value. Blanks around it are ignored; a sign, a point or other digits than 0-9 are not
            accepted.
        variable: Its name, for the error.
        minimum: The smallest value that makes sense.
        maximum: The largest value that makes sense.

    Returns:
        The number, in ``[minimum, maximum]``.

    Raises:
        SlurmEnvironmentError: It is not a number, or outside the range.
    """
    digits = text.strip()
    # The length is checked first: int() itself raises on thousands of digits.
    if not re.fullmatch(r"[0-9]{1,20}", digits, re.ASCII) or not minimum <= int(digits) <= maximum:
        raise SlurmEnvironmentError(
            what=f"{variable} is not a whole number from {minimum} to {maximum}",
            found=format_variable(variable, text),
            fix="start the run with srun, which sets it, and do not set it by hand",
        )
    return int(digits)


def parse_counts_per_node(text: str, *, variable: str) -> tuple[int, ...]:
    """Read one count for each node, in node order, from Slurm's run-length form.

    Used for tasks (``SLURM_STEP_TASKS_PER_NODE``, ``SLURM_TASKS_PER_NODE``) and CPUs
    (``SLURM_JOB_CPUS_PER_NODE``).

    Args:
        text: For example ``4(x2),3``, which means 4, 4 and 3.
        variable: The variable's name, for the error.

    Returns:
        One count a node, each at least 1.

    Raises:
        SlurmEnvironmentError: It is malformed, holds a zero, or describes more nodes than any cluster has.

    Source:
        sbatch(1), OUTPUT ENVIRONMENT VARIABLES. https://slurm.schedmd.com/sbatch.html
    """
    counts: list[int] = []
    for item in text.strip().split(","):
        match = _REPEATED.fullmatch(item.strip())
        count = int(match[1]) if match else 0
        repeat = int(match[2] or 1) if match else 0
        if not (1 <= count <= _MAX_COUNT and 1 <= repeat <= MAX_NODES - len(counts)):
            raise SlurmEnvironmentError(
                what=f"{variable} is not a list of counts such as 4(x2),3",
                found=format_variable(variable, text),
                fix="start the run with srun, which sets it, and do not set it by hand",
            )
        counts.extend([count] * repeat)
    return tuple(counts)
