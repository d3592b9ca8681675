"""The batch script's part in a requeue, where the agents cannot do it: shell lines around srun. Pure.

The batch script outlives its agents by a moment, is there once, and stands outside of any container. What it does stays
done: a job that Slurm starts again although its run goes on in another job ends at once.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from hpc_multinode.resubmission import ANSWER, REFUSAL, REFUSED, REQUEST, SCRIPT
from hpc_multinode.slurm.leaking import KEPT_NAMES
from hpc_multinode.submission.shell import make_srun_options
from hpc_multinode.wrapping import make_agent_command

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

_JOB = "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
# So long a job whose sbatch got no answer may take to show in the queue, in seconds.
_SHOWS_S = 5


def make_requeue_guard(plan: LaunchPlan) -> list[str]:
    """Return the first lines of a script whose job may be requeued by the script itself; none where it is not."""
    if not plan.leaves_requeue:
        return []
    request = shlex.quote(f"{plan.run_dir}/{REQUEST}")
    files = " ".join(f'"$requeue_request{suffix}"' for suffix in ("", SCRIPT, ANSWER, REFUSAL))
    ended = 'echo "hpc_multinode: this run goes on in another job" >&2; exit 0'
    return [
        f'requeue_request={request}"{_JOB}"',
        f'[ ! -s "$requeue_request{ANSWER}" ] || {{ {ended}; }}',
        f"rm -f {files}",
        "requeue_variables=$(export -p)",
    ]


def make_requeue_lines(plan: LaunchPlan) -> list[str]:
    """Return the lines after srun, which find its exit code in ``code``; none where the script requeues nothing.

    Source:
        sbatch(1): $0 is Slurm's own copy of the script. bash(1): ${!prefix@}, compgen -e, export -p.
    """
    if not plan.leaves_requeue:
        return []
    act = _make_resubmission(plan) if plan.requeue_method == "resubmit" else _make_scontrol()
    srun = shlex.join(["srun", "--nodes=1", "--ntasks=1", *make_srun_options(plan)])
    return [
        'if [ -e "$requeue_request" ]; then',
        *act,
        f'requeue_job 2> "$requeue_request{REFUSAL}" || {{ {srun} {make_agent_command(plan, REFUSED)}; code=$?; }}',
        "fi",
    ]


def _make_scontrol() -> list[str]:
    return [
        "requeue_job() {",
        'rm -f "$requeue_request"',
        f'scontrol requeue "${{requeue_request##*/{REQUEST}}}"',
        "}",
    ]


def _make_resubmission(plan: LaunchPlan) -> list[str]:
    # The job that it waited for has ended; Slurm may have forgotten it, and then refuses to wait.
    dependency = str(plan.sbatch.get("dependency", "singleton"))
    copy = 'cat "$0"' if dependency == "singleton" else "sed '/^#SBATCH --dependency=/d' \"$0\""
    find = "squeue --noheader --me --states=all --format='%F %o'"
    return [
        "requeue_job() {",
        f"umask {'077' if plan.is_private else '027'}",
        f'{copy} > "$requeue_request{SCRIPT}" || return',
        "task=$SLURM_ARRAY_TASK_ID",
        # As from where the first job was submitted: without what set-up and this job have added.
        "(",
        'cd "$SLURM_SUBMIT_DIR"',
        'unset $(compgen -e); eval "$requeue_variables"',
        f'for name in ${{!SLURM@}}; do case $name in {"|".join(sorted(KEPT_NAMES))}) ;; *) unset "$name" ;; esac; done',
        f'exec sbatch ${{task:+"--array=$task"}} "$requeue_request{SCRIPT}" > "$requeue_request{ANSWER}"',
        ") && return",
        # It may have got in although sbatch was not told so.
        f"sleep {_SHOWS_S}",
        f"{find} | while read -r id script; do",
        f'[ "$script" != "$requeue_request{SCRIPT}" ] || echo "$id"',
        f'done > "$requeue_request{ANSWER}"',
        f'[ -s "$requeue_request{ANSWER}" ]',
        "}",
    ]
