"""A site's pieces on the real cluster: set-up, a stand-in for a container, and scripts for plain sbatch."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PLAIN_CONFIG, PROGRAMS, TESTS, WORKS, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]


def _with_stand_in(on_slurm: OnSlurm) -> dict[str, str]:
    """Return the variables by which the stand-in for Apptainer is found."""
    path = on_slurm.cluster.run(["sh", "-c", "echo $PATH"]).stdout.strip()
    return {"PATH": f"{PROGRAMS}:{path}"}


@pytest.fixture(scope="module")
def in_container(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Run works in the stand-in, all jobs submitted at once."""
    tell = "work.kwargs.prefixes=[IN_CONTAINER,PYTHONPATH,RANK]"
    jobs = {
        "well": ["ranks.py:tell_env", tell, "resources.gpus_per_node=1"],
        "exits 3": ["ends.py:exit_with", "work.kwargs.code=3"],
        "saves": ["ends.py:save_on_term"],
        "is warned": ["saver.py:polls", "requeue.enabled=true", "resources.time=5"],
    }
    started = {}
    for key, (work, *words) in jobs.items():
        line = on_slurm.plain(work, *words, "nodes=2", "cluster.container=/images/it's.sif", "cluster.python=python")
        started[key] = on_slurm.start(*line, env=_with_stand_in(on_slurm))
    ended = {key: on_slurm.finish(one) for key, one in started.items()}
    for key, one in ended.items():
        assert one.code == 0, f"{key}: {one.err}"
        if key == "saves":
            on_slurm.wait_for_text(started[key], "ready", ranks=2)
            on_slurm.cluster.run(["scancel", one.job_id], check=True)
        if key == "is warned":
            on_slurm.wait_for_text(started[key], "step 3", ranks=2)
            on_slurm.cluster.run(["scancel", "--signal=USR2", one.job_id], check=True)
        on_slurm.wait_for_end(one.job_id)
    return ended


def test_agents_and_workers_run_in_the_container(in_container: dict[str, EndedOnSlurm]) -> None:
    """The image is the one named; run folder, code and work are bound, and only our package is on the path."""
    ended = in_container["well"]
    told = ended.logged()
    assert sorted(told) == [0, 1], ended.read_logs()
    for rank, env in told.items():
        assert (env["IN_CONTAINER"], env["RANK"]) == ("/images/it's.sif", str(rank))
        binds = env["IN_CONTAINER_BINDS"].splitlines()
        assert str(ended.cwd) in binds  # the run folder lies in it
        assert any(str(WORKS).startswith(bind) for bind in binds)
        assert env["PYTHONPATH"] == f"{ended.run_dir}/agent"
    assert [path.name for path in (ended.run_dir / "agent").iterdir()] == ["hpc_multinode"]


def test_exit_code_comes_out_of_the_container(in_container: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """The wrapper stands in between, and the job's code is the run's."""
    assert on_slurm.cluster.job(in_container["exits 3"].job_id)["ExitCode"] == "3:0"
    assert in_container["exits 3"].report["exit_code"] == 3


def test_a_cancel_reaches_the_workers_in_the_container(in_container: dict[str, EndedOnSlurm]) -> None:
    """SIGTERM goes through the wrapper, and the works save."""
    ended = in_container["saves"]
    wait_until((ended.run_dir / "report.json").exists, what="a report")
    logs = sorted(ended.run_dir.glob("attempt-0/rank*.log"))
    assert ["saved" in log.read_text() for log in logs] == [True, True], ended.read_logs()
    assert ended.report["state"] == "CANCELLED"


def test_a_warning_reaches_the_workers_in_the_container(in_container: dict[str, EndedOnSlurm]) -> None:
    """SIGUSR2 goes through the wrapper: the works save, the job is requeued, and the next attempt goes on."""
    ended = in_container["is warned"]
    for rank in (0, 1):
        first = (ended.run_dir / f"attempt-0/rank{rank}.log").read_text()
        assert "saved" in first, ended.read_logs()
        last = (ended.run_dir / f"attempt-1/rank{rank}.log").read_text()
        assert "finished" in last, ended.read_logs()
        assert "step 0\n" not in last
    assert ended.report["state"] == "COMPLETED"


def test_a_step_of_an_allocation_runs_in_the_container(on_slurm: OnSlurm) -> None:
    """With ``cluster=step`` the agents are wrapped in the same way."""
    env = _with_stand_in(on_slurm)
    words = on_slurm.plain("ranks.py:tell_env", "work.kwargs.prefixes=[IN_CONTAINER]")
    container = ["cluster.container=x.sif", "cluster.python=python"]
    ended = on_slurm.run(*words, *container, before=["salloc", "-N2", "--ntasks-per-node=1"], env=env)
    assert ended.code == 0, ended.err
    assert {rank: told["IN_CONTAINER"] for rank, told in ended.ranks().items()} == {0: "x.sif", 1: "x.sif"}


def test_a_persons_own_pieces_come_first(on_slurm: OnSlurm) -> None:
    """A set-up and a wrapper in one's own configuration folder are used, the set-up before the wrapper."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "conf/sbatch_templates/setup/modules.sh.j2", "export MINE_A={{ word }}\n")
    on_slurm.write(cwd, "conf/sbatch_templates/wrapper/mine.sh.j2", "env MINE_B={{ num_nodes }}\n{{ command }}\n")
    on_slurm.write(cwd, "conf/cluster/site.yaml", "template: [modules, mine]\nvars: {word: a 'b' $c}\n")
    words = on_slurm.plain("ranks.py:tell_env", "work.kwargs.prefixes=[MINE]", "nodes=2", "cluster=site")
    ended = on_slurm.run(f"--config-dir={cwd}/conf", *words, cwd=cwd)
    assert ended.code == 0, ended.err
    on_slurm.wait_for_end(ended.job_id)
    assert ended.logged() == {rank: {"MINE_A": "a 'b' $c", "MINE_B": "2"} for rank in (0, 1)}, ended.read_logs()


def _submit_by_hand(on_slurm: OnSlurm, folder: Path, *words: str) -> Mapping[str, str]:
    done = on_slurm.cluster.run(["sbatch", "--parsable", *words], cwd=folder, check=True)
    return on_slurm.wait_for_end(done.stdout.strip())


def test_the_sbatch_file_runs_a_job_by_hand(on_slurm: OnSlurm) -> None:
    """``sbatch sbatch_templates/multinode.sbatch WORDS`` trains on the nodes of the job, and its code is the run's."""
    cwd = on_slurm.make_folder()
    script = str(TESTS.parent / "sbatch_templates/multinode.sbatch")
    job = _submit_by_hand(on_slurm, cwd, script, "strategy=lite", "work.target=on_nodes.py:lite")
    (log,) = cwd.glob("multinode-*.out")
    assert (job["JobState"], job["NumNodes"]) == ("COMPLETED", "2"), log.read_text()
    (run_dir,) = (cwd / "runs").iterdir()
    report = json.loads((run_dir / "report.json").read_text())
    assert (report["state"], report["world_size"]) == ("COMPLETED", 2)
    words = [f"--config-dir={PLAIN_CONFIG}", "strategy=plain", f"work.target={WORKS}/ends.py:exit_with"]
    failed = _submit_by_hand(on_slurm, cwd, script, *words, "work.kwargs.code=3")
    assert (failed["JobState"], failed["ExitCode"]) == ("FAILED", "3:0")


def test_a_standalone_script_can_be_submitted_again_and_again(on_slurm: OnSlurm) -> None:
    """``render --standalone > job.sh; sbatch job.sh`` from anywhere makes a run of its own each time."""
    cwd = on_slurm.make_folder()
    words = on_slurm.plain("ranks.py:tell_env", "work.kwargs.prefixes=[MINE]", "env.MINE=it's $x", "name=a (b)")
    done = on_slurm.run("render", "--standalone", *words, "nodes=2", "resources.time=5", cwd=cwd)
    assert done.code == 0, done.err
    script = on_slurm.write(cwd, "job.sh", done.out)
    jobs = [_submit_by_hand(on_slurm, on_slurm.cluster.shared, "--output=/dev/null", str(script)) for _ in range(2)]
    assert [(job["JobState"], job["NumNodes"], job["TimeLimit"]) for job in jobs] == [
        ("COMPLETED", "2", "00:05:00")
    ] * 2
    run_dirs = sorted((cwd / "runs").iterdir())
    assert len(run_dirs) == 2
    for run_dir in run_dirs:
        assert json.loads((run_dir / "attempt-0/rank1.log").read_text()) == {"MINE": "it's $x"}


def test_a_standalone_script_keeps_the_words_of_a_script(on_slurm: OnSlurm) -> None:
    """What stands behind ``--`` reaches the work's own command line, also from a snapshot, after other jobs."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "say.py", "import sys; print(sys.argv[1:])")
    words = ["strategy=script", "strategy.preload=[]", "work.target=say.py", "snapshot=true", "after=chain"]
    done = on_slurm.run("render", "--standalone", *words, "--", "--lr", "a b", cwd=cwd)
    script = on_slurm.write(cwd, "job.sh", done.out)
    assert _submit_by_hand(on_slurm, cwd, str(script))["JobState"] == "COMPLETED"
    (log,) = (cwd / "runs").glob("*/attempt-0/rank0.log")
    assert shlex.split(log.read_text().strip().strip("[]").replace(",", "")) == ["--lr", "a b"]
