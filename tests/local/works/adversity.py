"""Works that break what is around them."""

import os
import shutil


def remove_run_folder(run_dir):
    shutil.rmtree(run_dir, ignore_errors=True)


def snowman():
    print("snow \u2603")


def failing_child():
    pid = os.fork()
    if pid == 0:
        raise RuntimeError("in the child")
    os.waitpid(pid, 0)
    pid = os.fork()
    if pid == 0:
        raise SystemExit(3)
    os.waitpid(pid, 0)


class Exits(Exception):
    def __str__(self):
        raise SystemExit(0)


def exits_in_str(global_rank):
    raise Exits


def close_all_and_fail():
    os.closerange(3, 4096)
    raise RuntimeError("after closing")
