"""``-m`` on this machine: one run after the other, each in a folder of its own."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG, Ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Launcher

WORK = """
import sys, time

def run(word, global_rank, code=0, seconds=0):
    print("begins", word, global_rank, flush=True)
    time.sleep(seconds)
    if code:
        sys.exit(code)

if __name__ == "__main__":
    print(sys.argv[1:])
"""
WORDS = [f"--config-dir={PLAIN_CONFIG}", "cluster=local", "strategy=plain", "work.target=train.py:run", "run_id=s"]


@pytest.fixture
def sweep(launcher: Launcher) -> Callable[..., Ended]:
    """Give a function that runs a sweep of a work."""
    (launcher.cwd / "train.py").write_text(WORK)
    return lambda *words: launcher.run("-m", *WORDS, *words)


def test_points_run_one_after_the_other(sweep: Callable[..., Ended]) -> None:
    """In their order, each headed by its number and words, each with its report."""
    ended = sweep("work.kwargs.word=a,b", "nodes=1,2")
    assert ended.code == 0, ended.err
    points = re.split(r"^(point .*)$", ended.out, flags=re.MULTILINE)[1:]
    told = {
        heading: sorted(re.findall(r"^\[\d\] .*$", text, re.MULTILINE))
        for heading, text in zip(points[::2], points[1::2], strict=True)
    }
    assert told == {
        "point 0 (1 of 4): work.kwargs.word=a nodes=1": ["[0] begins a 0"],
        "point 1 (2 of 4): work.kwargs.word=a nodes=2": ["[0] begins a 0", "[1] begins a 1"],
        "point 2 (3 of 4): work.kwargs.word=b nodes=1": ["[0] begins b 0"],
        "point 3 (4 of 4): work.kwargs.word=b nodes=2": ["[0] begins b 0", "[1] begins b 1"],
    }
    assert ended.out.endswith("\nsweep: 4 of 4 points succeeded\n")
    reports = [json.loads((ended.run_dir / f"{number}/report.json").read_text()) for number in range(4)]
    assert [(report["run"], report["num_nodes"], report["state"]) for report in reports] == [
        ("s-0", 1, "COMPLETED"), ("s-1", 2, "COMPLETED"), ("s-2", 1, "COMPLETED"), ("s-3", 2, "COMPLETED"),
    ]  # fmt: skip


def test_a_sweep_ends_with_the_worst_code(sweep: Callable[..., Ended]) -> None:
    """A point that fails stops no other, and the end names it."""
    ended = sweep("work.kwargs.word=a", "work.kwargs.code=0,7,3,0")
    assert ended.code == 7
    assert ended.out.splitlines()[-3:] == [
        "sweep: 2 of 4 points succeeded",
        "  point 1 ended with exit code 7: work.kwargs.code=7",
        "  point 2 ended with exit code 3: work.kwargs.code=3",
    ]


def test_ctrl_c_ends_the_sweep(launcher: Launcher, sweep: Callable[..., Ended]) -> None:
    """The running point is stopped as any run, and no other begins."""
    assert sweep
    started = launcher.start("-m", *WORDS, "work.kwargs.word=a,b,c", "work.kwargs.seconds=60")
    log = launcher.cwd / "runs/s/0/attempt-0/rank0.log"
    wait_until(lambda: log.exists() and "begins" in log.read_text(), what="the first point runs")
    started.send_signal(signal.SIGINT)
    ended = launcher.finish(started)
    assert ended.code == 143, ended.out + ended.err
    assert ended.out.splitlines()[-3:] == [
        "sweep: 0 of 3 points succeeded",
        "  point 0 ended with exit code 143: work.kwargs.word=a",
        "  points not started: 1-2",
    ]
    assert not (ended.run_dir / "1").exists()


def test_rerun_starts_what_has_not_succeeded(launcher: Launcher, sweep: Callable[..., Ended]) -> None:
    """After the work is mended, the same words with ``rerun=failed`` run the failed points, with their numbers."""
    assert sweep("work.kwargs.word=a,b,c", "work.kwargs.seconds=0", "work.kwargs.code=0").code == 0
    launcher.cwd.joinpath("train.py").write_text(WORK.replace("if code:", "if word == 'e':"))
    (launcher.cwd / "runs/s").rename(launcher.cwd / "runs/first")
    words = ["work.kwargs.word=a,e,c", "work.kwargs.seconds=0", "work.kwargs.code=0", "rerun=failed"]
    ended = launcher.run("-m", *WORDS[:-1], "run_id=second", *words)
    assert "left out: points 0,2 have succeeded\n" in ended.out
    assert "\npoint 1 (1 of 1): work.kwargs.word=e\n" in ended.out
    assert [path.name for path in (launcher.cwd / "runs/second").iterdir() if path.is_dir()] == ["1"]


def test_a_scripts_own_words_are_in_every_point(launcher: Launcher, sweep: Callable[..., Ended]) -> None:
    """What stands behind -- is untouched, and comes behind what is swept."""
    assert sweep
    words = ["strategy=script", "work.target=train.py", "work.args=[a],[b]"]
    ended = launcher.run("-m", "cluster=local", *words, "--", "--lr", "1,2")
    assert re.findall(r"^\[0\] (.*)$", ended.out, re.MULTILINE) == ["['a', '--lr', '1,2']", "['b', '--lr', '1,2']"]
