"""Variables of an outer job or launcher that must not reach our workers and jobs. Pure."""

from __future__ import annotations

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
_KEPT_NAMES = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_TIME_FORMAT"})


def is_leaking(name: str) -> bool:
    """Tell whether a variable of an outer job or launcher must not reach a worker or a job of ours.

    ``SLURM_*`` leaks as a whole, but for where to find the cluster; whoever wants a worker to know its job hands
    those names on by purpose.
    """
    if name in _KEPT_NAMES:
        return False
    return name in LEAKING_NAMES or name.startswith(LEAKING_PREFIXES)
