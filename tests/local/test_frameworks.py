"""What frameworks find in a worker that they did not start themselves, and what the system shows of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.conftest import WORKS

if TYPE_CHECKING:
    from tests.conftest import Ended, Launcher

LITE = ("strategy=lite", "nodes=2", "resources.workers_per_node=1")
TRAINER = ("strategy=lightning", "nodes=2", "resources.workers_per_node=1")


def launch(launcher: Launcher, work: str, *words: str) -> Ended:
    """Run one of the works with the frameworks that it needs."""
    return launcher.local(f"work.target={WORKS / work}", *words)


def test_counts_of_the_run_win_in_a_fabric(launcher: Launcher) -> None:
    """A Fabric built for one process sees the run's world, and the log says so once."""
    ended = launch(launcher, "frameworks.py:fabric_with_other_counts", *LITE)
    assert ended.code == 0, ended.out
    assert {told["world"] for told in ended.ranks().values()} == {2}
    assert ended.out.count("asks for num_nodes=1; the run has num_nodes=2, and that counts") == 1


def test_fabric_that_never_launches_is_launched(launcher: Launcher) -> None:
    """With strategy.fabric_cli a Fabric is ready as soon as it is built."""
    ended = launch(launcher, "frameworks.py:fabric_that_never_launches", *LITE, "strategy.fabric_cli=true")
    assert ended.code == 0, ended.out
    assert {told["sum"] for told in ended.ranks().values()} == {2.0}


def test_fabric_that_never_launches_is_told_what_to_do(launcher: Launcher) -> None:
    """Without it, Fabric's own error comes with the key that helps."""
    ended = launch(launcher, "frameworks.py:fabric_that_never_launches", *LITE)
    assert ended.code == 1
    assert "strategy.fabric_cli=true" in ended.out


def test_trainer_with_other_counts_fails_in_lightnings_words(launcher: Launcher) -> None:
    """A Trainer that asks for another world says so itself, and the next step is to leave the numbers out."""
    ended = launch(launcher, "frameworks.py:trainer_with_other_counts", *TRAINER)
    assert ended.code == 1
    assert "does not match the world size (2)" in ended.out
    assert "next: leave num_nodes and devices out" in ended.out


def test_trainer_that_spawns_ends_and_is_told_to_use_ddp(launcher: Launcher) -> None:
    """A strategy that starts processes of its own, beside those that are there, ends in bounded time."""
    words = ("strategy=lightning", "nodes=1", "resources.workers_per_node=2")
    ended = launch(launcher, "frameworks.py:trainer_that_spawns", *words)
    assert ended.code != 0
    assert 'next: the workers are there already: use strategy="ddp"' in ended.out


@pytest.mark.parametrize("strategy", ["pytorch_spawn", "script"])
def test_data_loaders_of_every_start_method_work(launcher: Launcher, strategy: str) -> None:
    """No start method is set in a worker, and each of them runs data loaders; one can be set by hand."""
    work = "frameworks.py" if strategy == "script" else "frameworks.py:loaders"
    ended = launch(launcher, work, f"strategy={strategy}", "nodes=1")
    assert ended.code == 0, ended.out
    expected = {"at_start": None, "fork": 28, "spawn": 28, "forkserver": 28, "default": 28}
    assert list(ended.ranks().values()) == [expected]


@pytest.mark.parametrize(("variable", "is_alone"), [("1", True), ("4", False)])
def test_forkserver_has_no_threads_but_those_of_a_blas_pool(
    launcher: Launcher, variable: str, *, is_alone: bool
) -> None:
    """A process that forks has one thread; numpy's BLAS may add its pool, which handles forks itself."""
    words = ("strategy=pytorch_spawn", "nodes=1", "launch.preload=[numpy]", f"env.OMP_NUM_THREADS={variable}")
    (told,) = launch(launcher, "frameworks.py:parent_threads", *words).ranks().values()
    assert told["numpy"]
    assert told["torch"]
    assert told["threads"] == 1 if is_alone else told["threads"] <= int(variable) + 1


def test_top_shows_run_and_rank(launcher: Launcher) -> None:
    """Each worker bears its run and rank as its name, and its variables stay readable."""
    ended = launcher.plain("frameworks.py:process", "name=mine")
    assert {rank: told["command"] for rank, told in ended.ranks().items()} == {n: f"mine rank {n}/4" for n in range(4)}
    assert all(told["environ_is_whole"] and not told["has_variable"] for told in ended.ranks().values())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be shared out")
def test_cpus_are_shared_out_where_that_is_asked_for(launcher: Launcher) -> None:
    """With launch.cpu_bind no two workers run on one CPU; without it all may use all."""
    all_cpus = sorted(os.sched_getaffinity(0))
    words = ("nodes=1", "resources.workers_per_node=2")
    bound = launcher.plain("frameworks.py:process", *words, "launch.cpu_bind=true").ranks()
    assert not set(bound[0]["cpus"]) & set(bound[1]["cpus"])
    free = launcher.plain("frameworks.py:process", *words).ranks()
    assert all(told["cpus"] == all_cpus for told in free.values())


def test_flood_of_all_workers_arrives_whole(launcher: Launcher) -> None:
    """Every byte of what workers write at full speed is in their logs."""
    ended = launcher.plain("frameworks.py:flood", "work.kwargs.megabytes=8")
    assert ended.code == 0
    logs = sorted((ended.run_dir / "attempt-0").glob("rank*.log"))
    assert [log.stat().st_size for log in logs] == [8 << 20] * 4
