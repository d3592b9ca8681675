"""Ranks that say something every half second, with the time: what ``logs -f`` has to keep up with."""

from __future__ import annotations

import os
import time

SECONDS, EVERY_S = 4.0, 0.5

if __name__ == "__main__":
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        # Each line differs, so that none is shown for many ranks at once.
        print(f"rank {os.environ['RANK']} at {time.time():.3f}", flush=True)
        time.sleep(EVERY_S)
