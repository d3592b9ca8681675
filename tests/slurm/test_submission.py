"""``cluster=slurm``, which is ``auto`` where there is an sbatch: a job through submitit's script and real srun."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG, WORKS, find_processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

    Runs = dict[tuple[str, str], EndedOnSlurm]

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

_OWN = [
    f"--config-dir={PLAIN_CONFIG}",
    "strategy=plain",
    f"strategy.executor={WORKS}/own_executor.py:Noting",
    "work.target=on_nodes.py:plain",
]
STRATEGIES = {
    "base": ["strategy=base", "work.target=on_nodes.py:base"],
    "pytorch_spawn": ["strategy=pytorch_spawn", "work.target=on_nodes.py:pytorch_spawn"],
    "lite": ["strategy=lite", "work.target=on_nodes.py:lite"],
    "lightning": ["strategy=lightning", "work.target=on_nodes.py:lightning"],
    "script": ["strategy=script", "work.target=on_nodes.py"],
    "own": _OWN,
}
SHAPES = {"2 x 2 GPUs": ["nodes=2", "resources.gpus_per_node=2"], "3 x 1": ["nodes=3"]}
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture(scope="module")
def runs(on_slurm: OnSlurm) -> Runs:
    """Run every strategy in both shapes, all jobs submitted at once."""
    jobs = {(name, shape): [*words, *SHAPES[shape]] for name, words in STRATEGIES.items() for shape in SHAPES}
    for name in ("base", "lite", "lightning"):  # to import torch in three processes on two cores takes seconds
        place = ["work.target=on_nodes.py:tell_place", "strategy.preload=[]", "nodes=3"]
        jobs[name, "3 x 1"] = [*STRATEGIES[name][:-1], *place]
    return on_slurm.submit_all(jobs)


@pytest.fixture(scope="module")
def ends(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Run works that end in several ways, each on two nodes, all jobs submitted at once."""
    wrapper = '#!/bin/sh\n[ "$SLURM_NODEID" = 1 ] && export CUDA_VISIBLE_DEVICES=0\nexec python "$@"\n'
    python = on_slurm.write(on_slurm.cluster.shared, "blind_on_node1", wrapper, mode=0o755)
    jobs = {
        "well": ["ranks.py:Static"],
        "fails": ["ends.py:raise_on_1"],
        "fails on node 0": ["ends.py:raise_on_1", "resources.workers_per_node=2"],
        "exits 3": ["ends.py:exit_with", "work.kwargs.code=3"],
        "exits 2": ["ends.py:exit_with", "work.kwargs.code=2"],
        "is killed": ["ends.py:signal_self", "work.kwargs.name=SIGKILL"],
        "broken import": ["broken_import.py:run"],
        "too few GPUs": ["ranks.py:Static", "resources.gpus_per_node=2", f"cluster.python={python}"],
    }
    return on_slurm.submit_all({key: on_slurm.plain(*words, "nodes=2") for key, words in jobs.items()})


def size_of(strategy: str, shape: str) -> tuple[int, int]:
    """Return nodes and workers a node."""
    nodes = 3 if shape == "3 x 1" else 2
    return nodes, 1 if shape == "3 x 1" or strategy == "base" else 2


@every_shape
@every_strategy
def test_every_rank_knows_its_place(runs: Runs, strategy: str, shape: str) -> None:
    """Ranks and sizes are right on every worker of a submitted run."""
    nodes, workers = size_of(strategy, shape)
    told = runs[strategy, shape].logged()
    assert sorted(told) == list(range(nodes * workers)), runs[strategy, shape].read_logs()
    for rank, place in told.items():
        expected = {
            "RANK": rank, "WORLD_SIZE": nodes * workers, "LOCAL_RANK": rank % workers,
            "LOCAL_WORLD_SIZE": workers, "NODE_RANK": rank // workers,
        }  # fmt: skip
        assert {name: int(place[name]) for name in expected} == expected


@every_shape
@every_strategy
def test_each_nodes_ranks_are_on_its_own_host(runs: Runs, strategy: str, shape: str) -> None:
    """The ranks of a node run on one host, those of another on another, in the order of the report's nodes."""
    _, workers = size_of(strategy, shape)
    ended = runs[strategy, shape]
    hosts = ended.report["attempts"][0]["nodes"]
    assert len(set(hosts)) == len(hosts)
    assert {rank: place["host"] for rank, place in ended.logged().items()} == {
        rank: hosts[rank // workers] for rank in range(len(hosts) * workers)
    }


@every_shape
@every_strategy
def test_main_address_is_the_first_node(runs: Runs, on_slurm: OnSlurm, strategy: str, shape: str) -> None:
    """All workers have the first node's name as main address, which is its real address from everywhere, and a port."""
    ended = runs[strategy, shape]
    first = ended.report["attempts"][0]["nodes"][0]
    told = ended.logged().values()
    assert {place["MASTER_ADDR"] for place in told} == {first}
    assert {place["main_ip"] for place in told} == {on_slurm.cluster.settings.addresses[first]}
    assert len({place["MASTER_PORT"] for place in told}) == 1


@every_strategy
def test_workers_see_the_gpus_of_their_node(runs: Runs, strategy: str) -> None:
    """Every worker sees all GPUs that Slurm gave its node."""
    told = runs[strategy, "2 x 2 GPUs"].logged().values()
    assert {place["devices"] for place in told} == {"0,1"}


@pytest.mark.parametrize(
    ("strategy", "shape"),
    [(name, "2 x 2 GPUs") for name in STRATEGIES if name != "own"]
    + [(name, "3 x 1") for name in ("pytorch_spawn", "script")],
)
def test_ranks_agree_after_each_step_and_the_loss_falls(runs: Runs, strategy: str, shape: str) -> None:
    """Training across real addresses trains one model on all ranks, as on one machine."""
    nodes, workers = size_of(strategy, shape)
    ended = runs[strategy, shape]
    for rank in ended.logged().values():
        assert rank["world_size"] == nodes * workers, ended.read_logs()
        assert rank["agreed"] is True
        fifth = max(1, len(rank["losses"]) // 5)
        assert sum(rank["losses"][-fifth:]) < 0.9 * sum(rank["losses"][:fifth])


@every_shape
def test_own_executor_wraps_the_work(runs: Runs, shape: str) -> None:
    """An executor of a person's own surrounds the work on every node."""
    ended = runs["own", shape]
    for log in ended.run_dir.glob("attempt-0/rank*.log"):
        assert f"torn down {log.stem[4:]}" in log.read_text()


@every_shape
@every_strategy
def test_report_is_there_when_the_job_is_over(runs: Runs, on_slurm: OnSlurm, strategy: str, shape: str) -> None:
    """A good run is COMPLETED with 0 in Slurm and in its report, which names the job."""
    nodes, workers = size_of(strategy, shape)
    ended = runs[strategy, shape]
    job = on_slurm.cluster.job(ended.job_id)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), ended.read_logs()
    expected = {
        "state": "COMPLETED", "exit_code": 0, "job_id": ended.job_id, "num_nodes": nodes,
        "world_size": nodes * workers, "root_cause": None,
    }  # fmt: skip
    assert {name: ended.report[name] for name in expected} == expected


def test_submit_tells_job_folder_logs_and_next_commands(ends: dict[str, EndedOnSlurm]) -> None:
    """Submitting returns within seconds and prints the header, the job, the paths, and how to look and to cancel."""
    ended = ends["well"]
    run_dir = f"runs/{ended.run_dir.name}"
    assert ended.out.splitlines()[1:] == [
        f"run:  {run_dir}",
        f"logs: {run_dir}/attempt-0/rank*.log",
        f"submitted: job {ended.job_id}",
        f"agents: {run_dir}/submitit/{ended.job_id}_0_log.out",
        f"status: python -m hpc_multinode status {ended.job_id}",
        f"follow: python -m hpc_multinode logs -f {ended.job_id}",
        f"cancel: python -m hpc_multinode cancel {ended.job_id}",
    ]
    assert "on 2 x 1 = 2 workers, on Slurm" in ended.out.splitlines()[0]
    assert (ended.run_dir / f"submitit/{ended.job_id}_0_log.out").exists()


def test_run_folder_is_the_persons_alone(ends: dict[str, EndedOnSlurm]) -> None:
    """What nodes and Slurm write into the run folder is for nobody else to read."""
    run_dir = ends["well"].run_dir
    modes = {
        path.relative_to(run_dir): path.stat().st_mode & 0o077
        for path in [run_dir, *run_dir.rglob("*")]
        if path.suffix != ".sh"
    }
    assert {path: mode for path, mode in modes.items() if mode} == {}


@pytest.mark.parametrize(
    ("end", "code"),
    [("fails", 1), ("fails on node 0", 1), ("exits 3", 3), ("exits 2", 1), ("is killed", 137), ("broken import", 1)],
)
def test_exit_code_of_the_job_is_the_runs(
    ends: dict[str, EndedOnSlurm], on_slurm: OnSlurm, end: str, code: int
) -> None:
    """A failing work makes a FAILED job with the run's exit code, the same in the report."""
    job = on_slurm.cluster.job(ends[end].job_id)
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", f"{code}:0"), ends[end].read_logs()
    assert (ends[end].report["state"], ends[end].report["exit_code"]) == ("FAILED", code)


def test_exit_code_is_in_sacct(ends: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """``sys.exit(3)`` of a rank is 3:0 in the accounting of the job."""
    words = ["sacct", "-X", "-n", "-P", "-j", ends["exits 3"].job_id, "-o", "State,ExitCode"]
    until = time.monotonic() + 20
    while (said := on_slurm.cluster.run(words).stdout.strip()) != "FAILED|3:0" and time.monotonic() < until:
        time.sleep(0.3)
    assert said == "FAILED|3:0"


def test_exit_code_where_another_agent_is_slow_to_end(on_slurm: OnSlurm) -> None:
    """The job's exit code is the run's also where another node's interpreter takes a second to end after its work."""
    cwd = on_slurm.make_folder()
    slow = (
        "import atexit, gc, os, sys, time\n"
        'if "hpc_multinode.node" in sys.orig_argv and os.environ.get("SLURM_NODEID") == "1":\n'
        "    atexit.register(lambda: (gc.collect(), time.sleep(1)))\n"
    )
    on_slurm.write(cwd, "slow/sitecustomize.py", slow)
    words = on_slurm.plain("ends.py:exit_with", "work.kwargs.code=3", "nodes=2")
    ended = on_slurm.run(*words, cwd=cwd, env={"PYTHONPATH": f"{cwd}/slow"})
    assert on_slurm.wait_for_end(ended.job_id)["ExitCode"] == "3:0"


@pytest.mark.parametrize(("end", "node"), [("fails", 1), ("fails on node 0", 0)])
def test_report_names_the_node_of_the_root_cause(ends: dict[str, EndedOnSlurm], end: str, node: int) -> None:
    """The report's root cause has rank, node, host, exception and the log; the sleeping ranks are consequences."""
    report = ends[end].report
    cause = report["root_cause"]
    assert (cause["global_rank"], cause["node_rank"]) == (1, node)
    assert cause["host"] == report["attempts"][0]["nodes"][node]
    assert (cause["exception"], cause["message"]) == ("ValueError", "no such luck")
    assert cause["log"] == str(ends[end].run_dir / "attempt-0/rank1.log")
    assert all(one["is_stopped"] for one in report["consequences"])


@pytest.mark.parametrize("end", ["fails", "fails on node 0", "exits 3", "is killed"])
def test_failed_job_ends_at_once(ends: dict[str, EndedOnSlurm], on_slurm: OnSlurm, end: str) -> None:
    """A job whose other ranks sleep for two minutes ends within seconds after the failure."""
    hours, minutes, seconds = map(int, on_slurm.cluster.job(ends[end].job_id)["RunTime"].split(":"))
    assert (hours, minutes) == (0, 0)
    assert seconds <= 15


def test_nothing_is_left_on_the_nodes(ends: dict[str, EndedOnSlurm]) -> None:
    """Neither agents nor forkservers nor workers of ended jobs are there any more."""
    assert [pid for ended in ends.values() for pid in find_processes(str(ended.run_dir))] == []


def test_nothing_is_left_in_tmp_of_the_nodes(ends: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """A node's own /tmp has no file of ours after the runs, whatever way they ended."""
    assert ends
    for name in on_slurm.cluster.node_names:
        found = on_slurm.cluster.run(["find", "/tmp", "-user", "hpcuser"], host=name)  # noqa: S108
        others = (str(on_slurm.cluster.settings.root), "/tmp/torchinductor_")  # noqa: S108
        assert [path for path in found.stdout.splitlines() if not path.startswith(others)] == []


def test_node_with_too_few_gpus_is_the_root_cause(ends: dict[str, EndedOnSlurm]) -> None:
    """A node that sees fewer GPUs than asked for is named by the report, with both numbers, and is no cancellation."""
    report = ends["too few GPUs"].report
    assert (report["state"], report["failure_class"]) == ("FAILED", "usage")
    assert report["root_cause"]["node_rank"] == 1
    assert "asked 2" in report["root_cause"]["message"]
    assert "visible 1" in report["root_cause"]["message"]


def test_refused_job_shows_slurms_words_and_leaves_nothing(on_slurm: OnSlurm) -> None:
    """An unknown partition is exit code 2 with sbatch's own words, and no run folder stays."""
    ended = on_slurm.run(*on_slurm.plain("ranks.py:Static", "resources.partition=nowhere"))
    assert ended.code == 2
    assert ended.err.startswith("error: sbatch refuses the job\n")
    assert "sbatch: error: invalid partition specified: nowhere" in ended.err
    assert ended.run_dirs == []
    (script,) = (ended.cwd / "runs").iterdir()
    assert f"look at the script that was sent, {script}" in ended.err
    assert "#SBATCH --partition=nowhere" in script.read_text()


def test_unknown_option_of_sbatch_is_refused_in_its_words(on_slurm: OnSlurm) -> None:
    """An option that sbatch does not know is exit code 2 with sbatch's own words."""
    ended = on_slurm.run(*on_slurm.plain("ranks.py:Static", "resources.sbatch.nonsense=1"))
    assert ended.code == 2
    assert "nonsense" in ended.err
    assert ended.run_dirs == []


@pytest.fixture(scope="module")
def held(on_slurm: OnSlurm) -> Iterator[tuple[EndedOnSlurm, dict[str, str]]]:
    """Submit a job with many options that is held, and give what Slurm says of it."""
    ended = on_slurm.run(
        *on_slurm.plain(
            "ranks.py:Static",
            "nodes=2",
            "resources.partition=urgent",
            "resources.time=0:59",
            "resources.mem_gb=0.5",
            "resources.gpus_per_node=1",
            "resources.gpu_type=fake",
            "cluster.gpu_option=gres",
            f"resources.nodelist=[{','.join(on_slurm.cluster.node_names[:2])}]",
            "resources.cpus_per_node=2",
            "resources.exclusive=true",
            "resources.sbatch.comment=two words",
            "resources.sbatch.hold=true",
            """name=it's a "job" $HOME (100%j|&ü)""",
        )
    )
    assert ended.code == 0, ended.err
    yield ended, on_slurm.cluster.job(ended.job_id)
    on_slurm.cluster.run(["scancel", ended.job_id])


@pytest.mark.parametrize(
    ("name", "value"),
    [("JobState", "PENDING"), ("Partition", "urgent"), ("TimeLimit", "00:01:00"), ("MinMemoryNode", "512M"),
     ("CPUs/Task", "2"), ("OverSubscribe", "NO"), ("NtasksPerN:B:S:C", "1:0:*:*"),
     ("TresPerNode", "gres:gpu:fake:1")],
)  # fmt: skip
def test_option_arrives(held: tuple[EndedOnSlurm, dict[str, str]], name: str, value: str) -> None:
    """What is asked for in ``resources`` is what Slurm says of the job."""
    assert held[1][name].replace("gres/", "gres:") == value  # as different versions write it


@pytest.mark.parametrize(("letter", "text"), [("%j", """it's a "job" $HOME (100%j|&ü)"""), ("%k", "two words")])
def test_text_arrives_as_typed(
    held: tuple[EndedOnSlurm, dict[str, str]], on_slurm: OnSlurm, letter: str, text: str
) -> None:
    """A name or a comment with spaces, quotes and dollars arrives unchanged."""
    assert on_slurm.cluster.run(["squeue", "-h", "-j", held[0].job_id, "-o", letter]).stdout.rstrip("\n") == text


@pytest.fixture(scope="module")
def from_inside(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Submit from within allocations and from a shell with leftovers; the ranks tell their variables."""
    tell = on_slurm.plain("ranks.py:tell_env", "work.kwargs.prefixes=[SLURM_,SBATCH_,CUDA,RANK,MASTER,OMP]", "nodes=2")
    sizes = ["resources.cpus_per_node=2", "resources.mem_gb=0.5", "cluster=slurm"]
    leftovers = {
        "SLURM_NTASKS": "17", "SLURM_MEM_PER_CPU": "77", "SLURM_NNODES": "3", "SLURM_CPUS_PER_TASK": "5",
        "SLURM_PROCID": "4", "SLURM_NODEID": "4", "SLURM_STEP_NODELIST": "elsewhere[1-9]", "SLURM_ARRAY_JOB_ID": "9",
        "SLURM_ARRAY_TASK_ID": "9", "RANK": "9", "MASTER_ADDR": "elsewhere", "SLURM_JOB_NAME": "outer",
    }  # fmt: skip
    started = {
        "salloc": on_slurm.start(
            *tell, *sizes, before=["salloc", "-N1", "-n3", "--mem-per-cpu=300", "--job-name=outer"]
        ),
        "shell": on_slurm.start(*tell, *sizes, env=leftovers),
    }
    ended = {key: on_slurm.finish(one) for key, one in started.items()}
    words = " ".join(f"'{word}'" for word in [*tell, *sizes])
    ended["batch"] = on_slurm.run_batch(f"launch {words}", "-N1", "-n3", "--mem-per-cpu=300", "--job-name=outer")
    for one in ended.values():
        assert one.code == 0, one.out + one.err
        on_slurm.wait_for_end(one.job_id)
    return ended


@pytest.mark.parametrize("place", ["salloc", "batch", "shell"])
def test_job_from_within_an_allocation_is_its_own(
    from_inside: dict[str, EndedOnSlurm], on_slurm: OnSlurm, place: str
) -> None:
    """``cluster=slurm`` inside an allocation submits another job, with the sizes and the name asked for."""
    ended = from_inside[place]
    job = on_slurm.cluster.job(ended.job_id)
    asked = {"NumNodes": "2", "CPUs/Task": "2", "MinMemoryNode": "512M", "JobName": "ranks", "JobState": "COMPLETED"}
    assert {name: job[name] for name in asked} == asked, ended.read_logs()
    assert ended.report["job_id"] == ended.job_id


@pytest.mark.parametrize("place", ["salloc", "batch", "shell"])
def test_nothing_of_the_outer_job_leaks_in(from_inside: dict[str, EndedOnSlurm], place: str) -> None:
    """Workers see the variables of their own job alone."""
    for rank, env in from_inside[place].logged().items():
        assert env["SLURM_JOB_ID"] == from_inside[place].job_id
        assert (env["SLURM_NTASKS"], env["SLURM_NODEID"], env["RANK"]) == ("2", str(rank), str(rank))
        assert "SLURM_MEM_PER_CPU" not in env
        assert "SLURM_ARRAY_JOB_ID" not in env
        assert env["MASTER_ADDR"] not in {"elsewhere", "127.0.0.1"}


@pytest.mark.parametrize("place", ["salloc", "batch", "shell"])
def test_cpus_reach_the_step(from_inside: dict[str, EndedOnSlurm], place: str) -> None:
    """``cpus_per_node`` counts for the step too, and the worker's threads follow it."""
    for env in from_inside[place].logged().values():
        assert (env["SLURM_CPUS_PER_TASK"], env["SLURM_CPUS_ON_NODE"], env["OMP_NUM_THREADS"]) == ("2", "2", "2")


def test_local_on_the_login_side(on_slurm: OnSlurm) -> None:
    """``cluster=local`` runs here though there is an sbatch, in the foreground and without a job."""
    before = on_slurm.cluster.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout
    ended = on_slurm.run(*on_slurm.plain("plain", "cluster=local", "nodes=2"))
    assert ended.code == 0, ended.err
    assert {rank: told["host"] for rank, told in ended.ranks().items()} == {0: "hpclogin", 1: "hpclogin"}
    assert on_slurm.cluster.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout == before


def test_nodes_share_nothing_but_the_run_folder(on_slurm: OnSlurm) -> None:
    """With a /tmp of its own on each node a run works, and each node's files stay its own."""
    ended = on_slurm.run(*on_slurm.plain("list_tmp", "nodes=2", "work.kwargs.run_id=mark", "env.TMPDIR=/tmp"))
    on_slurm.wait_for_end(ended.job_id)
    assert {rank: told["own"] for rank, told in ended.logged().items()} == {0: ["mark-0"], 1: ["mark-1"]}


def test_percent_signs_in_the_folder_are_letters(on_slurm: OnSlurm) -> None:
    """A run folder whose path looks like Slurm's patterns is where it was said to be, with the agents' logs in it."""
    cwd = on_slurm.make_folder()
    words = on_slurm.plain("plain", "nodes=2", "run_root=50%j/x%%t_%a", "run_id=r")
    ended = on_slurm.run(*words, cwd=cwd)
    assert on_slurm.wait_for_end(ended.job_id)["JobState"] == "COMPLETED"
    run_dir = cwd / "50%j/x%%t_%a/r"
    assert [path.name for path in cwd.iterdir() if "50" in path.name] == ["50%j"]
    assert {path.name for path in (run_dir / "submitit").glob("*.out")} == {
        f"{ended.job_id}_{task}_log.out" for task in (0, 1)
    }
    assert (run_dir / "attempt-0/rank1.log").exists()


def test_a_tmpdir_of_the_login_side_is_replaced(on_slurm: OnSlurm) -> None:
    """A TMPDIR that something between srun and agent sets, and the node lacks, is replaced there, with a word."""
    python = "cluster.python=env TMPDIR=/login/only python"  # what Slurm itself hands on, it replaces itself
    words = on_slurm.plain("ranks.py:tell_env", "work.kwargs.prefixes=[TMPDIR,MINE]", "nodes=2", "env.MINE=a b=c;$d")
    ended = on_slurm.run(*words, python)
    on_slurm.wait_for_end(ended.job_id)
    assert ended.logged() == {rank: {"TMPDIR": "/tmp", "MINE": "a b=c;$d"} for rank in (0, 1)}  # noqa: S108
    warning = "warning: TMPDIR=/login/only does not exist on this node, so workers get TMPDIR=/tmp"
    assert warning in (ended.run_dir / "attempt-0/node1.log").read_text()


def _wrap_sbatch(on_slurm: OnSlurm, folder: Path, text: str) -> dict[str, str]:
    """Put an sbatch of a site's own before the real one, and return the variables by which it is found."""
    on_slurm.write(folder, "bin/sbatch", f"#!/bin/bash\n{text}\n", mode=0o755)
    path = on_slurm.cluster.run(["sh", "-c", "echo $PATH"]).stdout.strip()
    return {"PATH": f"{folder}/bin:{path}"}


def test_a_job_whose_answer_is_lost_is_found(on_slurm: OnSlurm) -> None:
    """A call of sbatch times out although the job is in: it is found by its script's path, and not submitted twice."""
    cwd = on_slurm.make_folder()
    lost = 'echo x >> tries; /usr/bin/sbatch --hold "$@" >job; echo "sbatch: error: Socket timed out" >&2; exit 1'
    env = _wrap_sbatch(on_slurm, cwd, lost)
    ended = on_slurm.run(*on_slurm.plain("plain", "nodes=2"), cwd=cwd, env=env)
    assert ended.code == 0, ended.err
    assert (cwd / "job").read_text() == f"Submitted batch job {ended.job_id}\n"
    assert (cwd / "tries").read_text() == "x\n"
    on_slurm.cluster.run(["scancel", ended.job_id])


@pytest.mark.parametrize(
    "text", ['/usr/bin/sbatch --hold --parsable "$@"', 'echo max job 500; /usr/bin/sbatch --hold "$@"']
)
def test_a_sites_own_sbatch_is_understood(on_slurm: OnSlurm, text: str) -> None:
    """A wrapper that prints a number alone, or a banner first, gives the right job."""
    cwd = on_slurm.make_folder()
    ended = on_slurm.run(*on_slurm.plain("plain"), cwd=cwd, env=_wrap_sbatch(on_slurm, cwd, text))
    command = on_slurm.cluster.run(["squeue", "-h", "-j", ended.job_id, "-o", "%o"]).stdout.strip()
    assert command == f"{ended.run_dir}/submission.sh"
    on_slurm.cluster.run(["scancel", ended.job_id])


def test_sbatch_variables_of_the_shell_do_not_count(on_slurm: OnSlurm) -> None:
    """What the run asks for wins over ``SBATCH_*``, which are named on stderr."""
    words = on_slurm.plain("plain", "resources.partition=urgent", "resources.sbatch.hold=true")
    env = {"SBATCH_PARTITION": "short", "SBATCH_TIMELIMIT": "1", "SBATCH_EXCLUSIVE": "1"}
    ended = on_slurm.run(*words, env=env)
    job = on_slurm.cluster.job(ended.job_id)
    assert (job["Partition"], job["TimeLimit"]) == ("urgent", "UNLIMITED")
    assert "warning: SBATCH_PARTITION=short is left out: the run asks for --partition=urgent\n" in ended.err
    for name in env:
        assert f"warning: {name}=" in ended.err
    on_slurm.cluster.run(["scancel", ended.job_id])


@pytest.fixture(scope="module")
def cancelled(on_slurm: OnSlurm) -> EndedOnSlurm:
    """Cancel a job whose works save on SIGTERM."""
    started = on_slurm.start(*on_slurm.plain("ends.py:save_on_term", "nodes=2", "resources.workers_per_node=2"))
    ended = on_slurm.finish(started)
    on_slurm.wait_for_text(started, "ready", ranks=4)
    on_slurm.cluster.run(["scancel", ended.job_id], check=True)
    on_slurm.wait_for_end(ended.job_id)
    until = time.monotonic() + 15
    run_dir = next((started.cwd / "runs").iterdir())
    while not (run_dir / "report.json").exists() and time.monotonic() < until:
        time.sleep(0.1)
    return ended


def test_cancelled_workers_have_saved(cancelled: EndedOnSlurm) -> None:
    """After scancel every worker gets SIGTERM and the time to save."""
    logs = sorted(cancelled.run_dir.glob("attempt-0/rank*.log"))
    assert ["saved" in log.read_text() for log in logs] == [True] * 4, cancelled.read_logs()


def test_cancelled_run_has_a_report(cancelled: EndedOnSlurm) -> None:
    """After scancel the report says CANCELLED, with no root cause."""
    report = json.loads((cancelled.run_dir / "report.json").read_text())
    assert (report["state"], report["exit_code"], report["failure_class"]) == ("CANCELLED", 143, "cancelled")
    assert report["root_cause"] is None


@pytest.mark.parametrize(
    ("words", "code", "texts"),
    [
        (["nodes=2"], 0, ["accepted: would start", "in partition main"]),
        (["nodes=9"], 2, ["error: Slurm would refuse the job", "partition main has 3 such nodes", "nodes=3"]),
        (
            ["resources.partition=short", "resources.time=5"],
            2,
            [
                "error: Slurm would take the job and never start it",
                "resources.time=00:02:00, or resources.partition=main",
            ],
        ),
        (["resources.partition=nowhere"], 2, ["sbatch: error: invalid partition specified: nowhere"]),
        (["resources.gpus_per_node=3"], 2, ["nodes with at most 2 GPUs", "resources.gpus_per_node=2"]),
    ],
)
def test_check_asks_slurm_and_submits_nothing(on_slurm: OnSlurm, words: list[str], code: int, texts: list[str]) -> None:
    """``render --check`` says whether the job would run and what fits; no job and no folder is made."""
    before = on_slurm.cluster.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout
    ended = on_slurm.run("render", "--check", *on_slurm.plain("plain", *words))
    assert ended.code == code, ended.out + ended.err
    assert all(text in ended.out + ended.err for text in texts), ended.out + ended.err
    assert on_slurm.cluster.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout == before
    assert not (ended.cwd / "runs").exists()
