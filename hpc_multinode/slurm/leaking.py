"""Variables of an outer job or launcher that must not reach our workers and jobs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Variables that describe an outer job, or a rank in an outer launcher. A worker or a new job that inherits them
# believes in ranks that are not its own.
LEAKING_PREFIXES = (
    "SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SUBMITIT_",
    "PMI_", "PMI2_", "PMIX_", "PRTE_", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_", "HYDI_",
    "TORCHELASTIC_", "PET_RDZV_",
)  # fmt: skip
LEAKING_NAMES = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GLOBAL_RANK", "NODE_RANK",
    "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
    "MASTER_ADDR", "MASTER_PORT", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "OMPI_UNIVERSE_SIZE",
    "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT",
    # Sizes that `fabric run` and Lightning's launchers hand down. PL_TRAINER_MAX_EPOCHS and its like are wishes of
    # the person and stay.
    "LT_CLI_USED", "LT_NUM_NODES", "LT_DEVICES", "PL_TRAINER_NUM_NODES", "PL_TRAINER_DEVICES",
})  # fmt: skip
# Where Slurm's own commands find the cluster and how they log in there: true inside and outside of any job.
_SBATCH = "SBATCH_"
# Options whose variable of sbatch has another name than theirs.
_OPTIONS = {"timelimit": "time", "mem-per-node": "mem", "jobid": "job-name", "req-switch": "switches"}
KEPT_NAMES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS"})


def is_leaking(name: str) -> bool:
    """Tell whether a variable of an outer job or launcher must not reach a worker or a job of ours.

    ``SLURM_*`` leaks as a whole, but for where to find the cluster; whoever wants a worker to know its job hands
    those names on by purpose.
    """
    if name in KEPT_NAMES:
        return False
    return name in LEAKING_NAMES or name.startswith(LEAKING_PREFIXES)


def make_submission_env(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for sbatch: those of the person, without an outer job's or launcher's."""
    return {name: value for name, value in environ.items() if not is_leaking(name)}


def render_left_out(environ: Mapping[str, str], options: Mapping[str, Any]) -> list[str]:
    """Say which wishes in ``SBATCH_*`` do not count, one line each.

    They would win over what the script says, and nobody who reads it would know.

    Args:
        environ: Normally ``os.environ``.
        options: Options of the script by long name.

    Source:
        sbatch(1), INPUT ENVIRONMENT VARIABLES.
    """
    lines = []
    for name, value in sorted(environ.items()):
        if not name.startswith(_SBATCH):
            continue
        word = name.removeprefix(_SBATCH).lower().replace("_", "-")
        option = _OPTIONS.get(word, word)
        if option not in options:
            instead = f"resources.{option} or resources.sbatch.{option} asks for it"
            lines.append(f"{name}={value} is left out, for a job is what its script says; {instead}")
        elif str(options[option]) != value:
            lines.append(f"{name}={value} is left out: the run asks for --{option}={options[option]}")
    return lines
