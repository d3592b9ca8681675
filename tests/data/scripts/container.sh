#!/bin/bash

# Parameters
#SBATCH --gpus-per-node=1
#SBATCH --job-name=work
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/home/ada/runs/work-20261201-120000-abcd/submitit/%j_0_log.out

# setup
set -o pipefail
{ module purge
} || { echo 'hpc_multinode: this set-up line failed: module purge' >&2; exit 1; }
{ module load cuda/12
} || { echo 'hpc_multinode: this set-up line failed: module load cuda/12' >&2; exit 1; }
set +o pipefail

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL apptainer exec --nv --bind /home/ada --bind /package --pwd /home/ada/runs/work-20261201-120000-abcd '/i/my image.sif' env PYTHONPATH=/home/ada/runs/work-20261201-120000-abcd/agent /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent python3 -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd
