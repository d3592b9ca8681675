"""Every strategy on two nodes of this machine, through the command line."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import EXAMPLES, TESTS, WORKS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Launcher

RANKS = f"work.target={WORKS}/ranks.py:tell"


@pytest.mark.parametrize(("strategy", "workers"), [("base", 1), ("pytorch_spawn", 2), ("lite", 2), ("lightning", 2)])
def test_every_rank_knows_its_place(launcher: Launcher, strategy: str, workers: int) -> None:
    """Ranks, sizes and main address are right on every worker, by argument and by variable."""
    ended = launcher.local(f"strategy={strategy}", RANKS, "nodes=2", *_sizes(workers))
    assert ended.code == 0, ended.err
    told = ended.ranks()
    assert sorted(told) == list(range(2 * workers))
    ports = {place["main_port"] for place in told.values()}
    assert len(ports) == 1
    for rank, place in told.items():
        expected = {
            "world_size": 2 * workers, "node_rank": rank // workers, "global_rank": rank,
            "local_rank": rank % workers, "local_world_size": workers, "num_nodes": 2,
            "main_address": "127.0.0.1", "attempt": 0, "run_dir": str(ended.run_dir),
        }  # fmt: skip
        assert {name: place[name] for name in expected} == expected
        assert place["env"] == {
            "RANK": str(rank), "WORLD_SIZE": str(2 * workers), "LOCAL_RANK": str(rank % workers),
            "LOCAL_WORLD_SIZE": str(workers), "NODE_RANK": str(rank // workers), "GROUP_RANK": str(rank // workers),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports.copy().pop()),
        }  # fmt: skip
    assert len({place["pid"] for place in told.values()}) == 2 * workers


def test_script_runs_as_main_with_its_own_command_line(launcher: Launcher) -> None:
    """A script sees itself as ``python script.py --lr 0.1 'two words'`` would show it, and can pickle its classes."""
    ended = launcher.local(
        "strategy=script", f"work.target={WORKS}/script.py", "nodes=2", "resources.workers_per_node=2",
        "--", "--lr", "0.1", "two words", "a=b",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    for rank, told in ended.ranks().items():
        assert told == {
            "argv": ["--lr", "0.1", "two words", "a=b"], "rank": rank, "x": 3, "name": "__main__",
            "file": "script.py", "path0": str(WORKS), "argv0": str(WORKS / "script.py"),
        }  # fmt: skip


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_process_group_is_ready_before_the_work_is_called(launcher: Launcher, start_method: str) -> None:
    """With pytorch_spawn the work finds the default process group, gloo where there is no GPU."""
    ended = launcher.local(
        "strategy=pytorch_spawn", f"work.target={WORKS}/training.py:group", "nodes=2",
        "resources.workers_per_node=2", f"launch.start_method={start_method}",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.ranks() == {rank: {"rank": rank, "size": 4, "backend": "gloo"} for rank in range(4)}


@pytest.mark.parametrize(
    ("strategy", "work"),
    [("pytorch_spawn", "ddp"), ("lite", "fabric"), ("lite", "lite"), ("lightning", "trainer")],
)
def test_ranks_agree_after_each_step_and_the_loss_falls(launcher: Launcher, strategy: str, work: str) -> None:
    """Unchanged training code trains one model on all ranks."""
    ended = launcher.local(
        f"strategy={strategy}", f"work.target={WORKS}/training.py:{work}", "nodes=2", "resources.workers_per_node=2"
    )
    assert ended.code == 0, ended.out
    told = ended.ranks()
    assert len(told) == 4
    for rank in told.values():
        assert rank["world_size"] == 4
        assert rank["agreed"] is True
        fifth = max(1, len(rank["losses"]) // 5)
        assert sum(rank["losses"][-fifth:]) < 0.9 * sum(rank["losses"][:fifth])


def test_own_executor_wraps_the_work(launcher: Launcher) -> None:
    """``strategy.executor`` names a person's RunWorkExecutor, whose three methods surround the work on every rank."""
    place = f"{WORKS}/own_executor.py"
    ended = launcher.local(
        f"strategy.executor={place}:Noting", f"work.target={place}:work", "nodes=2",
    )  # fmt: skip
    assert ended.code == 0, ended.out
    for rank in (0, 1):
        assert ended.lines(rank) == [f"set up {rank}", f"torn down {rank}"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Static", {"word": "given"}), ("Instance", {"word": "given", "size": 4}), ("OfClass", {"word": "OfClass"})],
)
def test_a_class_with_run_is_a_work(launcher: Launcher, name: str, expected: dict[str, Any]) -> None:
    """Static, class and instance methods run; an instance is made in the worker from work.kwargs."""
    words = [] if name == "OfClass" else ["work.kwargs.word=given"]
    ended = launcher.plain(f"ranks.py:{name}", *words)
    assert ended.ranks() == {rank: {"rank": rank, **expected} for rank in range(4)}


@pytest.mark.parametrize(
    ("strategy", "demo"),
    [("base", "hello_nodes"), ("pytorch_spawn", "pytorch_ddp"), ("lite", "fabric_ddp"),
     ("lightning", "lightning_trainer"), ("script", "torchrun_script")],
)  # fmt: skip
def test_demo_runs_where_no_work_is_named(launcher: Launcher, strategy: str, demo: str) -> None:
    """Each strategy shows itself with its example."""
    ended = launcher.local(f"strategy={strategy}", "nodes=2")
    assert ended.code == 0, ended.out
    assert ended.run_dir.name.startswith(demo)
    assert ended.lines(0)
    assert ended.lines(1)


@pytest.mark.parametrize("example", ["lightning_lite.py:Train", "pytorch_ddp.py:run"])
def test_example_runs_by_its_path(launcher: Launcher, example: str) -> None:
    """An example that is no demo, and one with an executor of one's own, run from their files."""
    strategy, executor = ("lite", []) if "lite" in example else (
        "pytorch_spawn", [f"strategy.executor={EXAMPLES}/timed_executor.py:TimedExecutor"]
    )  # fmt: skip
    ended = launcher.local(f"strategy={strategy}", f"work.target={EXAMPLES}/{example}", "nodes=2", *executor)
    assert ended.code == 0, ended.out
    assert any("loss" in line for line in ended.lines(1))
    assert bool(executor) == any("the work took" in line for line in ended.lines(1))


def test_digits_are_learnt_alike_by_one_worker_and_by_four(launcher: Launcher) -> None:
    """Real data: at least 95 % on unseen digits, to three digits the same for 1 worker and for 2 x 2."""
    accuracies = []
    for nodes, workers in ((1, 1), (2, 2)):
        ended = launcher.local("experiment=digits", f"nodes={nodes}", f"resources.workers_per_node={workers}")
        assert ended.code == 0, ended.out
        (line,) = [line for line in ended.lines(0) if line.startswith("accuracy")]
        assert f"{nodes * workers} workers" in line
        accuracies.append(float(line.split()[1]))
    assert accuracies[0] >= 0.95
    assert round(accuracies[0], 3) == round(accuracies[1], 3)


def test_a_persons_hydra_app_runs_as_it_is(launcher: Launcher) -> None:
    """The example composes its own configuration from its own words, and leaves no folder of Hydra's behind."""
    work = f"work.target={EXAMPLES}/hydra_app.py"
    ended = launcher.local("strategy=script", work, "nodes=2", "--", "model.width=16", "steps=5")
    assert ended.code == 0, ended.out
    for rank in (0, 1):
        assert ended.lines(rank)[-1].startswith(f"rank {rank} of 2: width 16, 5 steps, loss ")
    assert [path.name for path in ended.cwd.iterdir()] == ["runs"]


def test_weights_are_spread_over_all_workers_of_two_nodes(launcher: Launcher) -> None:
    """The example of FSDP: four workers hold every weight once, and the loss falls."""
    work = f"work.target={EXAMPLES}/fsdp_nodes.py:run"
    ended = launcher.local("strategy=pytorch_spawn", work, "nodes=2", "resources.workers_per_node=2")
    assert ended.code == 0, ended.out
    told = re.findall(r"^\[(\d)\] rank \1 of 4: holds (\d+) of (\d+) weights$", ended.out, re.MULTILINE)
    assert sorted(rank for rank, _, _ in told) == ["0", "1", "2", "3"]
    assert sum(int(part) for _, part, _ in told) == int(told[0][2])
    first, last = re.findall(r"mean loss ([\d.]+), after 20 steps ([\d.]+)", ended.out)[0]
    assert float(last) < 0.5 * float(first)


def test_an_example_is_swept(launcher: Launcher) -> None:
    """The sweep that an example names: a run for each number of nodes."""
    (words,) = re.findall(r"hpc_multinode (-m .*)", (EXAMPLES / "hello_nodes.py").read_text())
    ended = launcher.local(*words.split())
    assert ended.code == 0, ended.out
    assert "2 of 2 points succeeded" in ended.out
    assert sorted(re.findall(r"node \d of \d", ended.out)) == ["node 0 of 1", "node 0 of 2", "node 1 of 2"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_says_what_it_shows(path: Path) -> None:
    """Each opens with a sentence on what it shows, and is named where it is run: above, or on the cluster."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert re.match(r"[A-Z].*\.", text), text
    tests = "".join(file.read_text() for file in TESTS.rglob("test_*.py"))
    assert path.stem in tests or "experiment=digits" in text


def test_siblings_draw_different_random_numbers(launcher: Launcher) -> None:
    """Workers forked from one process do not share its random state, as separate interpreters would not."""
    ended = launcher.local(
        "strategy=pytorch_spawn", f"work.target={WORKS}/ranks.py:tell_random", "nodes=2",
        "resources.workers_per_node=2", "launch.preload=[numpy]",
    )  # fmt: skip
    drawn = ended.ranks()
    for source in ("python", "torch", "numpy"):
        assert len({rank[source] for rank in drawn.values()}) == 4, source


def _sizes(workers: int) -> list[str]:
    return [] if workers == 1 else [f"resources.workers_per_node={workers}"]
