"""Submits the first all-reduce with submitit, a task for each worker: ``by_submitit.py FOLDER NODES WORKERS``."""

from __future__ import annotations

import sys

import submitit

from bench.works.reduce import reduce_with_submitit

if __name__ == "__main__":
    folder, nodes, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    executor = submitit.AutoExecutor(folder=f"{folder}/submitit", cluster="slurm")
    executor.update_parameters(
        nodes=nodes,
        tasks_per_node=workers,
        cpus_per_task=1,
        timeout_min=5,
        slurm_setup=[f"date +%s.%N > {folder}/began"],
        slurm_srun_args=["--cpu-bind=none"],
    )
    print(executor.submit(reduce_with_submitit).job_id)
