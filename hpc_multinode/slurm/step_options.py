"""Words that a person adds to srun. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Options on which the start and the end of agents rest, and what to write instead.
_OURS = {
    ("--ntasks", "-n"): "nodes=N; there is one agent on each",
    ("--nodes", "-N"): "nodes=N",
    ("--ntasks-per-node",): "resources.workers_per_node=N; there is one agent on each node",
    ("--kill-on-bad-exit", "-K"): "leave it out: agents end in order, and stop each other's workers",
    ("--wait", "-W"): "leave it out: agents end in order",
    ("--chdir", "-D"): "leave it out: workers run where you stand",
    ("--output", "-o"): "leave it out: each agent and worker has a log of its own in the run folder",
    ("--export",): "env.NAME=VALUE for a variable of the workers",
}


def check_srun_args(words: Sequence[str]) -> None:
    """Check that words leave srun's start of one agent on each node as it is.

    Args:
        words: ``resources.srun_args``.

    Raises:
        ConfigError: A word is no option, or one that is the launcher's own.
    """
    for word in words:
        found = f"resources.srun_args: {word}"
        if not word.startswith("-"):
            raise ConfigError(
                what="a word for srun is no option, so srun would take it for the program to start",
                found=found,
                fix="one word for each option, with its value behind an equals sign: resources.srun_args=[--mpi=none]",
            )
        for names, fix in _OURS.items():
            is_long = word.partition("=")[0] == names[0]
            if is_long or (not word.startswith("--") and word.startswith(names[1:])):
                raise ConfigError(what=f"{names[0]} of srun is not to be given by hand", found=found, fix=fix)
