#!/bin/bash

# Parameters
#SBATCH --job-name='lr=0.1 (a;b) $HOME ü'
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output='/data/it'"'"'s 50%%a "=0" (x)|&ü/work-20261201-120000-abcd/submitit/%j_0_log.out'

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 '--chdir=/data/it'"'"'s 50%a "=0" (x)|&ü/work-20261201-120000-abcd' --export=ALL /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent /opt/python -m hpc_multinode.node '/data/it'"'"'s 50%a "=0" (x)|&ü/work-20261201-120000-abcd'
