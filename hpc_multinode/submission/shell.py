"""Shell lines around the agents: the person's set-up and teardown, the same on this machine and on Slurm. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.plan import LaunchPlan

# Seconds that srun gives the other tasks after the first has ended well; the agents agree on their end within them.
_SRUN_WAIT_S = 60


def make_setup(lines: Sequence[str]) -> list[str]:
    """Wrap set-up lines so that one that fails ends the script and says which it was.

    Each runs in the script's own shell, so that what it exports or activates stays; in a pipe every part counts.
    """
    commands = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not commands:
        return []
    wrapped = [
        f"{{ {line}\n}} || {{ echo {shlex.quote(f'hpc_multinode: this set-up line failed: {line}')} >&2; exit 1; }}"
        for line in commands
    ]
    return ["set -o pipefail", *wrapped, "set +o pipefail"]


def make_teardown(lines: Sequence[str]) -> list[str]:
    """Put teardown lines into a shell of their own, so that no exit among them takes the place of the run's code."""
    return ["(", ":", *lines, ")"]


def make_log_options() -> list[str]:
    """Return the options of srun by which each agent's output goes to a file of its own in the run folder.

    Relative to ``--chdir``: tried, an absolute path with a % in a folder's name makes srun fail, doubled or not.
    """
    return ["--unbuffered", "--output=submitit/%j_%t_log.out"]


def make_srun_options(plan: LaunchPlan) -> list[str]:
    """Return the options of srun by which agents are started: one on each node, and a bad end of one ends all."""
    # srun does not take it from the job any more since Slurm 22.05.
    cpus = plan.sbatch.get("cpus-per-task")
    return [
        *([f"--cpus-per-task={cpus}"] if cpus is not None else []),
        "--ntasks-per-node=1",
        # The one task of a node could be bound to one core; the workers are to have all that the job has.
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        f"--wait={_SRUN_WAIT_S}",
        f"--chdir={plan.run_dir}",
        "--export=ALL",
        *plan.srun_args,
    ]


def make_foreground_script(plan: LaunchPlan, words: Sequence[str]) -> str:
    """Compose a shell script that runs a program between set-up and teardown and ends with its exit code."""
    command = shlex.join(words)
    if not plan.teardown:
        return "\n".join([*make_setup(plan.setup), f"exec {command}"])
    return "\n".join(
        [
            *make_setup(plan.setup),
            f"{command} & program=$!",
            "trap 'kill -TERM $program' TERM",
            # A wait ends early when the trap runs; the last one asks for the status that bash has kept.
            "wait $program; code=$?",
            "while kill -0 $program 2>/dev/null; do wait $program; code=$?; done",
            "wait $program 2>/dev/null; kept=$?; [ $kept -eq 127 ] || code=$kept",
            *make_teardown(plan.teardown),
            "exit $code",
        ]
    )
