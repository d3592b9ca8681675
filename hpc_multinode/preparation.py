"""From a configuration to a checked plan: gather the facts, find the work and check it, decide where the agents run.

Login side. Reads this machine and the person's sources; writes nothing, submits nothing.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_multinode.assets import find_asset
from hpc_multinode.config import Config, Mode
from hpc_multinode.devices import check_devices_exist, count_machine_gpus, parse_visible_devices
from hpc_multinode.errors import ConfigError, WorkError
from hpc_multinode.modules import check_modules
from hpc_multinode.person import expand, find_login_name
from hpc_multinode.plan import Facts, LaunchPlan
from hpc_multinode.planning import make_plan, make_run_id, make_run_name
from hpc_multinode.runs import CODE
from hpc_multinode.slurm.environment import has_job, is_plain_step, parse_allocated_nodes, parse_gpus_on_node
from hpc_multinode.source import check_call, check_class, check_imports
from hpc_multinode.templates import FOLDER as PIECES
from hpc_multinode.templates import read_pieces
from hpc_multinode.work import WorkTarget, find_target
from hpc_multinode.wrapping import has_pieces, make_agent_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpc_multinode.context import NodeContext

RUN_ROOT = "HPC_MULTINODE_RUN_ROOT"
_OUR_PACKAGE = "hpc_multinode."


def prepare_plan(
    config: Config,
    *,
    cwd: Path,
    config_dirs: Sequence[Path],
    python_path: Sequence[str] = (),
    has_own_object: bool = False,
    place: NodeContext | None = None,
) -> LaunchPlan:
    """Turn a configuration into a plan that is known to be sound.

    With ``snapshot=true`` it runs a copy of the code, which is known to be there to copy.

    Args:
        config: The composed configuration.
        cwd: Where the person stands.
        config_dirs: The person's configuration folders, whose ``sbatch_templates`` come before ours.
        python_path: Folders that workers need on ``sys.path`` beside a plain interpreter's own.
        has_own_object: The work is an object of the calling process and travels in the run folder.
        place: This process's place in the step that it is in, where it is to be the agent itself.

    Raises:
        ConfigError: A value is wrong.
        WorkError: The work cannot be found or called.
        SubmissionError: The chosen mode is not to be had here.
    """
    plan = prepare_live_plan(
        config,
        cwd=cwd,
        python_path=python_path,
        has_own_object=has_own_object,
        place=place,
        config_dirs=config_dirs,
    )
    if config.after is not None:
        from hpc_multinode.after import wait_after  # noqa: PLC0415 - earlier runs, and only where they are named

        plan = wait_after(plan, config.after)
    if not config.snapshot:
        return plan
    from hpc_multinode.snapshot import find_code, move_plan  # noqa: PLC0415 - git, and only where it is asked for

    code = find_code(Path(plan.work.file) if plan.work.file else None, cwd=cwd, max_mb=config.snapshot_max_mb)
    return move_plan(plan, code, folder=f"{plan.run_dir}/{CODE}", import_folders=list_import_folders())


def prepare_live_plan(
    config: Config,
    *,
    cwd: Path,
    python_path: Sequence[str] = (),
    has_own_object: bool = False,
    place: NodeContext | None = None,
    config_dirs: Sequence[Path] = (),
) -> LaunchPlan:
    """Do what ``prepare_plan`` does, for a run that waits for no other and needs no copy of its code."""
    if config.run_root is not None:
        config.run_root = expand(config.run_root, key="run_root")
    target = None if has_own_object else _find_work(config, cwd)
    executor = _find_executor(config, cwd)
    folders = executor.folders if executor else ()
    facts = _gather_facts(config, target, cwd=cwd, python_path=(*folders, *python_path), place=place)
    if has_pieces(config.cluster):
        facts = replace(facts, pieces=read_pieces(find_piece_folders(config_dirs)))
    plan = make_plan(config, facts=facts, target=target, executor=executor, keeps_results=has_own_object)
    _check_shell(plan)
    # Where the nodes run this very interpreter, and neither a set-up line nor PYTHONPATH may show it more modules, they
    # lack what it lacks here.
    is_known = plan.has_plain_python and plan.container is None and not plan.setup and "PYTHONPATH" not in plan.env
    if is_known:
        check_modules(plan.strategy.preload, folders=plan.work.folders, wanted_by=f"strategy={plan.strategy.name}")
    if target is not None:
        if is_known:
            check_imports(target)
        check_call(target, args=plan.work.args, kwargs=plan.work.kwargs)
    return plan


def find_piece_folders(config_dirs: Sequence[Path]) -> tuple[Path, ...]:
    """List the folders of ``sbatch_templates``, the strongest first: the person's, then ours."""
    own = [folder / PIECES for folder in config_dirs]
    return (*(folder for folder in own if folder.is_dir()), find_asset(PIECES))


def _check_shell(plan: LaunchPlan) -> None:
    """Let bash read what a person has written for it, and run nothing: in a job it would be found out too late."""
    texts = [("cluster.setup", line) for line in plan.setup]
    texts += [("cluster.teardown", "\n".join(plan.teardown))] if plan.teardown else []
    if not plan.has_plain_python or plan.container is not None:
        texts.append(("cluster.python", make_agent_command(plan)))
    for key, text in texts:
        read = subprocess.run(
            ["/bin/bash", "-n"], input=f"{{\n:\n{text}\n}}\n", capture_output=True, text=True, check=False
        )
        if read.returncode != 0:
            raise ConfigError(
                what=f"bash cannot read {key}",
                found=f"{text}\n{read.stderr.strip()}",
                fix="mend what bash names; quotes and brackets come in pairs",
            )


def _find_work(config: Config, cwd: Path) -> WorkTarget:
    strategy = config.strategy
    if config.work.target is not None:
        return find_target(config.work.target, cwd=cwd, is_script=strategy.is_script)
    if strategy.demo is None:
        raise ConfigError(
            what="there is no work to run",
            found=f"work.target is not set, and strategy={strategy.name} has no demo",
            fix="work.target=path/to/train.py:Name",
        )
    return find_target(strategy.demo, cwd=find_asset("examples"), is_script=strategy.is_script)


def _find_executor(config: Config, cwd: Path) -> WorkTarget | None:
    """Find the source of a person's own executor; None where it is one of ours."""
    given = config.strategy.executor
    if given.startswith(_OUR_PACKAGE):
        return None
    try:
        target = find_target(given, cwd=cwd, is_script=False, key="strategy.executor")
        check_class(target)
    except WorkError as error:
        raise ConfigError(what=f"the executor cannot be used: {error.what}", found=error.found, fix=error.fix) from None
    return target


def list_import_folders() -> tuple[str, ...]:
    """List the folders that this interpreter imports from, but for the one that ``python -m`` puts there itself.

    ``__main__`` has moved that one to the end; the program ``hpc-multinode`` has none.
    """
    entries = [Path(entry or ".").resolve() for entry in sys.path]
    main = sys.modules["__main__"]
    is_by_m = getattr(main, "__spec__", None) is not None and entries[-1:] == [Path.cwd()]
    return tuple(str(entry) for entry in (entries[:-1] if is_by_m else entries))


def _gather_facts(
    config: Config, target: WorkTarget | None, *, cwd: Path, python_path: Sequence[str], place: NodeContext | None
) -> Facts:
    mode = Mode.allocation if place else decide_mode(config.cluster.mode, os.environ)
    name = make_run_name(config, target)
    if place is None:
        now = datetime.now(timezone.utc).astimezone()
        run_id = make_run_id(name, now.strftime("%Y%m%d-%H%M%S"), secrets.token_hex(2))
    else:
        parts = [place.job_id or "", place.step_id or "batch", *([f"het{place.component}"] if place.component else [])]
        run_id = make_run_id(name, *parts)
    return Facts(
        run_id=run_id,
        cwd=str(cwd),
        python=sys.executable,
        user=find_login_name(),
        mode=mode,
        run_root=expand(os.environ.get(RUN_ROOT) or "runs", key=RUN_ROOT),
        num_allocated=place.num_nodes if place else parse_allocated_nodes(os.environ) if mode is Mode.step else None,
        devices=see_devices(mode),
        num_cpus=len(os.sched_getaffinity(0)),
        python_path=tuple(python_path),
    )


def see_devices(mode: Mode) -> tuple[str, ...]:
    """Return the GPUs that a process of this mode sees here, as opaque strings; none on a login node."""
    if mode is Mode.slurm:  # this machine's are not the job's
        return ()
    visible = parse_visible_devices(os.environ)
    if mode in (Mode.allocation, Mode.step):
        count = parse_gpus_on_node(os.environ) or 0
    else:
        count = count_machine_gpus()
        if count:  # else there is no driver to ask
            check_devices_exist(os.environ, present=count)
    if visible is not None:
        return visible
    return tuple(str(index) for index in range(count))


def decide_mode(mode: Mode, environ: Mapping[str, str]) -> Mode:
    """Return where the agents run: ``auto`` is settled by what is around us.

    Args:
        mode: As configured.
        environ: Normally ``os.environ``; its PATH is searched for sbatch.
    """
    if mode is Mode.step and is_plain_step(environ):
        return Mode.allocation  # a step in a step would wait for ever for what the outer one has
    if mode is not Mode.auto:
        return mode
    if is_plain_step(environ):
        return Mode.allocation
    if has_job(environ):
        return Mode.step
    return Mode.slurm if shutil.which("sbatch", path=environ.get("PATH")) is not None else Mode.local
