"""Works that save when they are told to stop, and go on from there."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import hpc_multinode


class State:
    """One rank's saved step, in the run folder."""

    def __init__(self, run_dir, global_rank):
        self.path = Path(run_dir) / f"saved-{global_rank}.json"

    def load(self):
        return json.loads(self.path.read_text()) if self.path.exists() else 0

    def steps(self, steps):
        """What is left: without a number, whatever comes until a stop, and a few more in the next attempt."""
        first = self.load()
        return range(first, steps or (first + 20 if first else 10**6))

    def save(self, following):
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(following))
        draft.replace(self.path)


def polls(context, steps=None, seconds=0.1):
    state = State(context.run_dir, context.global_rank)
    for step in state.steps(steps):
        time.sleep(seconds)
        print("step", step)
        if context.stop_requested:
            state.save(step + 1)
            context.progress(step)
            print("saved", step)
            return
    print("finished")


def polls_without_context(run_dir, global_rank, steps=None, seconds=0.1):
    state = State(run_dir, global_rank)
    for step in state.steps(steps):
        time.sleep(seconds)
        print("step", step)
        if hpc_multinode.stop_requested():
            state.save(step + 1)
            hpc_multinode.report_progress(step)
            print("saved", step)
            return
    print("finished")


def handles(name, run_dir, global_rank, steps=None, seconds=0.1):
    """Save in a handler of SIGUSR2 or SIGTERM, as code from elsewhere does."""
    state = State(run_dir, global_rank)
    told = []
    signal.signal(getattr(signal, name), lambda *_: told.append(True))
    print("ready")
    for step in state.steps(steps):
        time.sleep(seconds)
        print("step", step)
        if told:
            state.save(step + 1)
            print("saved", step)
            sys.exit(0)
    print("finished")


def saves_every_step(context, seconds=0.1):
    state = State(context.run_dir, context.global_rank)
    for step in state.steps(None) if context.attempt else range(10**6):
        time.sleep(seconds)
        print("step", step)
        state.save(step + 1)
        context.progress(step)


def never_saves(context, seconds=60):
    """Say once what was saved, and nothing new after that."""
    context.progress(7)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not context.stop_requested:
        time.sleep(0.05)
    print("stopped")


def deaf(seconds=60):
    print("ready")
    time.sleep(seconds)


def deaf_for(seconds):
    print("ready")
    time.sleep(seconds)
    print("finished")


def ignores_term():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR2, lambda *_: None)
    print("ready")
    while True:
        time.sleep(0.1)


def fails_when_told(context):
    print("ready")
    while not context.stop_requested:
        time.sleep(0.05)
    raise OSError("the disk is full")


def tells_pid(context):
    print(json.dumps({"pid": os.getpid(), "asked": context.stop_requested}))
    while not context.stop_requested:
        time.sleep(0.02)
    print(json.dumps({"told": True}))
