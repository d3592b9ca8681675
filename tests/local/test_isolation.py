"""What does not reach the workers, what does, and what two runs do not share."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from tests.conftest import WORKS

if TYPE_CHECKING:
    from tests.conftest import Launcher

OUTER = {
    "SLURM_JOB_ID": "999", "SLURM_NTASKS": "8", "SLURM_NODEID": "3", "SLURM_NNODES": "4", "SLURM_PROCID": "5",
    "SLURM_JOB_NODELIST": "n[1-4]", "SLURM_JOB_NAME": "train", "RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "7",
    "MASTER_ADDR": "outer", "MASTER_PORT": "1", "NODE_RANK": "3", "GROUP_RANK": "3", "TORCHELASTIC_RUN_ID": "outer",
    "PMIX_RANK": "3", "SUBMITIT_EXECUTOR": "slurm",
}  # fmt: skip


def test_outer_job_does_not_reach_the_workers(launcher: Launcher) -> None:
    """Variables of an allocation or launcher around the run neither reach the workers nor change their ranks."""
    ended = launcher.plain("ranks.py:tell", env=OUTER)
    assert sorted(ended.ranks()) == [0, 1, 2, 3]
    assert {place["main_address"] for place in ended.ranks().values()} == {"127.0.0.1"}
    names = [name for name in OUTER if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    ended = launcher.plain(
        "ranks.py:tell_env", "run_id=second", "work.kwargs.prefixes=[SLURM_,SUBMITIT_,PMI]",
        f"work.kwargs.names=[{','.join(names)}]", env=OUTER,
    )  # fmt: skip
    for rank, told in enumerate(json.loads(line) for line in (ended.lines(rank)[0] for rank in range(4))):
        assert told["MASTER_ADDR"] == "127.0.0.1"
        assert told["NODE_RANK"] == told["GROUP_RANK"] == str(rank // 2)
        assert told["TORCHELASTIC_RUN_ID"] == "second-0"
        assert not [name for name in told if name.startswith(("SLURM_", "SUBMITIT_", "PMI"))]


@pytest.mark.parametrize("strategy", ["lite", "lightning"])
def test_lightning_does_not_fall_into_its_slurm_mode(launcher: Launcher, strategy: str) -> None:
    """Inside an allocation, whatever the job's name, Fabric and Trainer see the world that we started."""
    ended = launcher.local(f"strategy={strategy}", "nodes=2", env=OUTER)
    assert ended.code == 0, ended.out
    assert any("of 2" in line for line in ended.lines(1))


@pytest.mark.parametrize(
    ("visible", "shares"),
    [
        ("2,3", ["2", "3"]),
        ("4,5,6,7", ["4,5", "6,7"]),
        ("GPU-8932f937,MIG-377e0049-554c", ["GPU-8932f937", "MIG-377e0049-554c"]),
    ],
)  # fmt: skip
def test_visible_devices_are_shared_out_between_nodes(launcher: Launcher, visible: str, shares: list[str]) -> None:
    """The person's CUDA_VISIBLE_DEVICES is cut into one share a node, as opaque strings, one worker each."""
    ended = launcher.run(
        *launcher.plain_words("ranks.py:tell_env", "work.kwargs.names=[CUDA_VISIBLE_DEVICES]")[:3],
        f"work.target={WORKS}/ranks.py:tell_env", "work.kwargs.names=[CUDA_VISIBLE_DEVICES]", "nodes=2",
        env={"CUDA_VISIBLE_DEVICES": visible},
    )  # fmt: skip
    per_node = len(shares[0].split(","))
    told = {rank: said["CUDA_VISIBLE_DEVICES"] for rank, said in ended.ranks().items()}
    assert told == {rank: shares[rank // per_node] for rank in range(2 * per_node)}


def test_variables_of_the_config_reach_every_worker_exactly(launcher: Launcher) -> None:
    """``env`` values arrive letter by letter, interpolations resolved, over those of the shell."""
    ended = launcher.plain(
        "ranks.py:tell_env", "work.kwargs.names=[NCCL_DEBUG,X,Y,Z]", "env.NCCL_DEBUG=INFO",
        "env.X=${launch.join_timeout_s}", "env.Y=a b=c;d,e [f] 'g'", "+env.Z=0123", env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    expected = {"NCCL_DEBUG": "INFO", "X": "300.0", "Y": "a b=c;d,e [f] 'g'", "Z": "0123"}
    assert ended.ranks() == dict.fromkeys(range(4), expected)


def test_threads_are_shared_out_unless_they_are_set(launcher: Launcher) -> None:
    """OMP_NUM_THREADS is what the machine has for each worker; a value of the person's own is kept."""
    words = ["ranks.py:tell_env", "work.kwargs.names=[OMP_NUM_THREADS]"]
    kept = launcher.plain(*words, env={"OMP_NUM_THREADS": "7"})
    assert {told["OMP_NUM_THREADS"] for told in kept.ranks().values()} == {"7"}
    plain = {name: value for name, value in launcher.env.items() if name != "OMP_NUM_THREADS"}
    launcher.env.clear()
    launcher.env.update(plain)
    shared = launcher.plain(*words, "run_id=second", nodes=1, workers=2)
    expected = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {told["OMP_NUM_THREADS"] for told in shared.ranks().values()} == {str(expected)}


def test_worker_looks_like_a_process_started_by_hand(launcher: Launcher) -> None:
    """Working directory, module path and signal handlers are as ``python train.py`` would have them."""
    ended = launcher.plain("ranks.py:tell_process", nodes=1, workers=1)
    told = ended.ranks()[0]
    assert told["cwd"] == str(launcher.cwd)
    assert told["path"][0] == str(WORKS)
    assert told["argv"] == [f"{WORKS}/ranks.py"]
    assert told["handlers"]["SIGTERM"] == "0"  # SIG_DFL
    assert "default_int_handler" in told["handlers"]["SIGINT"]
    assert told["handlers"]["SIGUSR2"] == "1"  # SIG_IGN, until the work sets one


def test_logging_of_the_work_is_as_the_work_configures_it(launcher: Launcher) -> None:
    """No handler of ours or of a library of ours stands in its way."""
    lines = launcher.plain("ends.py:logs_by_level").lines(0)
    assert lines == ["INFO to be seen"]


def test_names_of_the_standard_library_in_the_folder_do_no_harm(launcher: Launcher) -> None:
    """A queue.py, logging.py or json.py where the person stands takes nobody's place in launcher and agents."""
    for name in ("queue", "logging", "asyncio", "submitit", "hydra", "socket", "json"):
        (launcher.cwd / f"{name}.py").write_text(f"raise ImportError('{name} of the person')\n")
    ended = launcher.plain("ranks.py:Static", "work.kwargs.word=fine")
    assert ended.code == 0, ended.out + ended.err
    assert len(ended.ranks()) == 4


def test_relative_path_and_modules_are_taken_from_where_the_person_stands(launcher: Launcher) -> None:
    """A relative work and its neighbours are found, also in a package with relative imports."""
    package = launcher.cwd / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("WORD = 'neighbour'\n")
    source = "import json\nfrom . import model\ndef run(global_rank):\n    print(json.dumps({'w': model.WORD}))\n"
    (package / "train.py").write_text(source)
    for target in ("mine/train.py:run", "mine.train:run"):
        name = target.partition(":")[0].replace("/", "-").replace(".", "-")
        plain = [word for word in launcher.plain_words("x") if not word.startswith("work.target")]
        ended = launcher.run(*plain, f"work.target={target}", f"run_id={name}")
        assert ended.code == 0, ended.out + ended.err
        assert ended.ranks() == {rank: {"w": "neighbour"} for rank in range(4)}


def test_run_folder_is_private_whatever_the_umask(launcher: Launcher) -> None:
    """Every folder is 0700 and every file 0600, and the work has the person's own umask."""
    ended = launcher.plain("ranks.py:Static", "work.kwargs.word=x")
    for path in [ended.run_dir.parent, ended.run_dir, *ended.run_dir.rglob("*")]:
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_run_folder_holds_what_it_promises(launcher: Launcher) -> None:
    """plan.json, config.yaml, report.json and one log for each rank and node lie where the documents say."""
    ended = launcher.plain("ranks.py:Static", "work.kwargs.word=x", "name=my run")
    assert ended.run_dir.name.startswith("my-run-")
    names = {path.name for path in ended.run_dir.iterdir()}
    assert {"plan.json", "config.yaml", "report.json", "submitit", "attempt-0"} <= names
    logs = {path.name for path in (ended.run_dir / "attempt-0").iterdir()}
    ranks = {f"rank{rank}.log" for rank in range(4)}
    nodes = {f"node{rank}.{kind}" for rank in (0, 1) for kind in ("log", "sizes", "samples")}
    assert logs == {*ranks, *nodes, "events.jsonl", "attempt.json"}
    assert not (ended.run_dir / ".hydra").exists()
    assert not (launcher.cwd / "outputs").exists()


def test_setup_lines_run_before_and_teardown_after_the_agents(launcher: Launcher) -> None:
    """What a set-up line exports reaches the workers; the run's code is that of the agents."""
    ended = launcher.plain(
        "ranks.py:tell_env", "work.kwargs.names=[FROM_SETUP]", "cluster.setup=['export FROM_SETUP=\"a b\"']",
        "cluster.teardown=['touch torn; false']", "env.OTHER=1",
    )  # fmt: skip
    assert ended.code == 0, ended.out
    assert ended.ranks() == {rank: {"FROM_SETUP": "a b"} for rank in range(4)}


@pytest.mark.parametrize("line", ["echo no such module >&2; false", "false | cat"])
def test_failing_setup_line_ends_the_run_with_its_text(launcher: Launcher, line: str) -> None:
    """A set-up line that fails, in a pipe too, stops the run before any agent and is shown."""
    ended = launcher.plain("ranks.py:tell", f"cluster.setup=['{line}']")
    assert ended.code == 1
    assert f"this set-up line failed: {line}" in ended.out
    assert not list(ended.run_dir.glob("attempt-*"))


def test_same_second_gives_different_folders(launcher: Launcher) -> None:
    """Two runs of one name started together have folders of their own."""
    both = [launcher.start(*launcher.plain_words("ranks.py:tell", "name=same")) for _ in range(2)]
    assert [launcher.finish(one).code for one in both] == [0, 0]
    ports = set()
    for run_dir in (launcher.cwd / "runs").iterdir():
        assert json.loads((run_dir / "report.json").read_text())["state"] == "COMPLETED"
        ports.add(json.loads((run_dir / "attempt-0" / "rank0.log").read_text())["main_port"])
    assert len(ports) == 2


def test_main_port_given_by_hand_is_used(launcher: Launcher) -> None:
    """``launch.main_port`` reaches every worker; where it is busy all nodes end at once and say so."""
    import socket  # noqa: PLC0415

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))  # noqa: S104 - busy on every interface is what is tested
        taken.listen()
        port = taken.getsockname()[1]
        ended = launcher.plain("ranks.py:tell", f"launch.main_port={port}", "run_id=busy")
        assert ended.code == 1
        assert f"main_port {port} busy on host" in ended.out
        assert ended.report["failure_class"] == "rendezvous"
    (launcher.cwd / "runs" / "busy").rename(launcher.cwd / "busy")
    ended = launcher.plain("ranks.py:tell", f"launch.main_port={port}")
    assert {place["main_port"] for place in ended.ranks().values()} == {port}
