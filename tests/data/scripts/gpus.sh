#!/bin/bash

# Parameters
#SBATCH --account=0123
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
#SBATCH --gpus-per-node=a100:8
#SBATCH --job-name=big
#SBATCH --mem=0
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/home/ada/runs/work-20261201-120000-abcd/submitit/%j_0_log.out
#SBATCH --partition=a,b
#SBATCH --qos=long
#SBATCH --signal=USR2@180
#SBATCH --time=2-12:00:00

# command
srun --unbuffered --output=submitit/%j_%t_log.out --cpus-per-task=64 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent /opt/python -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd
