#!/bin/bash

# Parameters
#SBATCH --dependency=afterok:12
#SBATCH --job-name=work
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output='/data/it'"'"'s 50%%a/work-20261201-120000-abcd/submitit/%j_0_log.out'

# setup
requeue_request='/data/it'"'"'s 50%a/work-20261201-120000-abcd/requeue-'"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
[ ! -s "$requeue_request.out" ] || { echo "hpc_multinode: this run goes on in another job" >&2; exit 0; }
rm -f "$requeue_request" "$requeue_request.sh" "$requeue_request.out" "$requeue_request.err"
requeue_variables=$(export -p)

# command
srun --unbuffered --output=submitit/%j_%t_log.out --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 '--chdir=/data/it'"'"'s 50%a/work-20261201-120000-abcd' --export=ALL /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent /opt/python -m hpc_multinode.node '/data/it'"'"'s 50%a/work-20261201-120000-abcd'

# teardown
code=$?
(
:
echo bye
)
if [ -e "$requeue_request" ]; then
umask 077
requeue_job() {
sed '/^#SBATCH --dependency=/d' "$0" > "$requeue_request.sh" || return
task=$SLURM_ARRAY_TASK_ID
(
cd "$SLURM_SUBMIT_DIR"
unset $(compgen -e); eval "$requeue_variables"
for name in ${!SLURM@}; do case $name in SLURM_CLUSTERS|SLURM_CONF|SLURM_CONF_SERVER|SLURM_JWT|SLURM_TIME_FORMAT) ;; *) unset "$name" ;; esac; done
exec sbatch ${task:+"--array=$task"} "$requeue_request.sh" > "$requeue_request.out"
) && return
sleep 5
squeue --noheader --me --states=all --format='%F %o' | while read -r id script; do
[ "$script" != "$requeue_request.sh" ] || echo "$id"
done > "$requeue_request.out"
[ -s "$requeue_request.out" ]
}
requeue_job 2> "$requeue_request.err" || { srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=60 '--chdir=/data/it'"'"'s 50%a/work-20261201-120000-abcd' --export=ALL /bin/sh -c 'trap "" TERM USR2; exec "$@"' agent /opt/python -m hpc_multinode.node '/data/it'"'"'s 50%a/work-20261201-120000-abcd' --refused; code=$?; }
fi
exit $code
