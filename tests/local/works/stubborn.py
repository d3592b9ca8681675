"""A work that no SIGTERM ends."""

import signal
import time


def run():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("stubborn")
    while True:
        time.sleep(1)
