"""Writes the environments of real job steps to ``tests/data/env/<version>/<case>.env``.

``python -m tests.slurm_cluster record`` starts a cluster of its own, runs one command for each case, and takes the
cluster down.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.slurm_cluster.cluster import SlurmCluster
from tests.slurm_cluster.errors import ClusterError
from tests.slurm_cluster.services import wait_until
from tests.slurm_cluster.settings import PROJECT, ClusterSettings, SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Callable

_KEPT = re.compile(r"(SLURM|SBATCH|CUDA|GPU|HOSTNAME)")
_END_STATES = ("COMPLETED", "FAILED", "CANCELLED")
# Sites whose profile exports HOSTNAME pass the login host's on to every task.
_LOGIN_ENV = {"HOSTNAME": "hpclogin"}


def record_all(version: SlurmVersion, *, target: Path | None = None) -> None:
    """Record every case of one version of Slurm.

    Args:
        version: Version of Slurm to start.
        target: Folder of the versions' folders; the project's if None.
    """
    root = Path(tempfile.gettempdir()).resolve() / "hpc-record"
    cluster = SlurmCluster(ClusterSettings(root=root, nodes=3, gpus=2, version=version, node_prefix="node"))
    folder = (target or PROJECT / "tests" / "data" / "env") / version.value
    folder.mkdir(parents=True, exist_ok=True)
    cluster.up()
    try:
        recorder = _Recorder(cluster, folder)
        for case in recorder.cases():
            case()
    finally:
        cluster.down()


class _Recorder:
    """Runs the cases on one cluster."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._version = cluster.run(["sinfo", "--version"], check=True).stdout.strip()

    def cases(self) -> list[Callable[[], None]]:
        """Return the cases, each ready to be run."""
        return [
            self._srun_on_two_nodes,
            self._step_on_subset,
            self._batch,
            self._salloc_shell,
            self._array_task,
            self._hetjob,
            self._requeued,
            self._gpus,
        ]

    def _srun_on_two_nodes(self) -> None:
        self._run(["srun", "-N2", *_dump("srun-2nodes-node$SLURM_NODEID")])
        for index in (0, 1):
            self._keep(f"srun-2nodes-node{index}", f"srun -N2 env, on node {index}")

    def _step_on_subset(self) -> None:
        nodes = ",".join(self._cluster.node_names[1:])
        step = f"srun -N2 -n2 -w {nodes}"
        self._run(["salloc", "-N3", *step.split(), *_dump("srun-subset-step-$SLURM_NODEID")])
        self._keep("srun-subset-step", f"salloc -N3 {step} env, on node 0 of the step", source="srun-subset-step-0")

    def _batch(self) -> None:
        options = [
            "--job-name=train",
            "-N2",
            "--ntasks-per-node=1",
            "--cpus-per-task=2",
            "--mem=2000",
            "--time=10",
            "--signal=USR2@60",
        ]
        step = " ".join(map(_quote, _dump("sbatch-srun-node$SLURM_NODEID")))
        self._submit(f"{_dump_here('sbatch-batch-script')}\nsrun {step}\n", *options)
        text = " ".join(options)
        self._keep("sbatch-batch-script", f"sbatch {text}, env in the batch script")
        for index in (0, 1):
            self._keep(f"sbatch-srun-node{index}", f"sbatch {text}, srun env in the script, on node {index}")

    def _salloc_shell(self) -> None:
        self._run(["salloc", "-N2", *_dump("salloc-shell")])
        self._keep("salloc-shell", "salloc -N2 env, on the login host")
        with self._cluster.configured("LaunchParameters=use_interactive_step"):
            # A pseudo-terminal is wanted by the interactive step, and script(1) makes one.
            inner = f"{_dump_here('salloc-interactive-step')}; exit"
            self._run(["script", "-qec", "salloc -N2", "/dev/null"], text_in=f"{inner}\n")
            self._keep(
                "salloc-interactive-step", "salloc -N2 with LaunchParameters=use_interactive_step, env in the shell"
            )

    def _array_task(self) -> None:
        step = " ".join(map(_quote, _dump("array-task-$SLURM_NODEID")))
        self._submit(f"srun {step}\n", "-N2", "--array=3,5%1", task="_3")
        self._keep("array-task", "sbatch -N2 --array=3,5%1, srun env in task 3, on node 0", source="array-task-0")

    def _hetjob(self) -> None:
        step = " ".join(map(_quote, _dump("hetjob-component-1-$SLURM_NODEID")))
        script = (
            "#!/bin/bash\n#SBATCH -N1 --ntasks-per-node=1\n#SBATCH hetjob\n#SBATCH -N2 --ntasks-per-node=1\n"
            f"{_dump_here('hetjob-batch-script')}\nsrun --het-group=1 {step}\n"
        )
        self._submit("", script=script)
        self._keep("hetjob-batch-script", "sbatch -N1 hetjob -N2, env in the batch script")
        origin = "sbatch -N1 hetjob -N2, srun --het-group=1 env, on node 0 of the component"
        self._keep("hetjob-component-1", origin, source="hetjob-component-1-0")

    def _requeued(self) -> None:
        step = " ".join(map(_quote, _dump("requeued-$SLURM_NODEID")))
        script = (
            f"if [ -z $SLURM_RESTART_COUNT ]; then sleep 600; fi\n{_dump_here('requeued-batch-script')}\nsrun {step}\n"
        )
        job = self._cluster.submit(script, "-N2", "--requeue")
        self._cluster.wait_for_job(job, "RUNNING")
        self._cluster.scontrol("requeue", job)
        self._cluster.wait_for_job(job, *_END_STATES)
        self._keep("requeued-batch-script", "sbatch -N2, scontrol requeue, env in the batch script of the second start")
        self._keep("requeued", "sbatch -N2, scontrol requeue, srun env after it, on node 0", source="requeued-0")

    def _gpus(self) -> None:
        self._run(["srun", "-N2", "--gpus-per-node=2", "--cpus-per-task=4", *_dump("gpus-$SLURM_NODEID")])
        self._keep("gpus", "srun -N2 --gpus-per-node=2 --cpus-per-task=4 env, on node 0", source="gpus-0")

    def _run(self, argv: list[str], *, text_in: str = "") -> None:
        self._cluster.run(argv, env=_LOGIN_ENV, text_in=text_in, timeout_s=60, check=True)

    def _submit(self, command: str, *options: str, script: str = "", task: str = "") -> None:
        job = self._cluster.submit(command, *options, script=script) + task
        self._cluster.wait_for_job(job, *_END_STATES)

    def _keep(self, case: str, origin: str, *, source: str = "") -> None:
        """Copy what was dumped into the project, without what is not Slurm's, under a line that says its origin."""
        path = self._cluster.shared / f"{source or case}.dump"
        wait_until(path.exists, f"the dump {path.name}", path, timeout_s=10)
        lines = sorted(line for line in path.read_text().splitlines() if _KEPT.match(line))
        if not lines:
            raise ClusterError(what=f"nothing was dumped for {case}", found=str(path), fix="run the command by hand")
        (self._folder / f"{case}.env").write_text("\n".join([f"# {self._version}: {origin}", *lines]) + "\n")


def _dump(name: str) -> list[str]:
    """Return a command that writes its environment to a file of the shared folder."""
    return ["sh", "-c", f"env > {name}.part && mv {name}.part {name}.dump"]


def _dump_here(name: str) -> str:
    """Return shell text that writes the shell's environment to a file."""
    return f"env > {name}.part; mv {name}.part {name}.dump"


def _quote(word: str) -> str:
    return f"'{word}'"
