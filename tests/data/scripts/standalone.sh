#!/bin/bash
# Written by: python -m hpc_multinode render --standalone
# Submit it with sbatch as often as you like: each job makes a run folder of its own.
#SBATCH --signal=USR2@180
#SBATCH --job-name='a b'
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:30:00

cd /home/ada && exec /opt/python -m hpc_multinode nodes=2 'name=a b' 'env.X=$y' -- 'it'"'"'s'
