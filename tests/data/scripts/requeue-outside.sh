#!/bin/bash

# Parameters
#SBATCH --job-name=work
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/home/ada/runs/work-20261201-120000-abcd/submitit/%j_0_log.out
#SBATCH --requeue

# setup
requeue_request=/home/ada/runs/work-20261201-120000-abcd/requeue-"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
[ ! -s "$requeue_request.out" ] || { echo "hpc_multinode: this run goes on in another job" >&2; exit 0; }
rm -f "$requeue_request" "$requeue_request.sh" "$requeue_request.out" "$requeue_request.err"
requeue_variables=$(export -p)

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL apptainer exec --bind /home/ada --bind /package --pwd /home/ada/runs/work-20261201-120000-abcd '/i/my image.sif' env PYTHONPATH=/home/ada/runs/work-20261201-120000-abcd/agent /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent python3 -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd

# teardown
code=$?
if [ -e "$requeue_request" ]; then
umask 077
requeue_job() {
rm -f "$requeue_request"
scontrol requeue "${requeue_request##*/requeue-}"
}
requeue_job 2> "$requeue_request.err" || { srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 --chdir=/home/ada/runs/work-20261201-120000-abcd --export=ALL apptainer exec --bind /home/ada --bind /package --pwd /home/ada/runs/work-20261201-120000-abcd '/i/my image.sif' env PYTHONPATH=/home/ada/runs/work-20261201-120000-abcd/agent /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent python3 -m hpc_multinode.node /home/ada/runs/work-20261201-120000-abcd --refused; code=$?; }
fi
exit $code
