"""Carry out a plan: the same object that ``render`` prints.

The one place that leads from a mode to what it does; what a mode needs is imported when it is chosen.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.runs import RunFolder
from hpc_multinode.slurm.leaking import render_left_out

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.submission.controller import Controller
    from hpc_multinode.submission.foreground import WatchedRun

_OWN_ON_EACH_NODE = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 - to warn of them
_WHERE = {
    "local": "on this machine",
    "debug": "in this process",
    "slurm": "on Slurm",
    "step": "in this allocation",
    "allocation": "in this job step",
}


def launch(plan: LaunchPlan, *, config_text: str, out: TextIO | None = None) -> int:
    """Run or submit a plan from the command line and return the exit code.

    Args:
        plan: The run.
        config_text: The resolved configuration as YAML.
        out: Where header, the ranks' lines and closing text go; None: stdout.

    Raises:
        MultiNodeError: The run could not be handed over.
    """
    gc.enable()
    out = out or sys.stdout
    if plan.mode == "slurm":
        return _launch_on_slurm(plan, config_text, out)
    if plan.mode == "step":
        from hpc_multinode.submission.step import require_srun  # noqa: PLC0415

        require_srun()
    folder = RunFolder.create(plan, config_text=config_text)
    print(render_header(plan), file=out, flush=True)
    if plan.mode == "debug":
        from hpc_multinode.submission.debug import run_debug  # noqa: PLC0415

        return run_debug(plan, folder)
    from hpc_multinode.submission.foreground import WatchedRun, watch  # noqa: PLC0415

    try:
        controller = _start_agents(plan, folder, is_foreground=True)
    except BaseException:  # a Ctrl-C just now: nothing has started, so nothing stays
        shutil.rmtree(folder.path)
        raise
    return watch(WatchedRun(plan, folder, controller), out=out)


def start_in_background(plan: LaunchPlan, *, config_text: str, work_pickle: bytes) -> WatchedRun:
    """Start a run for a Python caller, who waits for it when they like.

    Args:
        plan: The run.
        config_text: The resolved configuration as YAML.
        work_pickle: The work, with its arguments.
    """
    from hpc_multinode.submission.foreground import WatchedRun  # noqa: PLC0415

    if plan.mode == "slurm":
        from hpc_multinode.preparation import require_sbatch  # noqa: PLC0415
        from hpc_multinode.submission.slurm import make_job_controller, submit_slurm  # noqa: PLC0415

        require_sbatch()
        warn_of_left_out(plan)
        folder = RunFolder.create(plan, config_text=config_text, work_pickle=work_pickle)
        return WatchedRun(plan, folder, make_job_controller(submit_slurm(plan, folder), folder))
    folder = RunFolder.create(plan, config_text=config_text, work_pickle=work_pickle)
    return WatchedRun(plan, folder, _start_agents(plan, folder, is_foreground=False))


def render_header(plan: LaunchPlan) -> str:
    """Say in three lines what runs, where, and where its logs are."""
    from hpc_multinode.submission.foreground import shorten  # noqa: PLC0415

    work = shorten(plan.work.file) if plan.work.file else plan.work.name or "work"
    name = f":{plan.work.name}" if plan.work.file and plan.work.name else ""
    size = f"{plan.num_nodes} x {plan.local_world_size} = {plan.world_size} worker{'s' * (plan.world_size != 1)}"
    run_dir = shorten(plan.run_dir)
    logs = f"{run_dir}/attempt-0/rank*.log" if plan.mode != "debug" else "this terminal"
    first = f"{plan.strategy.name}: {work}{name} on {size}, {_WHERE[plan.mode]}, {_describe_gpus(plan)}"
    return f"{first}\nrun:  {run_dir}\nlogs: {logs}"


def warn_of_left_out(plan: LaunchPlan) -> None:
    """Name each wish in ``SBATCH_*`` that does not count."""
    for line in render_left_out(os.environ, plan.sbatch):
        print(f"warning: {line}", file=sys.stderr)  # noqa: T201


def _warn_of_run_folder(plan: LaunchPlan) -> None:
    own = next((root for root in _OWN_ON_EACH_NODE if plan.run_dir.startswith(root)), None)
    if own is not None:
        print(  # noqa: T201
            f"warning: the run folder lies in {own}, which on most clusters each node has for itself; "
            "run_root=FOLDER on a file system that all nodes share",
            file=sys.stderr,
        )


def _start_agents(plan: LaunchPlan, folder: RunFolder, *, is_foreground: bool) -> Controller:
    if plan.mode == "step":
        from hpc_multinode.submission.step import start_step  # noqa: PLC0415

        return start_step(plan, folder)
    from hpc_multinode.submission.local import start_local  # noqa: PLC0415

    return start_local(plan, folder, is_foreground=is_foreground)


def _describe_gpus(plan: LaunchPlan) -> str:
    if plan.node_devices is not None and any(plan.node_devices):
        return "GPUs " + " | ".join(",".join(node) for node in plan.node_devices)
    if plan.gpus_per_node:
        return f"{plan.gpus_per_node} GPU{'s' * (plan.gpus_per_node != 1)} a node"
    return "no GPU" if plan.mode != "slurm" else "no GPU asked for (resources=gpu asks for one)"


def _launch_on_slurm(plan: LaunchPlan, config_text: str, out: TextIO) -> int:
    from hpc_multinode.preparation import require_sbatch  # noqa: PLC0415
    from hpc_multinode.slurm.commands import split_job_id  # noqa: PLC0415
    from hpc_multinode.submission.foreground import shorten  # noqa: PLC0415
    from hpc_multinode.submission.slurm import submit_slurm  # noqa: PLC0415

    require_sbatch()
    folder = RunFolder.create(plan, config_text=config_text)
    warn_of_left_out(plan)
    job_id = submit_slurm(plan, folder)
    _warn_of_run_folder(plan)
    number, cluster = split_job_id(job_id)
    select = " ".join([*cluster, number])
    print(render_header(plan), file=out)
    print(
        f"submitted: job {number}{job_id[len(number) :].replace(';', ' on cluster ')}\n"
        f"agents: {shorten(plan.run_dir)}/submitit/{number}_0_log.out\n"
        f"report: {shorten(plan.run_dir)}/report.json, when it is over\n"
        f"look:   squeue {' '.join([*cluster, '-j', number])}\n"
        f"cancel: scancel {select}",
        file=out,
    )
    return 0
