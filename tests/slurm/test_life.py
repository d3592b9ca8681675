"""The life of a job: queued, running, requeued, ended; asked for from another folder, with and without Slurm's help."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import PLAIN_CONFIG, wait_until
from tests.slurm.conftest import OnSlurm

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.slurm.conftest import EndedOnSlurm, Started
    from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

SECOND_TIME_IS_QUICK = """
import time

def run(attempt):
    print(f"attempt {attempt} begins", flush=True)
    time.sleep(100 if attempt == 0 else 0.5)

def fail(global_rank):
    print("loading", flush=True)
    if global_rank == 1: raise ValueError("no such luck")
    time.sleep(100)
"""


def submit(on: OnSlurm, *words: str, work: str = "ends.py:sleep") -> EndedOnSlurm:
    """Submit a job of two nodes from a fresh folder."""
    cwd = on.make_folder()
    on.write(cwd, "again.py", SECOND_TIME_IS_QUICK)
    own = work.startswith("again.py")
    ended = on.run(*(make_words(work) if own else on.plain(work, "nodes=2")), *words, cwd=cwd)
    assert ended.code == 0, ended.err
    return ended


def make_words(target: str, *words: str) -> list[str]:
    """Return the words for a work that lies where the person stands, on two nodes."""
    return [f"--config-dir={PLAIN_CONFIG}", "strategy=plain", f"work.target={target}", "nodes=2", *words]


def ask(on: OnSlurm, *words: str, timeout_s: float = 60) -> EndedOnSlurm:
    """Run a verb from another folder than the run's."""
    return on.run(*words, cwd=on.cluster.settings.home, timeout_s=timeout_s)


def look(on: OnSlurm, job_id: str) -> dict[str, Any]:
    """Return what ``list --json`` says of a job."""
    ended = ask(on, "list", "--json")
    assert ended.code == 0, ended.err
    (found,) = [one for one in json.loads(ended.out) if one["job_id"] == job_id]
    return dict(found)


def wait_for_state(on: OnSlurm, job_id: str, state: str) -> dict[str, Any]:
    """Ask until a run is in a state."""
    wait_until(lambda: look(on, job_id)["state"] == state, what=f"job {job_id} {state}")
    return look(on, job_id)


def wait_until_asleep(on: OnSlurm, ended: EndedOnSlurm, *, attempt: int = 0) -> None:
    """Wait until both ranks of an attempt have a log."""
    logs = ended.run_dir / f"attempt-{attempt}"
    wait_until(lambda: len(list(logs.glob("rank*.log"))) == 2, what="both ranks")
    assert look(on, ended.job_id)["attempt"] == attempt


def test_queued_job_tells_slurms_reason_and_is_cancelled(on_slurm: OnSlurm) -> None:
    """A held job is PENDING with the reason, ``cancel`` ends it, and the list knows that it was cancelled."""
    ended = submit(on_slurm, "resources.sbatch.hold=true")
    one = wait_for_state(on_slurm, ended.job_id, "PENDING")
    assert one["reason"] == "waiting: JobHeldUser"
    cancelled = ask(on_slurm, "cancel", ended.job_id)
    assert (cancelled.code, "CANCELLED" in cancelled.out) == (0, True), cancelled.err
    one = look(on_slurm, ended.job_id)
    assert (one["state"], one["exit_code"], one["is_over"]) == ("CANCELLED", 143, True)


def test_running_job_is_cancelled(on_slurm: OnSlurm) -> None:
    """``cancel`` returns when the job is gone from the nodes."""
    ended = submit(on_slurm)
    wait_until_asleep(on_slurm, ended)
    assert look(on_slurm, ended.job_id)["state"] == "RUNNING"
    cancelled = ask(on_slurm, "cancel", ended.run_dir.name)
    assert cancelled.code == 0, cancelled.err
    assert on_slurm.cluster.job(ended.job_id)["JobState"] == "CANCELLED"
    assert look(on_slurm, ended.job_id)["state"] == "CANCELLED"


def test_wait_in_submit_follows_and_ends_with_the_exit_code(on_slurm: OnSlurm) -> None:
    """``wait=true`` streams the ranks' lines and ends with the run's code and closing text."""
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "again.py", SECOND_TIME_IS_QUICK)
    ended = on_slurm.run(*make_words("again.py:fail", "wait=true"), cwd=cwd)
    assert ended.code == 1, ended.out + ended.err
    assert "[0-1] loading" in ended.out or "[1] loading" in ended.out
    assert "root cause: global_rank 1" in ended.out


@pytest.mark.usefixtures("watched_memory")
def test_memory_that_ran_out_below_a_worker_fails_the_run(on_slurm: OnSlurm) -> None:
    """Slurm kills a child of a worker and all workers end well: the run is a failure all the same, at once."""
    ended = submit(on_slurm, "resources.mem_gb=0.4", work="ends.py:fill_memory_below")
    waited = ask(on_slurm, "wait", ended.job_id)
    assert waited.code == 137, waited.out + waited.err
    assert "one of them had started" in waited.out
    assert look(on_slurm, ended.job_id)["state"] == "OUT_OF_MEMORY"


def test_ctrl_c_in_wait_leaves_the_job_alone(on_slurm: OnSlurm) -> None:
    """Ctrl-C in ``submit wait=true`` is exit code 130 and prints job and cancel command; the job goes on."""
    started = on_slurm.start(*on_slurm.plain("ends.py:sleep", "nodes=2", "wait=true"))
    wait_until(lambda: list(started.cwd.glob("runs/*/attempt-0/rank1.log")), what="a running job")
    on_slurm.cluster.signal_command(started.process, signal.SIGINT)
    ended = on_slurm.finish(started)
    assert ended.code == 130, ended.out + ended.err
    assert f"detached: job {ended.job_id} goes on" in ended.err
    assert f"python -m hpc_multinode cancel {ended.job_id}" in ended.err
    assert on_slurm.cluster.job(ended.job_id)["JobState"] == "RUNNING"
    assert ask(on_slurm, "cancel", ended.job_id).code == 0


def test_wait_and_logs_go_on_across_a_requeue(on_slurm: OnSlurm) -> None:
    """A job that is requeued is waited for until its second attempt has ended, and both attempts' logs are shown."""
    ended = submit(on_slurm, work="again.py:run")
    wait_until_asleep(on_slurm, ended)
    waiting: Started = on_slurm.start("wait", ended.job_id, cwd=on_slurm.cluster.settings.home)
    following: Started = on_slurm.start("logs", "-f", ended.job_id, cwd=on_slurm.cluster.settings.home)
    time.sleep(2)
    on_slurm.cluster.scontrol("requeue", ended.job_id)
    waited = on_slurm.finish(waiting, timeout_s=100)
    followed = on_slurm.finish(following, timeout_s=100)
    assert (waited.code, followed.code) == (0, 0), waited.err + followed.err
    assert "COMPLETED" in waited.out
    assert "attempt 0 begins" in followed.out
    assert "--- attempt 1 ---" in followed.out
    assert "attempt 1 begins" in followed.out


def test_wait_goes_on_across_a_preemption(on_slurm: OnSlurm) -> None:
    """A job that is preempted comes back by itself, is waited for through that, and its page has both attempts."""
    ended = submit(on_slurm, work="again.py:run")
    wait_until_asleep(on_slurm, ended)
    waiting = on_slurm.start("wait", ended.job_id, cwd=on_slurm.cluster.settings.home)
    urgent = on_slurm.cluster.submit_urgent("sleep 3", "--nodes=3")
    waited = on_slurm.finish(waiting, timeout_s=120)
    assert waited.code == 0, waited.out + waited.err + ask(on_slurm, "status", ended.job_id).out
    assert on_slurm.cluster.job(urgent)["JobState"] == "COMPLETED"
    one = look(on_slurm, ended.job_id)
    assert (one["state"], one["attempt"], len(one["attempts"])) == ("COMPLETED", 1, 2)
    page = on_slurm.cluster.settings.home / "page.html"
    assert ask(on_slurm, "report", ended.job_id, "--html", str(page)).code == 0
    assert all(f"attempt {number}: " in page.read_text() for number in range(2))


def test_run_is_cancelled_between_its_attempts(on_slurm: OnSlurm) -> None:
    """A job that was requeued and is held waits, keeps the logs of its first attempt, and is cancelled from there."""
    ended = submit(on_slurm, work="again.py:run")
    wait_until_asleep(on_slurm, ended)
    on_slurm.cluster.scontrol("requeuehold", ended.job_id)
    wait_until(lambda: look(on_slurm, ended.job_id)["state"] == "PENDING", what="a held job", timeout_s=60)
    one = look(on_slurm, ended.job_id)
    assert (one["is_over"], one["attempt"]) == (False, 0)
    assert one["reason"].startswith("waiting: ")
    cancelled = ask(on_slurm, "cancel", ended.job_id)
    assert cancelled.code == 0, cancelled.err
    assert on_slurm.cluster.job(ended.job_id)["JobState"] == "CANCELLED"
    assert look(on_slurm, ended.job_id)["is_over"]
    assert "attempt 0 begins" in ask(on_slurm, "logs", ended.job_id).out


def test_wait_goes_on_across_a_lost_node(on_slurm: OnSlurm) -> None:
    """When node 0 loses its power Slurm requeues the job, and ``wait`` ends with the next attempt's code."""
    ended = submit(on_slurm, work="again.py:run")
    wait_until_asleep(on_slurm, ended)
    first = on_slurm.cluster.job(ended.job_id)["BatchHost"]
    index = on_slurm.cluster.node_names.index(first)
    waiting = on_slurm.start("wait", ended.job_id, cwd=on_slurm.cluster.settings.home)
    on_slurm.cluster.kill_node(index)
    try:
        waited = on_slurm.finish(waiting, timeout_s=120)
        assert waited.code == 0, waited.out + waited.err + ask(on_slurm, "status", ended.job_id).out
        one = look(on_slurm, ended.job_id)
        assert (one["state"], one["attempt"]) == ("COMPLETED", 1)
    finally:
        on_slurm.cluster.revive_node(index)


def test_silent_controller_leaves_the_last_word_and_wait_goes_on(on_slurm: OnSlurm) -> None:
    """While slurmctld is down nothing fails: the list shows what is known, ``wait`` sees the end of the run."""
    ended = submit(on_slurm)
    wait_until_asleep(on_slurm, ended)
    waiting = on_slurm.start("wait", ended.job_id, cwd=on_slurm.cluster.settings.home)
    time.sleep(1)
    on_slurm.cluster.stop_slurmctld()
    try:
        listed = ask(on_slurm, "list", "--json")
        (one,) = [one for one in json.loads(listed.out) if one["job_id"] == ended.job_id]
        assert one["state"] == "RUNNING"
        assert "Traceback" not in listed.err
        assert waiting.process.poll() is None
    finally:
        on_slurm.cluster.start_slurmctld()
    assert ask(on_slurm, "cancel", ended.job_id).code == 0
    waited = on_slurm.finish(waiting)
    assert waited.code == 143, waited.out + waited.err
    assert "Traceback" not in waited.err


def test_set_up_that_fails_is_told_with_its_words(on_slurm: OnSlurm) -> None:
    """A job whose set-up line fails has no agents; ``wait`` tells what its output said."""
    ended = submit(on_slurm, "cluster.setup=[/bin/false]")
    waited = ask(on_slurm, "wait", ended.job_id)
    assert waited.code == 1, waited.out + waited.err
    assert "set-up line failed: /bin/false" in waited.out
    assert json.loads(ask(on_slurm, "wait", ended.job_id, "--json").out)["failure_class"] == "usage"


def test_array_task_without_registry_is_not_a_known_run(on_slurm: OnSlurm) -> None:
    """A job that we have not submitted is refused with the number of runs that are known."""
    ended = ask(on_slurm, "wait", "999999")
    assert ended.code == 2
    assert "no run is known by '999999'" in ended.err


def test_tasks_of_srun_are_in_the_list(on_slurm: OnSlurm) -> None:
    """A run of agents that srun started is listed with its job, and cancelled by its step."""
    started = on_slurm.start(*on_slurm.plain("ends.py:sleep"), before=["srun", "-N2", "--ntasks-per-node=1"])
    wait_until(lambda: list(started.cwd.glob("runs/*/attempt-0/rank1.log")), what="a running step")
    (run_dir,) = started.cwd.glob("runs/*")
    cancelled = ask(on_slurm, "cancel", run_dir.name)
    assert cancelled.code == 0, cancelled.err
    ended = on_slurm.finish(started)
    assert ended.report["state"] == "CANCELLED"


@pytest.mark.timeout(400)
def test_without_accounting_everything_is_known(make_cluster: Callable[..., SlurmCluster]) -> None:
    """On a cluster without slurmdbd states, ends and exit codes come from squeue, scontrol and the run folder."""
    own = make_cluster(nodes=2, extra_conf=("MinJobAge=5",))
    own.up()
    on = OnSlurm(own)
    good, bad = submit(on, work="ranks.py:Static"), submit(on, work="again.py:fail")
    waited = ask(on, "wait", bad.job_id)
    assert waited.code == 1, waited.out + waited.err
    held = submit(on, "resources.sbatch.hold=true")
    own.run(["scancel", held.job_id])
    killed = submit(on)
    wait_until_asleep(on, killed)
    own.run(["scancel", "--signal=KILL", killed.job_id])
    waited = ask(on, "wait", killed.job_id, timeout_s=100)
    assert waited.code not in (0, 130), waited.out + waited.err
    wait_until(lambda: "Invalid" in own.run(["scontrol", "show", "job", held.job_id]).stderr, what="a job forgotten")
    states = {job: look(on, job)["state"] for job in (good.job_id, bad.job_id, killed.job_id)}
    assert states[good.job_id] == "COMPLETED"
    assert states[bad.job_id] == "FAILED"
    assert states[killed.job_id] not in ("RUNNING", "PENDING", "COMPLETED")
    assert look(on, held.job_id)["state"] in ("CANCELLED", "UNKNOWN")
