"""One start, one stop and one root cause for all nodes, where nodes, networks and processes really go."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import find_processes, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.conftest import OnSlurm

pytestmark = pytest.mark.slurm

_STEP = ("srun", "-N3", "--ntasks-per-node=1")


def submit_sleepers(on_slurm: OnSlurm, *words: str) -> tuple[Path, str]:
    """Submit a run on three nodes whose ranks sleep; return its folder and its job once all run."""
    started = on_slurm.start(*on_slurm.plain("ends.py:sleep", "nodes=3", "resources.sbatch.no-requeue=true", *words))
    ended = on_slurm.finish(started)
    assert ended.code == 0, ended.err
    on_slurm.wait_for_text(started, "sleeping", ranks=3)
    return ended.run_dir, ended.job_id


def find_agent(run_dir: Path, node_rank: int) -> int:
    """Return the pid of a node's agent."""
    found = [
        pid
        for pid in find_processes(f"SLURM_NODEID={node_rank}")
        if _read_command(pid).split(b"\0")[1:4] == [b"-m", b"hpc_multinode.node", str(run_dir).encode()]
    ]
    (agent,) = found
    return agent


def _read_command(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - procfs
            return file.read()
    except OSError:
        return b""


def find_ours(job_id: str) -> list[int]:
    """Return the agents, forkservers and workers of a job on all nodes."""
    return [
        pid
        for pid in find_processes(f"SLURM_JOB_ID={job_id}")
        if re.match(rb"[^\0]+\0-m\0hpc_multinode\.node", _read_command(pid))
    ]


def read_report(run_dir: Path) -> dict[str, Any]:
    """Wait for the report and return it."""
    wait_until((run_dir / "report.json").exists, what="the report")
    report: dict[str, Any] = json.loads((run_dir / "report.json").read_text())
    return report


def test_killed_agent_is_named_and_stops_the_others(on_slurm: OnSlurm) -> None:
    """An agent that is killed with -9 is the root cause by name, though srun's SIGTERM to the others follows it."""
    run_dir, job_id = submit_sleepers(on_slurm)
    os.kill(find_agent(run_dir, 1), signal.SIGKILL)
    killed = time.monotonic()
    wait_until(lambda: not find_ours(job_id), what="every process gone")
    assert time.monotonic() - killed < 10
    report = read_report(run_dir)
    assert (report["state"], report["failure_class"]) == ("NODE_FAIL", "lost_node")
    cause = report["root_cause"]
    assert (cause["node_rank"], cause["host"]) == (1, report["attempts"][0]["nodes"][1])
    on_slurm.wait_for_end(job_id)


def test_killed_main_agent_ends_the_others(on_slurm: OnSlurm) -> None:
    """Where node 0's agent dies the others end their workers, and say that it was the coordinator."""
    run_dir, job_id = submit_sleepers(on_slurm)
    os.kill(find_agent(run_dir, 0), signal.SIGKILL)
    wait_until(lambda: not find_ours(job_id), what="every process gone")
    assert "the coordinator on node 0" in (run_dir / "attempt-0/node2.log").read_text()
    assert on_slurm.wait_for_end(job_id)["JobState"] == "FAILED"


def test_node_whose_network_is_cut_is_named(on_slurm: OnSlurm) -> None:
    """A node that is heard of no more is lost by its missing heartbeats; it stops its own workers by itself."""
    run_dir, job_id = submit_sleepers(on_slurm, "launch.heartbeat_timeout_s=3")
    on_slurm.cluster.cut_network(2)
    try:
        report = read_report(run_dir)
        wait_until(lambda: not find_ours(job_id), what="all end, on the node that is cut off too")
    finally:
        on_slurm.cluster.restore_network(2)
        on_slurm.cluster.run(["scancel", job_id])
    assert (report["state"], report["failure_class"]) == ("NODE_FAIL", "lost_node")
    assert report["root_cause"]["node_rank"] == 2
    assert "no heartbeat" in report["root_cause"]["message"]
    on_slurm.cluster.wait_for_node(2, "idle")


def test_node_that_never_comes_is_named_by_all(on_slurm: OnSlurm) -> None:
    """At the join timeout the run ends with who is missing, and every node that waited says so."""
    cwd = on_slurm.make_folder()
    late = on_slurm.write(cwd, "late.sh", '#!/bin/sh\n[ "$SLURM_NODEID" = 2 ] && exec sleep 100\nexec python "$@"\n')
    late.chmod(0o755)
    words = ["nodes=3", "launch.join_timeout_s=3", "cluster.python=/bin/sh ../../late.sh"]
    ended = on_slurm.run(*on_slurm.plain("plain", *words), cwd=cwd)
    job = on_slurm.wait_for_end(ended.job_id)
    assert job["JobState"] == "FAILED", ended.read_logs()
    report = ended.report
    assert (report["failure_class"], report["root_cause"]["node_rank"]) == ("rendezvous", 2)
    host = on_slurm.cluster.node_names[2]
    assert report["root_cause"]["message"].startswith("did not come within 3 s")
    for rank in (0, 1):
        said = next((ended.run_dir / "submitit").glob(f"*_{rank}_log.out")).read_text()
        assert f"node 2 ({host}): did not come" in said, ended.read_logs()


def test_node_0_that_never_comes_is_told_by_the_others(on_slurm: OnSlurm) -> None:
    """Nodes that find no coordinator say where they looked and what they met there."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "late.sh", '[ "$SLURM_NODEID" = 0 ] && exec sleep 100\nexec python "$@"\n')
    words = ["nodes=2", "launch.join_timeout_s=2", "cluster.python=/bin/sh ../../late.sh"]
    ended = on_slurm.run(*on_slurm.plain("plain", *words), cwd=cwd)
    on_slurm.wait_for_end(ended.job_id)
    said = next((ended.run_dir / "submitit").glob("*_1_log.out")).read_text()
    host = on_slurm.cluster.node_names
    assert f"error: node 1 ({host[1]}) found no coordinator within 2 s" in said
    assert f"node 0 ({host[0]})" in said
    assert "nobody listens" in said


def test_strangers_on_the_first_candidates_do_not_hinder_the_run(on_slurm: OnSlurm) -> None:
    """Where other programs hold the first ports, the nodes meet on the next."""
    cwd = on_slurm.make_folder()
    words = " ".join([*on_slurm.launcher, *(f"'{word}'" for word in on_slurm.plain("plain", "cluster=allocation"))])
    text = f"""
python -m hpc_multinode context --json > /dev/null
cat > squat.py <<'END'
import os, socket, time
from hpc_multinode.ports import make_port_candidates
ports = make_port_candidates(os.environ["SLURM_JOB_ID"], "0", "", "0", os.environ["USER"])
held = [socket.create_server(("", port)) for port in ports[:2]]
open("held", "w").write("yes\\n")
time.sleep(60)
END
python squat.py & squatter=$!
while [ ! -e held ]; do sleep 0.1; done
srun --overlap -N3 --ntasks-per-node=1 {words}; code=$?
kill $squatter
exit $code
"""
    ended = on_slurm.run_batch(text, "-N3", cwd=cwd)
    assert ended.code == 0, ended.out + ended.err
    assert sorted(ended.ranks()) == [0, 1, 2]


def test_restart_in_the_allocation(on_slurm: OnSlurm) -> None:
    """After a failure all nodes start again, with another port and other logs, in the same run folder."""
    cwd = on_slurm.make_folder()
    on_slurm.write(
        cwd, "again.py",
        "import time\n\n\ndef work(attempt, global_rank, main_port):\n"
        "    print('port', main_port)\n    time.sleep(0.2)\n"
        "    if attempt == 0 and global_rank == 1:\n        raise ValueError('not yet')\n"
        "    time.sleep(0.5)\n    print('done', attempt)\n",
    )  # fmt: skip
    words = on_slurm.plain("plain", "nodes=3", "restart.max=2", f"work.target={cwd}/again.py:work")
    ended = on_slurm.run(*words, cwd=cwd)
    assert on_slurm.wait_for_end(ended.job_id)["JobState"] == "COMPLETED", ended.read_logs()
    report = ended.report
    assert [(one["attempt"], one["ended_by"]) for one in report["attempts"]] == [(0, "restart"), (1, "success")]
    assert "ValueError: not yet" in report["attempts"][0]["cause"]
    logs = [[(ended.run_dir / f"attempt-{n}/rank{rank}.log").read_text() for rank in range(3)] for n in (0, 1)]
    assert all("done 1" in log for log in logs[1])
    assert len({re.search(r"port (\d+)", log)[1] for log in logs[0] + logs[1]}) == 2  # type: ignore[index]


@pytest.mark.usefixtures("watched_memory")
def test_memory_that_runs_out_is_told_as_such(on_slurm: OnSlurm) -> None:
    """A worker that the kernel kills at the job's limit is the root cause, as out of memory, with what to raise."""
    words = ("nodes=2", "resources.mem_gb=0.4")
    ended = on_slurm.run(*on_slurm.plain("ends.py:fill_memory", *words))
    on_slurm.wait_for_end(ended.job_id)
    report = ended.report
    assert (report["state"], report["failure_class"]) == ("OUT_OF_MEMORY", "out_of_memory"), ended.read_logs()
    assert (report["root_cause"]["global_rank"], report["exit_code"]) == (1, 137)
    said = next((ended.run_dir / "submitit").glob("*_0_log.out")).read_text()
    assert "was killed by SIGKILL: the job's memory ran out" in said
    assert "next: raise resources.mem_gb" in said
