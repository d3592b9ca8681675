"""Preemption, time limit, cancel, lost node: workers are told, save, and the job comes back once and goes on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import find_processes, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = pytest.mark.slurm


# As a site may have it: everything can be asked, nothing can be requeued.
_REFUSING_SCONTROL = """#!/bin/sh
if [ "$1" = requeue ]; then echo "slurm_requeue error: Access/permission denied" >&2; exit 1; fi
exec /usr/bin/scontrol "$@"
"""


def submit(
    on_slurm: OnSlurm, work: str, *words: str, cwd: Path | None = None, file: str = "saver.py", strategy: str = "plain"
) -> EndedOnSlurm:
    """Submit one of the works of ``saver.py``."""
    all_words = on_slurm.plain(f"{file}:{work}", "resources.workers_per_node=2", *words)
    ended = on_slurm.run(*(word.replace("strategy=plain", f"strategy={strategy}") for word in all_words), cwd=cwd)
    assert ended.code == 0, ended.err
    return ended


def read_report(run_dir: Path) -> dict[str, Any]:
    """Return the report as it is now; empty where there is none."""
    path = run_dir / "report.json"
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return report


def wait_for_final(run: EndedOnSlurm, *, timeout_s: float = 200) -> dict[str, Any]:
    """Wait for a report that is not that of a requeue."""
    wait_until(
        lambda: read_report(run.run_dir).get("state", "REQUEUED") != "REQUEUED",
        what=f"the end of {run.run_dir.name}",
        timeout_s=timeout_s,
        show=run.read_logs,
    )
    return read_report(run.run_dir)


def wait_for_log(run: EndedOnSlurm, text: str, *, attempt: int = 0, ranks: int = 2) -> None:
    """Wait until so many ranks have written a text."""
    wait_until(
        lambda: sum(
            text in log.read_text(errors="replace") for log in run.run_dir.glob(f"attempt-{attempt}/rank*.log")
        ) >= ranks,
        what=f"{text!r} in {ranks} logs",
        timeout_s=60,
        show=run.read_logs,
    )  # fmt: skip


def read_steps(run: EndedOnSlurm, rank: int) -> list[int]:
    """Return the steps that a rank has done in all attempts, in order."""
    logs = sorted(run.run_dir.glob(f"attempt-*/rank{rank}.log"), key=lambda log: int(log.parent.name[8:]))
    return [int(step) for log in logs for step in re.findall(r"^step (\d+)$", log.read_text(), re.MULTILINE)]


def assert_each_step_done_once(run: EndedOnSlurm, rank: int) -> None:
    """Both attempts together have done every step, none twice; the second has done its twenty."""
    steps = read_steps(run, rank)
    assert steps == list(range(len(steps)))
    last = (run.run_dir / f"attempt-1/rank{rank}.log").read_text()
    assert len(re.findall(r"^step ", last, re.MULTILINE)) == 20


def ended_by(report: dict[str, Any]) -> list[str]:
    """Return how each attempt ended."""
    return [attempt["ended_by"] for attempt in report["attempts"]]


@pytest.fixture(scope="module")
def limited(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Submit runs with a time limit of a minute, side by side, and leave them running until the end of the module."""
    there = f"resources.nodelist={on_slurm.cluster.node_names[2]}"
    # Told between 10 and 40 s after their start: Slurm looks every 30 s, and warns rather too early than too late.
    soon = ["resources.time=1", "stop.warn_s=20", "stop.grace_s=20", there]
    requeued = [*soon, "requeue.enabled=true"]
    cwd = on_slurm.make_folder()
    on_slurm.write(cwd, "bin/scontrol", _REFUSING_SCONTROL, mode=0o755)
    return {
        "requeued": submit(on_slurm, "polls", *requeued),
        "at most": submit(on_slurm, "polls", "work.kwargs.steps=9999", *requeued, "requeue.max=1"),
        "idle": submit(on_slurm, "never_saves", *requeued),
        "not requeued": submit(on_slurm, "polls", "work.kwargs.steps=9999", *soon),
        "through": submit(on_slurm, "deaf_for", "work.kwargs.seconds=45", *soon),
        "refused": submit(
            on_slurm, "polls", "work.kwargs.steps=9999", *requeued, "requeue.exit_code=99",
            "cluster.setup=['export PATH=$PWD/bin:$PATH']", cwd=cwd,
        ),
        "deaf": submit(on_slurm, "deaf", "work.kwargs.seconds=600", "resources.time=1", there),
    }  # fmt: skip


@pytest.fixture(scope="module")
def preempted(on_slurm: OnSlurm, limited: dict[str, EndedOnSlurm]) -> Iterator[dict[str, EndedOnSlurm]]:
    """Preempt runs of several kinds at once, and wait until all are through."""
    del limited  # they run on the third node meanwhile
    here = ",".join(on_slurm.cluster.node_names[:2])
    there = [f"resources.nodelist=[{here}]"]
    one = [f"resources.nodelist={on_slurm.cluster.node_names[0]}"]
    runs = {
        "polls": submit(on_slurm, "polls", "nodes=2", *there),
        "without context": submit(on_slurm, "polls_without_context", *one),
        "USR2": submit(on_slurm, "handles", "work.kwargs.name=SIGUSR2", *one),
        "TERM": submit(on_slurm, "handles", "work.kwargs.name=SIGTERM", *one),
        "warned": submit(on_slurm, "polls", "resources.time=30", *one),
        "ignores": submit(on_slurm, "ignores_term", *one),
        "trainer": submit(on_slurm, "slow_at_first", "nodes=2", *there, file="trainers.py", strategy="lightning"),
        "forbidden": submit(on_slurm, "polls", "work.kwargs.steps=9999", "requeue.enabled=false", *one),
    }
    for name, run in runs.items():
        wait_for_log(run, "ready" if name == "ignores" else "step 5", ranks=4 if name in ("polls", "trainer") else 2)
    urgent = on_slurm.cluster.submit_urgent("sleep 1", "-N2", "-w", here)
    on_slurm.cluster.wait_for_job(urgent, "COMPLETED")
    yield runs
    on_slurm.cluster.run(["scancel", runs["ignores"].job_id])


def test_after_a_preemption_the_run_goes_on(preempted: dict[str, EndedOnSlurm]) -> None:
    """Told at once, all ranks save; the job comes back exactly once, in the same folder, with logs of both attempts."""
    report = wait_for_final(preempted["polls"])
    assert (report["state"], ended_by(report)) == ("COMPLETED", ["preempted", "success"])
    assert report["attempts"][0]["requeued"]
    phases = report["attempts"][0]["phases"]
    assert list(phases)[-2:] == ["process_group", "first_step"]
    assert phases["process_group"] <= phases["first_step"]
    for rank in range(4):
        assert_each_step_done_once(preempted["polls"], rank)
    assert "saved" in (preempted["polls"].run_dir / "attempt-0/rank3.log").read_text()


@pytest.mark.parametrize("how", ["without context", "USR2", "TERM"])
def test_every_way_to_be_told_saves(preempted: dict[str, EndedOnSlurm], how: str) -> None:
    """Without a context, by a handler of SIGUSR2 or of SIGTERM, each step is done once over both attempts."""
    report = wait_for_final(preempted[how])
    assert (report["state"], ended_by(report)) == ("COMPLETED", ["preempted", "success"])
    for rank in range(2):
        assert_each_step_done_once(preempted[how], rank)


def test_a_preemption_that_begins_with_the_warning(preempted: dict[str, EndedOnSlurm]) -> None:
    """With preempt_send_user_signal a job that asks for a warning gets that at once, long before its limit."""
    report = wait_for_final(preempted["warned"])
    assert (report["state"], ended_by(report)) == ("COMPLETED", ["preempted", "success"])
    for rank in range(2):
        assert_each_step_done_once(preempted["warned"], rank)
    lines = (preempted["warned"].run_dir / "attempt-0/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    # The requeue, which is ours, ends the step with SIGTERM.
    assert next(one["signal"] for one in events if one["kind"] == "signal") == "SIGUSR2"


def test_a_trainer_goes_on_by_itself(preempted: dict[str, EndedOnSlurm]) -> None:
    """Code that says nothing of it: all ranks end after the same step, and the next attempt's fit does the rest."""
    run = preempted["trainer"]
    report = wait_for_final(run)
    assert (report["state"], ended_by(report)) == ("COMPLETED", ["preempted", "success"]), run.read_logs()
    firsts = set()
    for rank in range(4):
        first, second = ((run.run_dir / f"attempt-{number}/rank{rank}.log").read_text() for number in (0, 1))
        steps = [re.findall(r"^step (\d+)", text, re.MULTILINE) for text in (first, second)]
        assert [int(step) for step in steps[0] + steps[1]] == list(range(100))
        firsts.add(len(steps[0]))
    assert len(firsts) == 1, firsts
    assert report["attempts"][0]["step"] == firsts.pop()
    assert "first_step" in report["attempts"][0]["phases"]
    assert not (run.run_dir / "trainer").exists()


def test_a_work_that_will_not_end_is_killed_and_requeued(preempted: dict[str, EndedOnSlurm]) -> None:
    """Inside the grace that the site gives, the worker is killed and the job comes back."""
    wait_for_log(preempted["ignores"], "ready", attempt=1)
    record = json.loads((preempted["ignores"].run_dir / "attempt-0/attempt.json").read_text())
    assert (record["ended_by"], record["requeued"]) == ("preempted", True)


def test_a_run_that_forbids_it_does_not_come_back(preempted: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """With requeue.enabled=false a preempted run saves and is over."""
    report = wait_for_final(preempted["forbidden"])
    assert (report["state"], report["failure_class"]) == ("PREEMPTED", "preempted")
    job = on_slurm.cluster.job(preempted["forbidden"].job_id)
    assert (job["Requeue"], job["Restarts"]) == ("0", "0")


def test_a_cancelled_run_saves_and_stays_away(on_slurm: OnSlurm) -> None:
    """Scancel tells the workers, requeues nothing, and leaves no process."""
    run = submit(on_slurm, "polls", "nodes=2")
    wait_for_log(run, "step 3", ranks=4)
    on_slurm.cluster.run(["scancel", run.job_id], check=True)
    report = wait_for_final(run)
    assert (report["state"], report["failure_class"], report["exit_code"]) == ("CANCELLED", "cancelled", 143)
    assert ended_by(report) == ["cancelled"]
    wait_for_log(run, "saved", ranks=4)
    assert on_slurm.wait_for_end(run.job_id)["JobState"] == "CANCELLED"
    wait_until(lambda: not find_processes(f"SLURM_JOB_ID={run.job_id}"), what="no process is left")


def test_a_signal_to_one_node_is_told(on_slurm: OnSlurm) -> None:
    """An agent that is ended by hand, or by a node that shuts down, is named: nobody has cancelled the job."""
    hosts = on_slurm.cluster.node_names[:2]
    run = submit(on_slurm, "polls", "nodes=2", f"resources.nodelist=[{','.join(hosts)}]")
    wait_for_log(run, "step 3", ranks=4)
    agent = f"hpc_multinode[.]node .*{run.run_dir.name}"
    on_slurm.cluster.run(["pkill", "-TERM", "-f", agent], host=hosts[1], check=True)
    report = wait_for_final(run)
    assert (report["state"], ended_by(report)) == ("CANCELLED", ["cancelled"])
    assert f"only node 1 ({hosts[1]}) got a signal to end" in report["notes"][0]
    wait_for_log(run, "saved", ranks=4)


def test_a_lost_node_brings_the_run_back(on_slurm: OnSlurm) -> None:
    """When a node is gone Slurm requeues, the next attempt goes on, and the report tells both."""
    names = on_slurm.cluster.node_names
    words = ("nodes=2", f"resources.nodelist=[{names[0]},{names[1]}]")
    run = submit(on_slurm, "saves_every_step", *words, "launch.heartbeat_timeout_s=5")
    wait_for_log(run, "step 3", ranks=4)
    on_slurm.cluster.kill_node(1)
    try:
        wait_until(lambda: on_slurm.cluster.job(run.job_id)["Restarts"] == "1", what="Slurm's requeue")
    finally:
        on_slurm.cluster.revive_node(1)
    on_slurm.wait_for_end(run.job_id)
    report = read_report(run.run_dir)
    assert (report["state"], ended_by(report)) == ("COMPLETED", ["lost_node", "success"])
    for rank in range(4):
        steps = read_steps(run, rank)
        again = {step for step in steps if steps.count(step) > 1}
        assert sorted(set(steps)) == list(range(len(set(steps))))
        assert len(again) <= 1, again  # the step in which it was lost, at most


# -- what was submitted first, and has reached its limit by now -----------------------------------------------------


def test_at_the_time_limit_the_run_goes_on(limited: dict[str, EndedOnSlurm]) -> None:
    """Told before its limit, a run saves, comes back, and does every step once."""
    report = wait_for_final(limited["requeued"])
    assert report["state"] == "COMPLETED", limited["requeued"].read_logs()
    assert ended_by(report) == ["requeue", "success"]
    for rank in range(2):
        assert_each_step_done_once(limited["requeued"], rank)


def test_requeues_of_ours_are_counted(limited: dict[str, EndedOnSlurm]) -> None:
    """After requeue.max the report says TIMEOUT, and what was saved stays."""
    report = wait_for_final(limited["at most"])
    assert (report["state"], report["failure_class"], report["exit_code"]) == ("TIMEOUT", "time_limit", 143)
    assert ended_by(report) == ["requeue", "time_limit"]
    assert "requeue.max=1 is used up" in report["notes"][0]
    assert report["attempts"][1]["step"] > report["attempts"][0]["step"]


def test_a_run_that_saves_nothing_new_is_not_requeued_for_ever(limited: dict[str, EndedOnSlurm]) -> None:
    """Two attempts in a row without anything new end the run, and it says so."""
    report = wait_for_final(limited["idle"])
    assert report["state"] == "TIMEOUT"
    assert ended_by(report) == ["requeue", "requeue", "time_limit"]
    assert "saved nothing new; the last step saved is 7" in report["notes"][0]


def test_without_being_asked_nobody_is_requeued_at_the_limit(limited: dict[str, EndedOnSlurm]) -> None:
    """By default a run is told before its limit, saves and ends as TIMEOUT."""
    report = wait_for_final(limited["not requeued"])
    assert (report["state"], report["failure_class"]) == ("TIMEOUT", "time_limit")
    assert ended_by(report) == ["time_limit"]
    assert report["attempts"][0]["step"] is not None


def test_a_work_that_does_not_listen_comes_to_its_end(limited: dict[str, EndedOnSlurm]) -> None:
    """A warning does not end a work that could save nothing, and may be through before the limit."""
    report = wait_for_final(limited["through"])
    assert (report["state"], report["exit_code"]) == ("COMPLETED", 0), limited["through"].read_logs()


def test_what_slurm_says_against_a_requeue_is_told(limited: dict[str, EndedOnSlurm]) -> None:
    """Where scontrol refuses, its words and the site's exit code are in the report, and the save stays."""
    report = wait_for_final(limited["refused"])
    assert (report["state"], report["exit_code"], ended_by(report)) == ("TIMEOUT", 99, ["time_limit"])
    assert "Access/permission denied" in report["notes"][0]
    assert not report["attempts"][0]["requeued"]
    wait_for_log(limited["refused"], "saved")


def test_a_work_that_does_not_listen_ends_at_its_limit(limited: dict[str, EndedOnSlurm]) -> None:
    """Without a way to tell it, a run ends at its limit as TIMEOUT, and Slurm leaves the time to say so."""
    report = wait_for_final(limited["deaf"], timeout_s=150)
    assert (report["state"], report["failure_class"]) == ("TIMEOUT", "time_limit")
