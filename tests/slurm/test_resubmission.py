"""A run that goes on in a new job, where scontrol requeue is forbidden, or is done by the batch script outside."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.conftest import wait_until
from tests.slurm.test_stop import ended_by, read_report, read_steps, wait_for_final, wait_for_log

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slurm.conftest import EndedOnSlurm, OnSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(400)]

# A site's sbatch that takes people's own scripts and nothing else, and one that loses Slurm's answers.
_REFUSING_SBATCH = """#!/bin/bash
case "$*" in *requeue-*) echo "sbatch: error: not from a node" >&2; exit 1;; esac
exec /usr/bin/sbatch "$@"
"""
_DEAF_SBATCH = """#!/bin/bash
case "$*" in *requeue-*) /usr/bin/sbatch "$@" >&2; echo "sbatch: error: Socket timed out" >&2; exit 1;; esac
exec /usr/bin/sbatch "$@"
"""
# Like a container without Slurm's commands, that passes signals on.
_HIDES_SLURM = "env PATH=/nowhere {{ command }}\n"
# Told between 10 and 40 s after the start: Slurm looks every 30 s, and warns rather too early than too late.
SOON = ["resources.time=1", "stop.warn_s=20", "stop.grace_s=8", "requeue.enabled=true", "resources.workers_per_node=2"]
AGAIN = "requeue.method=resubmit"


@pytest.fixture(scope="module")
def runs(on_slurm: OnSlurm) -> dict[str, EndedOnSlurm]:
    """Submit runs that come to their limit or are preempted, side by side, and leave them running."""

    def submit(work: str, *words: str, sbatch: str = "", wrapper: str = "") -> EndedOnSlurm:
        cwd = on_slurm.make_folder()
        before: tuple[str, ...] = ()
        if sbatch:
            on_slurm.write(cwd, "bin/sbatch", sbatch, mode=0o755)
            before = ("sh", "-c", 'PATH=$PWD/bin:$PATH exec "$@"', "sh")
        if wrapper:
            on_slurm.write(cwd, "conf/sbatch_templates/wrapper/mine.sh.j2", wrapper)
            words = ("--config-dir=conf", "cluster.template=mine", *words)
        ended = on_slurm.run(*on_slurm.plain(f"saver.py:{work}", *words), cwd=cwd, before=before)
        assert ended.code == 0, ended.err
        return ended

    here = f"resources.nodelist={on_slurm.cluster.node_names[0]}"
    there = f"resources.nodelist={on_slurm.cluster.node_names[2]}"
    started = {
        "limit": submit("polls", AGAIN, there, *SOON),
        "most": submit("polls", "work.kwargs.steps=9999", AGAIN, "requeue.max=1", there, *SOON),
        "refused": submit(
            "polls", "work.kwargs.steps=9999", AGAIN, "requeue.exit_code=99", there, *SOON, sbatch=_REFUSING_SBATCH
        ),
        "no answer": submit("polls", AGAIN, there, *SOON, sbatch=_DEAF_SBATCH),
        "outside": submit("polls", there, *SOON, wrapper=_HIDES_SLURM),
        "sweep": submit("polls", "-m", "work.kwargs.seconds=0.3,0.31", AGAIN, there, *SOON),
    }
    started["preempted"] = submit("polls", AGAIN, here, "resources.workers_per_node=2")
    wait_for_log(started["preempted"], "step 5")
    urgent = on_slurm.cluster.submit_urgent("sleep 1", "-N1", "-w", on_slurm.cluster.node_names[0])
    on_slurm.cluster.wait_for_job(urgent, "COMPLETED")
    return started


def answers_of(run_dir: Path) -> list[str]:
    """Return what sbatch answered each time that a run went on in a new job, oldest first."""
    files = sorted(run_dir.glob("requeue-*.out"), key=lambda file: file.stat().st_mtime)
    return [file.read_text() for file in files]


def test_a_point_of_a_sweep_goes_on_alone(runs: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """One task of an array goes on in an array of its own, under the same number, and counts as queued till then."""
    folder = runs["sweep"].run_dir
    wait_until(lambda: answers_of(folder / "1"), what="a new job of point 1", timeout_s=100)
    words = [*on_slurm.plain("saver.py:polls"), "-m", "work.kwargs.seconds=0.3,0.31", "rerun=failed"]
    again = on_slurm.run(*words, cwd=runs["sweep"].cwd)
    assert "left out: points 0-1 wait or run" in again.out, again.out + again.err
    wait_until(lambda: read_report(folder / "1").get("state") == "COMPLETED", what="the end of point 1", timeout_s=100)
    report = read_report(folder / "1")
    (number,) = re.findall(r"\d+", answers_of(folder / "1")[-1])
    assert report["job_id"] == f"{number}_1"


@pytest.mark.parametrize(("name", "end"), [("limit", "requeue"), ("preempted", "preempted"), ("no answer", "requeue")])
def test_a_run_goes_on_in_a_new_job(runs: dict[str, EndedOnSlurm], name: str, end: str) -> None:
    """The new job has the run's folder and attempt count; every step is done once, and no job is submitted twice."""
    run = runs[name]
    report = wait_for_final(run)
    assert report["state"] == "COMPLETED", run.read_logs()
    assert ended_by(report)[-1] == "success"
    assert set(ended_by(report)[:-1]) == {end}
    for rank in range(2):
        steps = read_steps(run, rank)
        assert steps == list(range(len(steps)))
    jobs = [run.job_id, *(re.findall(r"\d+", answer)[0] for answer in answers_of(run.run_dir))]
    assert len(jobs) == len(report["attempts"]) >= 2
    assert report["job_id"] == jobs[-1]


def test_verbs_follow_the_run_by_any_of_its_jobs(runs: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """``wait`` by the job id that was printed waits for the last job; ``status`` and ``list`` show that one."""
    run = runs["limit"]
    waited = on_slurm.run("wait", run.job_id, cwd=run.cwd, timeout_s=100)
    assert waited.code == 0, waited.err
    (newest,) = re.findall(r"\d+", answers_of(run.run_dir)[-1])
    for word in (run.job_id, newest):
        told = json.loads(on_slurm.run("status", "--json", word, cwd=run.cwd).out)
        assert (told["run"], told["job_id"], told["state"]) == (run.run_dir.name, newest, "COMPLETED")
    after = on_slurm.run("render", f"after={run.job_id}", cwd=run.cwd)
    assert "dependency" not in after.out, after.err


def test_resubmissions_are_counted(runs: dict[str, EndedOnSlurm]) -> None:
    """requeue.max holds for new jobs as well."""
    report = wait_for_final(runs["most"])
    assert (report["state"], ended_by(report)) == ("TIMEOUT", ["requeue", "time_limit"])
    assert len(answers_of(runs["most"].run_dir)) == 1


def test_a_refusal_is_in_the_report(runs: dict[str, EndedOnSlurm], on_slurm: OnSlurm) -> None:
    """Where sbatch refuses, its words are in the report, and the job ends with the site's code."""
    run = runs["refused"]
    assert on_slurm.wait_for_end(run.job_id)["ExitCode"] == "99:0"
    report = read_report(run.run_dir)
    assert (report["state"], report["exit_code"], report["failure_class"]) == ("TIMEOUT", 99, "time_limit")
    assert report["notes"] == ["not requeued, though it was to be: sbatch: error: not from a node"]
    assert ended_by(report) == ["time_limit"]
    assert list(run.run_dir.glob("saved-*.json"))


def test_the_batch_script_requeues_what_the_agents_cannot(runs: dict[str, EndedOnSlurm]) -> None:
    """Without scontrol around the agents, the batch script requeues the job once they have ended."""
    run = runs["outside"]
    report = wait_for_final(run)
    assert report["state"] == "COMPLETED", run.read_logs()
    assert (report["job_id"], set(ended_by(report)[:-1])) == (run.job_id, {"requeue"})
    for rank in range(2):
        steps = read_steps(run, rank)
        assert steps == list(range(len(steps)))
