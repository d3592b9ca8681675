"""Forks one worker after the other, as the forkserver does, each with a Trainer: ``trainer_worker.py CASES.json``.

A case has a folder with a plan, and attempts: function, its arguments, and the step in which the run is to stop.
"""

import gc
import json
import os
import sys
from pathlib import Path

import pytorch_lightning  # noqa: F401 - loaded once for all
import trainers

from hpc_multinode import checkpointing, stopping
from hpc_multinode.plan import LaunchPlan


def become_worker(folder, attempt, *, is_on=True):
    descriptor, page = stopping.Page.make()
    stopping.take_page(descriptor)
    plan = LaunchPlan.from_json((folder / "plan.json").read_text())
    if is_on:
        checkpointing.enable(plan, attempt=attempt, global_rank=0)
    return page


def stop_in_step(page, stop_at):
    steps = iter(range(1, 10**6))
    trainers.note_step = lambda: page.request_stop() if next(steps) == stop_at else None


def die_in_validation(page, epoch):
    """Let the stop come just before a validation, which then outlasts the grace."""
    zero_grad, step = trainers.Model.on_validation_model_zero_grad, trainers.Model.validation_step

    def on_validation_model_zero_grad(self):
        zero_grad(self)
        if self.current_epoch == epoch:
            page.request_stop()

    def validation_step(self, batch, batch_idx):
        if page.is_stop_requested:
            os._exit(9)
        return step(self, batch, batch_idx)

    trainers.Model.on_validation_model_zero_grad = on_validation_model_zero_grad
    trainers.Model.validation_step = validation_step


def run(folder, number, attempt):
    descriptor = os.open(folder / f"{number}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout.reconfigure(line_buffering=True)
    stopping._MAX_STEPS_BETWEEN = 1
    page = None
    if not attempt.get("is_outside"):
        page = become_worker(folder, number, is_on=attempt.get("is_on", True))
    if "stop_at" in attempt:
        stop_in_step(page, attempt["stop_at"])
    if "dies_in_epoch" in attempt:
        die_in_validation(page, attempt["dies_in_epoch"])
    try:
        getattr(trainers, attempt["function"])(**attempt.get("kwargs", {}))
    finally:
        print(json.dumps({"saved": page.step if page else None}))


gc.collect()
gc.freeze()  # a child that ends does not copy all of it
for case in json.loads(Path(sys.argv[1]).read_text()):
    for number, attempt in enumerate(case["attempts"]):
        pid = os.fork()
        if pid == 0:
            run(Path(case["folder"]), number, attempt)
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        (Path(case["folder"]) / f"{number}.code").write_text(str(status))
