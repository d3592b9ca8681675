"""Reading one variable of Slurm's: the only access to the mapping that holds ``SLURM_*``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hpc_multinode.errors import SlurmEnvironmentError, format_value, format_variable
from hpc_multinode.slurm.counts import parse_count

if TYPE_CHECKING:
    from collections.abc import Mapping

START_WITH_SRUN = "start one task on each node with srun: srun --ntasks-per-node=1 python -m hpc_multinode ..."


class Variable(NamedTuple):
    """A variable that is set, with its name for error texts."""

    name: str
    value: str

    def __str__(self) -> str:
        return format_variable(self.name, self.value)


def find(environ: Mapping[str, str], *names: str) -> Variable | None:
    """Return the first of these variables that is set and not blank: the newest name comes first."""
    for name in names:
        value = environ.get(name, "").strip()
        if value:
            return Variable(name, value)
    return None


def require(environ: Mapping[str, str], *names: str) -> Variable:
    """Return what ``find`` finds.

    Raises:
        SlurmEnvironmentError: None of them is set.
    """
    found = find(environ, *names)
    if found is None:
        unset = [format_variable(name, environ[name]) if name in environ else f"{name} is unset" for name in names]
        raise SlurmEnvironmentError(
            what=f"{names[0]} is missing from the environment of this task",
            found=f"{', '.join(unset)} {where(environ)}",
            fix=f"{START_WITH_SRUN}; a container or wrapper in between must pass SLURM_* on",
        )
    return found


def parse(variable: Variable, minimum: int = 0) -> int:
    """Return a variable's number, at least ``minimum``.

    Raises:
        SlurmEnvironmentError: It is none, or too small.
    """
    return parse_count(variable.value, variable=variable.name, minimum=minimum)


def where(environ: Mapping[str, str]) -> str:
    """Tell node and job for an error text."""
    node, job = find(environ, "SLURMD_NODENAME"), find(environ, "SLURM_JOB_ID", "SLURM_JOBID")
    place = f"on {format_value(node.value)} " if node else ""
    return f"{place}(job {format_value(job.value)})" if job else f"{place}(no job)"
