"""The schema of the configuration: every key, its unit and its default, once.

Hydra composes ``conf/`` against these classes (see ``compose``); ``plan`` turns the result into a frozen plan. The
classes are mutable because a frozen dataclass cannot be a Hydra schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# Marks a key that holds a text although it may hold a list of them: its letters are kept.
TEXT = {"is_text": True}


class Mode(Enum):
    """Where the agents run."""

    auto = "auto"
    slurm = "slurm"
    local = "local"
    debug = "debug"
    # We are in an srun step already: be the agent of this node now.
    allocation = "allocation"
    # One srun step on the allocation that this shell or script holds.
    step = "step"


class StartMethod(Enum):
    """How a worker process comes to be."""

    forkserver = "forkserver"
    spawn = "spawn"
    # Forked before anything is imported: slow, and only good for finding out what a preload does.
    fork = "fork"


class Rerun(Enum):
    """Which points of a sweep are started again."""

    # Those that have not succeeded and are neither waiting nor running.
    failed = "failed"


@dataclass
class WorkConfig:
    """What runs in every worker."""

    # "pkg.mod:Name" or "path/to/train.py:Name"; a file for strategy=script; null: the strategy's demo.
    target: str | None = None
    # Positional arguments of the work; for strategy=script its argv.
    args: list[Any] = field(default_factory=list)
    # Keyword arguments of the work.
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class ResourcesConfig:
    """What is asked of the cluster for each node."""

    # GPUs a node. Count; null: those that gres names, else none, and on this machine those seen are shared out.
    gpus_per_node: int | None = None
    # Type of GPU, as the site names it, such as a100; null: any.
    gpu_type: str | None = None
    # Workers a node. Count; null: gpus_per_node, else on this machine the GPUs seen, else 1.
    workers_per_node: int | None = None
    # CPUs a node. Count; null: the cluster's default.
    cpus_per_node: int | None = None
    # Memory a node, in GiB or with a unit (8G, 512M); 0: all of the node; null: the cluster's default.
    mem_gb: str | None = None
    # Memory for each GPU, in GiB or with a unit; in place of mem_gb.
    mem_per_gpu: str | None = None
    # The same for each CPU.
    mem_per_cpu: str | None = None
    # Time limit: minutes, or one of Slurm's forms (90:00 is minutes and seconds; 1:30:00, 2-12, 1-12:30:45), or
    # unlimited; null: the partition's. Not used on this machine.
    time: str | None = None
    # Partition, or a list of which Slurm takes the one that is free first; null: the cluster's default.
    partition: Any = field(default=None, metadata=TEXT)
    # Nodes that the job has to have: a text such as n[01-04], or a list.
    nodelist: Any = field(default=None, metadata=TEXT)
    # Nodes that it must not have, in the same form.
    exclude: Any = field(default=None, metadata=TEXT)
    # Account that pays; null: the person's default one.
    account: str | None = None
    # Quality of service.
    qos: str | None = None
    # Features that the nodes must have, such as a100|h100.
    constraint: str | None = None
    # Reservation to run in.
    reservation: str | None = None
    # Other resources of a node, such as lustre:1; where it names GPUs (gpu:a100:4), they count as gpus_per_node.
    gres: str | None = None
    # Nobody else on our nodes.
    exclusive: bool = False
    # Any other option of sbatch, by its long name without dashes in front.
    sbatch: dict[str, Any] = field(default_factory=dict)
    # Words added to the srun line.
    srun_args: list[str] = field(default_factory=list)


@dataclass
class ClusterConfig:
    """Where the agents run, and what stands around them."""

    # Where: what fits the place, a job, this machine, this process, this srun step, or a step of this allocation.
    mode: Mode = Mode.auto
    # Command that starts Python on the nodes, as the shell reads it; null: this interpreter.
    python: str | None = None
    # Shell commands before the agents start, one in each entry; one that fails ends the run.
    setup: list[str] = field(default_factory=list)
    # Shell lines after the agents have ended.
    teardown: list[str] = field(default_factory=list)
    # Pieces of sbatch_templates by name, one or a list: set-up (modules, conda, venv) and at most one wrapper of the
    # agents (plain, apptainer, pyxis).
    template: Any = field(default=None, metadata=TEXT)
    # Values for these pieces, such as modules: [gcc, cuda].
    vars: dict[str, Any] = field(default_factory=dict)
    # Image in which the agents and workers run, by the wrapper apptainer where template names no other; null: none.
    # python is then python3, the image's.
    container: str | None = None
    # How the site wants to be asked for GPUs: gpus-per-node or gres.
    gpu_option: str = "gpus-per-node"


@dataclass
class StrategyConfig:
    """What happens in a worker around the work."""

    # Its name in what is printed.
    name: str = "base"
    # Class that runs the work: "pkg.mod:Class" or "path/to/file.py:Class", a RunWorkExecutor.
    executor: str = "hpc_multinode.executors.base:RunWorkExecutor"
    # Modules that each node imports once, before its workers are forked.
    preload: list[str] = field(default_factory=list)
    # One worker a node, with all its devices.
    is_one_worker_a_node: bool = False
    # The work is a file that runs as __main__, not a callable.
    is_script: bool = False
    # Demo that runs where no work.target is given.
    demo: str | None = None
    # Process group backend; null: nccl where there are GPUs, else gloo.
    backend: str | None = None
    # Time limit of the process group's operations in seconds; null: torch's own.
    timeout_s: float | None = None
    # A Trainer saves a checkpoint when its run is to stop, and goes on from it in the next attempt.
    auto_checkpoint: bool = True
    # For a Fabric whose code never calls launch(): it launches itself, as under "fabric run".
    fabric_cli: bool = False


@dataclass
class LaunchConfig:
    """How agents find each other and start workers."""

    # Address of global rank 0's node for the workers; null: the first node's own name. {host} stands for that name.
    main_address: str | None = None
    # Port of the workers' store, 1 to 65535; null: one just found free on the first node.
    main_port: int | None = None
    # How long nodes wait for each other, in seconds.
    join_timeout_s: float = 300.0
    # Silence after which a node counts as lost, in seconds.
    heartbeat_timeout_s: float = 60.0
    # How a worker comes to be: from a process that has imported the framework, as an interpreter of its own, or
    # forked before anything is imported (for debugging).
    start_method: StartMethod = StartMethod.forkserver
    # Each worker gets CPUs of its own, near its GPU, where the job's CPUs are its own.
    cpu_bind: bool = False
    # More modules to import once a node, before the workers are forked.
    preload: list[str] = field(default_factory=list)


@dataclass
class StopConfig:
    """How workers are ended."""

    # How long workers that were told to stop have, in seconds: SIGTERM comes after half of it, SIGKILL at its end.
    # null: 60, and less under a short time limit. Cut to what Slurm leaves.
    grace_s: float | None = None
    # How long before the time limit workers are told, in seconds; null: 180, and less under a short time limit.
    warn_s: float | None = None
    # From SIGTERM to SIGKILL after a failure, in seconds.
    kill_s: float = 5.0


class RequeueMethod(Enum):
    """How a job comes back."""

    scontrol = "scontrol"
    resubmit = "resubmit"


@dataclass
class RequeueConfig:
    """Whether a job that is preempted, or at its time limit, comes back and goes on."""

    # null: after a preemption or a lost node, as Slurm does; true: at the time limit too; false: never.
    enabled: bool | None = None
    # Requeues of ours in the life of a run. Count.
    max: int = 10
    # How it is put back: scontrol requeues it; resubmit hands in a new job that goes on with the run, for sites that
    # forbid scontrol requeue.
    method: RequeueMethod = RequeueMethod.scontrol
    # Exit code of a run that was to be requeued where Slurm refuses, for sites that watch for one, 1 to 255; null: 143.
    exit_code: int | None = None


@dataclass
class RestartConfig:
    """What happens after a worker has failed."""

    # How often all workers of all nodes are started again, in the same job. Count.
    max: int = 0


@dataclass
class ArrayConfig:
    """How the points of a sweep (-m) go to Slurm."""

    # How many points run at a time, in each job array. Count, at least 1; null: as many as Slurm lets run.
    parallel: int | None = None


@dataclass
class Config:
    """The whole configuration."""

    # Nodes of the run. Count, at least 1; null: those of the allocation we are in, else 1.
    nodes: int | None = None
    # Name of the job and first part of the run's id; null: the work's name.
    name: str | None = None
    # Folder that holds the run folders; null: $HPC_MULTINODE_RUN_ROOT, else ./runs.
    run_root: str | None = None
    # The run's id and the name of its folder; null: made from name, date, time and four random digits.
    run_id: str | None = None
    # Follow a submitted job's logs and end with its exit code; runs on this machine are followed anyway.
    wait: bool = False
    # Folders 0700 and files 0600; false: 0750 and 0640.
    private: bool = True
    # Copy the code into the run folder and run it from there: what git tracks and what is new and not ignored in the
    # repository of the work, as it is on disk; without git the work's folder.
    snapshot: bool = False
    # Largest size of that copy, in MB.
    snapshot_max_mb: float = 500.0
    # Environment variables of every worker.
    env: dict[str, Any] = field(default_factory=dict)
    work: WorkConfig = field(default_factory=WorkConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    stop: StopConfig = field(default_factory=StopConfig)
    restart: RestartConfig = field(default_factory=RestartConfig)
    requeue: RequeueConfig = field(default_factory=RequeueConfig)
    array: ArrayConfig = field(default_factory=ArrayConfig)
    # What the job waits for: RUN (to succeed), afterany:RUN (to end), afternotok:RUN or aftercorr:RUN, where RUN is a
    # job id, a run folder, a run's id or its beginning, a name; or chain: all earlier jobs of this name. null: nothing.
    after: str | None = None
    # With -m: failed starts only the points that have not succeeded in an earlier sweep of this run_root; null: all.
    rerun: Rerun | None = None
