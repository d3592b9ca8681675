#!/bin/bash

# Parameters
#SBATCH --clusters=a,b
#SBATCH --comment='50% of $HOME & (it'"'"'s) "x" | `y`'
#SBATCH --job-name=work
#SBATCH --mail-type=END,FAIL
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/home/ada/runs/work-20261201-120000-abcd/submitit/%j_0_log.out
#SBATCH --requeue
#SBATCH --switches=1@10:00

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL --mpi=none /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent /opt/python -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd
