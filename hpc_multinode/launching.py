"""Carry out a plan: the same object that ``render`` prints.

The one place that leads from a mode to what it does; what a mode needs is imported when it is chosen.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hpc_multinode.context import describe_size
from hpc_multinode.layout import show_agent_log, show_rank_logs
from hpc_multinode.person import shorten
from hpc_multinode.registry import register, register_job
from hpc_multinode.runs import CODE, RunFolder
from hpc_multinode.slurm.environment import parse_job_id

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan
    from hpc_multinode.registry import Entry
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
    folder, copied = _make_folder(plan, config_text)
    register(plan, job_id=_find_own_job(plan), pid=os.getpid())
    print(render_header(plan) + copied, file=out, flush=True)
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
        from hpc_multinode.submission.job import make_job_controller  # noqa: PLC0415

        folder, entry, _ = _submit(plan, config_text, work_pickle)
        return WatchedRun(plan, folder, make_job_controller(entry))
    folder, _ = _make_folder(plan, config_text, work_pickle)
    controller = _start_agents(plan, folder, is_foreground=False)
    register(plan, job_id=_find_own_job(plan), pid=controller.process.pid if controller.process is not None else None)
    return WatchedRun(plan, folder, controller)


def render_header(plan: LaunchPlan) -> str:
    """Say in three lines what runs, where, and where its logs are."""
    run_dir = shorten(plan.run_dir)
    logs = show_rank_logs(run_dir, 0) if plan.mode != "debug" else "this terminal"
    return f"{describe_plan(plan)}\nrun:  {run_dir}\nlogs: {logs}"


def describe_plan(plan: LaunchPlan) -> str:
    """Say in one line what runs, and where."""
    work = shorten(_find_origin(plan)) if plan.work.file else plan.work.name or "work"
    name = f":{plan.work.name}" if plan.work.file and plan.work.name else ""
    size = describe_size(plan.num_nodes, plan.local_world_size)
    return f"{plan.strategy.name}: {work}{name} on {size}, {_WHERE[plan.mode]}, {_describe_gpus(plan)}"


def _find_own_job(plan: LaunchPlan) -> str | None:
    return parse_job_id(os.environ) if plan.mode == "step" else None


def fill_folder(plan: LaunchPlan, folder: RunFolder) -> str:
    """Copy the code that the plan says into a run folder, and return a line for the header: none without a snapshot.

    Raises:
        MultiNodeError: It cannot be copied; the run folder is gone then.
    """
    if plan.code is None or Path(plan.code.folder).exists():  # a later attempt runs what the first one has copied
        return ""
    from hpc_multinode.snapshot import take_snapshot  # noqa: PLC0415 - git, and only where it is asked for

    try:
        return f"\n{CODE}: {take_snapshot(plan.code, folder)}"
    except BaseException:
        shutil.rmtree(folder.path)
        raise


def _make_folder(plan: LaunchPlan, config_text: str, work_pickle: bytes | None = None) -> tuple[RunFolder, str]:
    folder = RunFolder.create(plan, config_text=config_text, work_pickle=work_pickle)
    return folder, fill_folder(plan, folder)


def _find_origin(plan: LaunchPlan) -> str:
    """Return where the work's file was found, also where a copy of it runs."""
    file = plan.work.file or ""
    code = plan.code
    if code is None or not Path(file).is_relative_to(code.folder):
        return file
    return str(Path(code.root) / Path(file).relative_to(code.folder))


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
    _, entry, copied = _submit(plan, config_text)
    _warn_of_run_folder(plan)
    print(render_header(plan) + copied, file=out)
    print(
        f"submitted: job {entry.job_id}{f' on cluster {entry.cluster}' if entry.is_remote else ''}\n"
        f"agents: {show_agent_log(shorten(plan.run_dir), str(entry.job_id))}\n"
        f"status: python -m hpc_multinode status {entry.job_id}\n"
        f"follow: python -m hpc_multinode logs -f {entry.job_id}\n"
        f"cancel: python -m hpc_multinode cancel {entry.job_id}",
        file=out,
        flush=True,
    )
    if not plan.waits:
        return 0
    from hpc_multinode.life.following import follow_to_end  # noqa: PLC0415 - only where somebody waits

    return follow_to_end(entry, out=out)


def _submit(plan: LaunchPlan, config_text: str, work_pickle: bytes | None = None) -> tuple[RunFolder, Entry, str]:
    """Submit a run and note it; return its folder, its entry and what the header says of its code."""
    from hpc_multinode.slurm.commands import find_cluster_name  # noqa: PLC0415
    from hpc_multinode.submission.slurm import Withdrawn, require_sbatch, submit_slurm, warn_of_left_out  # noqa: PLC0415

    require_sbatch()
    folder, copied = _make_folder(plan, config_text, work_pickle)
    warn_of_left_out(plan)
    # Before the job is there, so that no moment is left in which it is and nobody knows of it.
    cluster = find_cluster_name()
    try:
        job_id = submit_slurm(plan, folder)
    except Withdrawn as withdrawn:
        if withdrawn.job_id is not None:
            register_job(plan, withdrawn.job_id, cluster=cluster)
        raise
    return folder, register_job(plan, job_id, cluster=cluster), copied
