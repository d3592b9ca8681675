"""A process that is a worker to Lightning: ``trainer_worker.py PLAN ATTEMPT STOP_AT FUNCTION [JSON]``."""

import json
import os
import sys
from pathlib import Path

import trainers

from hpc_multinode import checkpointing, stopping
from hpc_multinode.plan import LaunchPlan

file, attempt, stop_at, function, *rest = sys.argv[1:]
stopping._MAX_STEPS_BETWEEN = 1
descriptor, page = stopping.Page.make()
stopping.become_worker(descriptor)
checkpointing.enable(LaunchPlan.from_json(Path(file).read_text()), attempt=int(attempt), global_rank=0)

counted = 0
step = trainers.Model.training_step


def stop_in_time(self, batch, batch_idx):
    global counted
    counted += 1
    if counted == int(stop_at):
        page.request_stop()
    return step(self, batch, batch_idx)


trainers.Model.training_step = stop_in_time
if "validates" in rest:
    rest.remove("validates")
    trainers.Model.on_validation_start = lambda self: (print("validates", self.global_step), page.request_stop())
    trainers.Model.validation_step = lambda self, batch, batch_idx: os._exit(9)
getattr(trainers, function)(**json.loads(rest[0] if rest else "{}"))
