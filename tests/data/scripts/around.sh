#!/bin/bash

# Parameters
#SBATCH --job-name=work
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/home/ada/runs/work-20261201-120000-abcd/submitit/%j_0_log.out

# setup
set -o pipefail
{ module load cuda
} || { echo 'hpc_multinode: this set-up line failed: module load cuda' >&2; exit 1; }
{ export A='b c' # so
} || { echo 'hpc_multinode: this set-up line failed: export A='"'"'b c'"'"' # so' >&2; exit 1; }
set +o pipefail

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL conda run -n x python -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd

# teardown
code=$?
(
:
echo bye
exit 5
)
exit $code
