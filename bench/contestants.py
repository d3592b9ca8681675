"""Who takes part: how each starts one program on all workers of two nodes. Pure but for the folder it writes into.

A contestant is a command, as its documentation tells people to write it; the same program runs under all of them.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.lab import PROJECT, WORKS

if TYPE_CHECKING:
    from pathlib import Path

NUM_NODES = 2
# Virtual environment of what is only measured; it sees the packages of this one.
PEERS = PROJECT / ".venv-peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command that submits a job, and the script that it hands in where it is sbatch that is called.

    Attributes:
        argv: What a person types.
        script: Text of ``job.sh`` in the folder of the job; None where there is no such file.
    """

    argv: tuple[str, ...]
    script: str | None = None

    def render(self) -> str:
        """Write everything that a person types, and the script."""
        return shlex.join(self.argv) + (f"\n{self.script}" if self.script else "")


def make_ours(strategy: str, work: str, workers: int, out: Path, *words: str) -> Job:
    """Start through this project, whose set-up and teardown lines tell when the batch script begins and ends.

    Args:
        strategy: Its name.
        work: File, or file and name.
        workers: Workers a node.
        out: The job's folder.
        words: More overrides.
    """
    return Job(
        argv=(
            *("python", "-m", "hpc_multinode", f"strategy={strategy}", f"work.target={WORKS / work}"),
            *(f"nodes={NUM_NODES}", f"resources.workers_per_node={workers}", f"resources.cpus_per_node={workers}"),
            f"run_root={out}/runs",
            f"cluster.setup=['date +%s.%N > {out}/began']",
            f"cluster.teardown=['date +%s.%N > {out}/over']",
            *words,
        )
    )


def make_torchrun(file: str, workers: int, out: Path, *, wrapper: str = "") -> Job:
    """Start torchrun once a node, in an sbatch script."""
    command = (
        f"srun --cpu-bind=none --kill-on-bad-exit=1 {wrapper}torchrun --nnodes={NUM_NODES} --nproc-per-node={workers} "
        f'--rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:$port" {WORKS / file}'
    )
    return _make_batch(command, out, tasks=1, cpus=workers)


def make_srun(file: str, workers: int, out: Path, *, wrapper: str = "") -> Job:
    """Start one task of srun for each worker, in an sbatch script."""
    start = f"srun --cpu-bind=none --kill-on-bad-exit=1 {wrapper}python {WORKS / file}"
    command = f'MASTER_ADDR="$head" MASTER_PORT="$port" {start}'
    return _make_batch(command, out, tasks=workers, cpus=1)


def make_lightning(workers: int, out: Path) -> Job:
    """Start a Trainer with one task of srun for each worker, as Lightning's documentation says."""
    command = f"srun --cpu-bind=none python {WORKS / 'trainer.py'} {NUM_NODES} {workers}"
    return _make_batch(command, out, tasks=workers, cpus=1)


def make_submitit(workers: int, out: Path) -> Job:
    """Start one task of submitit's for each worker."""
    return Job(argv=("python", str(WORKS / "by_submitit.py"), str(out), str(NUM_NODES), str(workers)))


def make_torchrunx(workers: int, out: Path) -> Job:
    """Start torchrunx in the allocation, from its first node."""
    command = f"{PEERS / 'bin' / 'python'} {WORKS / 'by_torchrunx.py'} {workers}"
    return _make_batch(command, out, tasks=1, cpus=workers)


def _make_batch(command: str, out: Path, *, tasks: int, cpus: int) -> Job:
    script = f"""\
#!/bin/bash
#SBATCH --nodes={NUM_NODES}
#SBATCH --ntasks-per-node={tasks}
#SBATCH --cpus-per-task={cpus}
#SBATCH --output={out}/job.out
date +%s.%N > {out}/began
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000))
{command}
code=$?
date +%s.%N > {out}/over
exit $code
"""
    return Job(argv=("sbatch", str(out / "job.sh")), script=script)
