"""The plan: everything that a run will ask of the cluster and do on it, frozen before anything happens.

``planning`` makes it from a configuration and ``Facts``; ``render`` prints it, ``submit`` carries out the same object,
and the nodes read it back from the run folder.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpc_multinode.config import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the plan must know of the world, gathered once on the login side.

    Attributes:
        run_id: The run's id, unique in its run root.
        cwd: Absolute folder where the person stands.
        python: Absolute path of the submitting interpreter.
        user: Login name.
        mode: Where the agents run; never ``auto``.
        run_root: Absolute folder that holds run folders where the configuration names none.
        num_allocated: Nodes of the allocation we are in, or None. Count, at least 1.
        devices: GPUs that this machine, or this node of the allocation, shows, as opaque strings.
        num_cpus: CPUs that this process may use. Count, at least 1.
        python_path: Folders of the submitting process that a plain interpreter would not have on ``sys.path``.
        pieces: Texts of ``sbatch_templates`` by path, the person's first; empty where none is asked for.
    """

    run_id: str
    cwd: str
    python: str
    user: str
    mode: Mode
    run_root: str
    num_allocated: int | None
    devices: tuple[str, ...]
    num_cpus: int
    python_path: tuple[str, ...]
    pieces: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """The work and its arguments.

    Attributes:
        file: Absolute path of the source, or None for an object that travels in the run folder.
        module: Name under which workers import the file, or None for a script or an object.
        name: Function or class in the module, for an object its name for people.
        folders: What stands first on ``sys.path`` of the workers.
        args: Positional arguments, or a script's argv.
        kwargs: Keyword arguments.
    """

    file: str | None
    module: str | None
    name: str | None
    folders: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePlan:
    """The snapshot of the person's code; see ``snapshot``.

    Attributes:
        root: Absolute folder that is copied.
        folder: Absolute folder of the copy.
        has_git: git says what belongs to it.
    """

    root: str
    folder: str
    has_git: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyPlan:
    """What happens in a worker around the work; see ``config.StrategyConfig``.

    ``executor_file`` is the source of an executor that was given by its path, else None.
    """

    name: str
    executor: str
    executor_file: str | None
    preload: tuple[str, ...]
    is_script: bool
    backend: str | None
    timeout_s: float | None
    fabric_cli: bool = False
    auto_checkpoint: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One run, decided.

    Attributes:
        run_id: The run's id and its folder's name.
        name: Name for people and for Slurm.
        run_dir: Absolute run folder.
        mode: ``slurm``, ``step``, ``allocation``, ``local`` or ``debug``.
        cwd: Working directory of the workers.
        python: Shell words that start Python on the nodes.
        has_plain_python: Those words name an interpreter, and are no command of the person's.
        container: Image in which the agents run, or None.
        wrapper: Path of the piece that starts the agents, or None where nothing stands around them.
        pieces: Texts of ``sbatch_templates`` by path, where there is a wrapper.
        template_vars: The person's values for it.
        num_nodes: Nodes. Count, at least 1.
        local_world_size: Workers a node. Count, at least 1.
        node_devices: On this machine, the devices of each node; elsewhere None, the cluster gives them.
        gpus_per_node: GPUs asked for, or None. Count.
        threads: On this machine, CPUs for each worker; elsewhere None. Count, at least 1.
        env: Variables of every worker.
        sbatch: Options of sbatch by long name; True for a flag.
        srun_args: Words added to srun.
        setup: Shell lines before the agents.
        teardown: Shell lines after them.
        is_private: Folders 0700 and files 0600.
        keeps_results: Workers leave their return values in the run folder.
        main_address: As given by hand, or None.
        main_port: As given by hand, or None.
        join_timeout_s: How long nodes wait for each other, in seconds.
        heartbeat_timeout_s: Silence after which an agent counts as lost, in seconds.
        max_restarts: How often all workers are started again after a failure. Count.
        start_method: ``forkserver``, ``spawn`` or ``fork``.
        has_bound_cpus: Each worker gets CPUs of its own.
        grace_s: How long workers that were told to stop have, in seconds.
        requeues: Whether the job comes back at its time limit too, never, or as Slurm does by itself (None).
        max_requeues: Requeues of ours in the life of the run. Count.
        requeue_exit_code: Exit code where a requeue is refused, or None.
        requeue_method: ``scontrol`` or ``resubmit``.
        kill_s: From SIGTERM to SIGKILL after a failure, in seconds.
        waits: Whoever submits a job follows it to its end.
        user: Who submitted.
        work: What runs.
        strategy: What happens around it.
        code: The copy that the workers run from, or None where they run the files where they lie.
    """

    run_id: str
    name: str
    run_dir: str
    mode: str
    cwd: str
    python: str
    has_plain_python: bool
    container: str | None
    wrapper: str | None
    pieces: dict[str, str]
    template_vars: dict[str, Any]
    num_nodes: int
    local_world_size: int
    node_devices: tuple[tuple[str, ...], ...] | None
    gpus_per_node: int | None
    threads: int | None
    env: dict[str, str]
    sbatch: dict[str, Any]
    srun_args: tuple[str, ...]
    setup: tuple[str, ...]
    teardown: tuple[str, ...]
    is_private: bool
    keeps_results: bool
    main_address: str | None
    main_port: int | None
    join_timeout_s: float
    heartbeat_timeout_s: float
    max_restarts: int
    start_method: str
    has_bound_cpus: bool
    grace_s: float
    requeues: bool | None
    max_requeues: int
    requeue_exit_code: int | None
    requeue_method: str
    kill_s: float
    waits: bool
    user: str
    work: WorkPlan
    strategy: StrategyPlan
    code: CodePlan | None = None

    @property
    def world_size(self) -> int:
        """Workers of the whole run."""
        return self.num_nodes * self.local_world_size

    @property
    def leaves_requeue(self) -> bool:
        """Say whether the batch script puts the job back into the queue where the agents cannot, after srun.

        They cannot where they are in a container, or behind whatever else starts Python, which may have no scontrol.
        """
        if self.mode != "slurm" or self.requeues is False:
            return False
        is_wrapped = self.container is not None or self.wrapper is not None or len(shlex.split(self.python)) > 1
        return self.requeue_method == "resubmit" or (is_wrapped and self.requeues is True)

    def to_json(self) -> str:
        """Return the plan as JSON text, which ``from_json`` reads back."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> LaunchPlan:
        """Read a plan back; equal to the one that was written."""
        data = json.loads(text)
        work, strategy, code = data.pop("work"), data.pop("strategy"), data.pop("code")
        node_devices = data.pop("node_devices")
        for key in ("srun_args", "setup", "teardown"):
            data[key] = tuple(data[key])
        return cls(
            **data,
            node_devices=None if node_devices is None else tuple(tuple(node) for node in node_devices),
            work=WorkPlan(**{**work, "folders": tuple(work["folders"]), "args": tuple(work["args"])}),
            strategy=StrategyPlan(**{**strategy, "preload": tuple(strategy["preload"])}),
            code=code and CodePlan(**code),
        )
