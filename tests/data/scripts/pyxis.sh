#!/bin/bash

# Parameters
#SBATCH --job-name=work
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/home/ada/runs/work-20261201-120000-abcd/submitit/%j_0_log.out

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL --container-image='nvcr.io#nvidia/pytorch:24.10-py3' --container-mounts=/home/ada:/home/ada,/package:/package --container-workdir=/home/ada/runs/work-20261201-120000-abcd --no-container-mount-home env PYTHONPATH=/home/ada/runs/work-20261201-120000-abcd/agent /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent python3 -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd
