"""Works that end in every way."""

import os
import signal
import subprocess
import sys
import threading
import time

LONG = 120


def raise_on_1(global_rank):
    if global_rank == 1:
        raise ValueError("no such luck")
    time.sleep(LONG)


def raise_everywhere():
    raise KeyError("everywhere")


def fail_at_first(attempt, global_rank):
    if attempt < 2 and global_rank == 1:
        raise ValueError(f"not yet: {attempt}")
    time.sleep(0.5)


def leave_children_at_first(mark, attempt):
    if attempt == 0:
        subprocess.Popen(["setsid", "sleep", f"{LONG}.{mark}"])
        time.sleep(0.5)
        raise ValueError("children left")
    left = subprocess.run(["pgrep", "-f", f"sleep {LONG}[.]{mark}"], capture_output=True, text=True).stdout.split()
    print("left:", len(left))


def fill_memory(global_rank):
    held = []
    while global_rank == 1:
        held.append(bytearray(20_000_000))
    time.sleep(LONG)


def fill_memory_below(global_rank):
    if global_rank == 1:
        print("child", subprocess.run([sys.executable, "-c", "[0] * (1 << 30)"]).returncode, flush=True)


def exit_with(code, global_rank):
    if global_rank == 1:
        sys.exit(code)
    time.sleep(LONG)


def os_exit_with(code, global_rank):
    if global_rank == 1:
        os._exit(code)
    time.sleep(LONG)


def exit_early(global_rank):
    if global_rank == 1:
        sys.exit(0)
    time.sleep(1.0)
    print("late but well")


def os_exit_early(global_rank):
    if global_rank == 1:
        os._exit(0)
    time.sleep(0.5)


def signal_self(name, global_rank):
    if global_rank == 1:
        os.kill(os.getpid(), getattr(signal, name))
    time.sleep(LONG)


def interrupt(global_rank):
    if global_rank == 1:
        raise KeyboardInterrupt
    time.sleep(LONG)


def trap_term(global_rank):
    signal.signal(signal.SIGTERM, lambda *_: print("not now"))
    if global_rank == 1:
        time.sleep(0.3)
        raise RuntimeError("trapped")
    while True:
        time.sleep(1)


def save_on_term():
    def save(*_):
        time.sleep(0.5)
        print("saved")
        sys.exit(0)

    signal.signal(signal.SIGTERM, save)
    print("ready")
    time.sleep(LONG)


def leave_children(mark, global_rank):
    subprocess.Popen(["sleep", f"{LONG}.{mark}"])
    subprocess.Popen(["setsid", "sleep", f"{LONG}.{mark}"])
    print("started")
    if global_rank == 1:
        time.sleep(0.5)
        raise ValueError("children left")
    time.sleep(LONG)


def leave_thread(global_rank):
    threading.Thread(target=time.sleep, args=(LONG,)).start()
    if global_rank == 1:
        raise ValueError("thread left")


def huge_message(global_rank):
    if global_rank == 1:
        raise ValueError("x" * 20_000_000)
    time.sleep(LONG)


class Unbuildable(Exception):
    def __init__(self, one, two):
        super().__init__(one)

    def __str__(self):
        raise RuntimeError("no text")


def unbuildable(global_rank):
    if global_rank == 1:
        raise Unbuildable(1, 2)
    time.sleep(LONG)


def sleep(mark=""):
    print("sleeping", mark)
    time.sleep(LONG)


def print_then_kill(global_rank):
    print("last words")
    subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
    if global_rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(LONG)


def odd_output():
    sys.stdout.buffer.write(b"\xff\xfe not utf-8\n")
    print("x" * 3_000_000)
    print("half a line", end="")


def logs_by_level():
    import logging

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.info("to be seen")
    logging.debug("not to be seen")
