"""What is asked of Slurm, how often, and what its odd answers mean: Slurm's commands are programs on the PATH."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.errors import SubmissionError
from hpc_multinode.life.cancelling import ask_to_end
from hpc_multinode.life.looking import Watcher, look_at, look_at_all, settle_later_word
from hpc_multinode.life.queue import Queue, make_interval
from hpc_multinode.life.waiting import wait_for_end
from tests.unit.life.runs import make_entry, make_report

if TYPE_CHECKING:
    from pathlib import Path

ROW = "4711|{state}|2025-12-01T10:00:00|2025-12-01T10:01:00|N/A|2|1:00:00|gpu|n[1-2]|{reason}"


class Slurm:
    """Programs that answer as a test says, and note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "calls"
        self.log.touch()

    def put(self, name: str, out: str = "", err: str = "", code: int = 0) -> None:
        """Let a command answer so from now on."""
        for suffix, text in (("out", out), ("err", err)):
            (self.folder / f"{name}.{suffix}").write_text(text)
        program = self.folder / name
        program.write_text(
            f"#!/bin/sh\necho {name} \"$@\" >> '{self.log}'\n/bin/cat '{self.folder}/{name}.out'\n"
            f"/bin/cat '{self.folder}/{name}.err' >&2\nexit {code}\n"
        )
        program.chmod(0o755)

    def queue(self, state: str, reason: str = "None") -> None:
        """Let squeue know job 4711."""
        self.put("squeue", ROW.format(state=state, reason=reason) + "\n")

    def calls(self, name: str) -> list[str]:
        """Return how a command was called."""
        return [line for line in self.log.read_text().splitlines() if line.startswith(f"{name} ")]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Give a Slurm of which nothing is known, without accounting, and no other one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    made = Slurm(folder)
    made.put("squeue")
    made.put("sacct", err="Slurm accounting storage is disabled\n", code=1)
    made.put("scontrol", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    made.put("scancel")
    monkeypatch.setenv("PATH", str(folder))
    return made


def make_run(tmp_path: Path, *, number: int = 0, age_s: float = 300, **changes: Any) -> Any:
    """Return the entry of a run whose folder is there, submitted so many seconds ago."""
    run_dir = tmp_path / f"run{number}"
    (run_dir / "submitit").mkdir(parents=True)
    submitted = datetime.now(timezone.utc) - timedelta(seconds=age_s)
    return make_entry(run_dir, submitted=submitted.isoformat(), **changes)


def test_many_runs_cost_one_call(slurm: Slurm, tmp_path: Path) -> None:
    """Slurm is asked once for all runs, and the accounting once for those that are lost."""
    slurm.queue("RUNNING")
    entries = [make_run(tmp_path, number=number, job_id=str(4711 + number)) for number in range(20)]
    views = look_at_all(entries)
    assert [view.state for view in views] == ["RUNNING", *["UNKNOWN"] * 19]
    assert (len(slurm.calls("squeue")), len(slurm.calls("sacct"))) == (1, 1)


def test_run_that_was_requeued_by_hand_is_listed_as_waiting(slurm: Slurm, tmp_path: Path) -> None:
    """A report does not keep Slurm from being asked: its job may wait again."""
    entry = make_run(tmp_path)
    (entry.path / "report.json").write_text(make_report("CANCELLED", 143, failure_class="cancelled").to_json())
    assert look_at_all([entry])[0].state == "CANCELLED"
    slurm.queue("PENDING", "JobHeldUser")
    view = look_at(entry, max_age_s=0)
    assert (view.state, view.reason.partition(",")[0]) == ("PENDING", "waiting: JobHeldUser")


def test_watchers_share_an_answer(slurm: Slurm, tmp_path: Path) -> None:
    """A hundred watchers that look at once ask once."""
    slurm.queue("RUNNING")
    entry = make_run(tmp_path)
    for _ in range(100):
        assert Watcher(entry).look().state == "RUNNING"
    assert len(slurm.calls("squeue")) == 1


def test_watcher_asks_less_and_less() -> None:
    """The interval grows to half a minute, and not beyond."""
    interval, intervals = 2.0, []
    for _ in range(20):
        interval = make_interval(interval)
        intervals.append(interval)
    assert intervals[0] > 2.0
    assert 26 < intervals[-1] < 34


def test_answer_from_before_the_submission_is_not_used(slurm: Slurm, tmp_path: Path) -> None:
    """A run that was submitted after the kept answer makes Slurm be asked again."""
    Queue().read_word(make_run(tmp_path), max_age_s=60)
    time.sleep(0.01)
    slurm.queue("PENDING", "Priority")
    new = make_run(tmp_path, number=1, age_s=0)
    assert look_at(new, max_age_s=60).state == "PENDING"
    assert len(slurm.calls("squeue")) == 2


def test_silent_controller_leaves_the_last_word_with_its_age(slurm: Slurm, tmp_path: Path) -> None:
    """When squeue fails the last state stands, with its age, and squeue is not asked at each look."""
    slurm.queue("RUNNING")
    entry, queue = make_run(tmp_path), Queue()
    assert look_at(entry, queue=queue).state == "RUNNING"
    slurm.put("squeue", err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", code=1)
    for _ in range(5):
        view = look_at(entry, queue=queue, max_age_s=0)
        assert (view.state, view.word.age_s is not None) == ("RUNNING", True)
    assert len(slurm.calls("squeue")) == 2
    fresh = look_at(entry, max_age_s=0)
    assert fresh.state == "RUNNING"
    assert fresh.word.age_s is not None


def test_queue_that_never_answered_is_told(slurm: Slurm, tmp_path: Path) -> None:
    """Without any answer the run folder speaks, and nothing is written as an end."""
    slurm.put("squeue", err="slurm_load_jobs error: Unable to contact slurm controller\n", code=1)
    entry = make_run(tmp_path)
    view = look_at(entry)
    assert (view.state, view.is_over) == ("PENDING", False)
    assert "does not answer" in view.reason
    assert not (entry.path / "report.json").exists()


def test_without_accounting_the_end_is_found(slurm: Slurm, tmp_path: Path) -> None:
    """Slurm has forgotten the job, there is no accounting: a job that had run has failed, and sacct is asked once."""
    entry = make_run(tmp_path, age_s=600)
    (entry.path / "attempt-0").mkdir()
    (entry.path / "attempt-0/rank0.log").write_text("last words\n")
    _age(entry.path, seconds=300)
    queue = Queue()
    view = look_at(entry, queue=queue)
    assert (view.state, view.is_over, view.report is not None) == ("FAILED", True, True)
    assert (entry.path / "report.json").exists()
    look_at(make_run(tmp_path, number=1, job_id="4712"), queue=queue)
    assert len(slurm.calls("sacct")) == 1


@pytest.mark.usefixtures("slurm")
def test_job_that_never_started_and_is_forgotten_was_cancelled(tmp_path: Path) -> None:
    """Neither agents nor output: whoever waited in the queue and is gone was taken out of it."""
    entry = make_run(tmp_path, age_s=600)
    _age(entry.path, seconds=300)
    view = look_at(entry)
    assert (view.state, view.report.exit_code if view.report else None) == ("CANCELLED", 143)


@pytest.mark.usefixtures("slurm")
def test_job_that_has_just_left_the_queue_is_not_judged_yet(tmp_path: Path) -> None:
    """The report of another machine may show late, so within a minute nothing is made up."""
    entry = make_run(tmp_path)
    (entry.path / "attempt-0").mkdir()
    view = look_at(entry)
    assert (view.state, view.is_over) == ("UNKNOWN", False)
    assert not (entry.path / "report.json").exists()


def test_job_of_another_cluster_is_not_declared_dead(slurm: Slurm, tmp_path: Path) -> None:
    """A home may be shared by two clusters: a job that this one does not know may run on the other."""
    slurm.put("scontrol", "ClusterName             = alpha\n")
    entry = make_run(tmp_path, age_s=600, cluster="beta")
    _age(entry.path, seconds=300)
    view = look_at(entry)
    assert (view.is_over, view.report) == (False, None)
    assert view.reason == "it is on cluster beta; this is from the run folder"
    look_at(entry)
    assert len(slurm.calls("scontrol")) == 1


def test_named_cluster_is_named_to_every_command(slurm: Slurm, tmp_path: Path) -> None:
    """A job that was submitted to another cluster is asked for, and cancelled, there."""
    slurm.queue("RUNNING")
    entry = make_run(tmp_path, cluster="beta", is_remote=True)
    assert look_at(entry).state == "RUNNING"
    ask_to_end(entry)
    assert "--clusters=beta" in slurm.calls("squeue")[0]
    assert slurm.calls("scancel") == ["scancel --clusters=beta 4711"]


def test_personal_settings_of_squeue_do_not_count(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person has set for their own looking at the queue changes nothing in what we read."""
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    (slurm.folder / "squeue").write_text(
        '#!/bin/sh\n[ -z "$SQUEUE_FORMAT$SLURM_TIME_FORMAT" ] && echo \''
        + ROW.format(state="RUNNING", reason="None")
        + "'\n"
    )
    assert look_at(make_run(tmp_path)).state == "RUNNING"


def test_later_word_of_the_accounting_is_written_down(slurm: Slurm, tmp_path: Path) -> None:
    """Memory that ran out in a step turns a report of success into a failure, for good."""
    entry = make_run(tmp_path)
    report = make_report(run=entry.run, run_dir=entry.run_dir)
    (entry.path / "report.json").write_text(report.to_json())
    rows = ["4711|COMPLETED|0:0", "4711.0|OUT_OF_MEMORY|0:125"]
    slurm.put("sacct", "".join(row + "|" * 8 + "\n" for row in rows))
    queue = Queue()
    view = settle_later_word(look_at(entry, queue=queue), queue=queue)
    assert (view.state, view.report.exit_code if view.report else None) == ("OUT_OF_MEMORY", 137)
    assert look_at_all([entry])[0].state == "OUT_OF_MEMORY"


def test_wait_ends_when_slurm_has_done_with_the_job_too(slurm: Slurm, tmp_path: Path) -> None:
    """The report alone is not the end while the job is still there and may know better."""
    entry = make_run(tmp_path)
    slurm.queue("COMPLETING")
    (entry.path / "report.json").write_text(make_report("FAILED", 137, failure_class="signal").to_json())
    looks: list[str] = []

    def sleep(_: float) -> None:
        if len(looks) == 3:
            slurm.queue("OUT_OF_MEMORY")
        time.sleep(0.2)

    view = wait_for_end(entry, tell=lambda seen: looks.append(seen.state), sleep=sleep)
    assert (view.state, len(looks) > 3) == ("OUT_OF_MEMORY", True)


def test_refused_cancel_is_told_in_slurms_words(slurm: Slurm, tmp_path: Path) -> None:
    """A job that may not be cancelled is an error with what scancel said."""
    slurm.put("scancel", err="scancel: error: Kill job error on job id 4711: Access/permission denied\n", code=1)
    with pytest.raises(SubmissionError) as caught:
        ask_to_end(make_run(tmp_path))
    assert "Access/permission denied" in caught.value.found


def test_step_that_is_gone_is_over_although_its_job_runs(slurm: Slurm, tmp_path: Path) -> None:
    """The run of a step ends with the step, and the shell of salloc goes on."""
    slurm.queue("RUNNING")
    program = slurm.folder / "squeue"
    steps = "case \"$*\" in *--steps*) echo '4711.0 other'; exit;; esac\n"
    program.write_text(program.read_text().replace("/bin/cat", f"{steps}/bin/cat", 1))
    assert look_at(make_run(tmp_path, mode="allocation", step_id="0")).state == "RUNNING"
    assert look_at(make_run(tmp_path, number=1, mode="allocation", step_id="1")).word.is_gone
    assert look_at(make_run(tmp_path, number=2, mode="step")).word.is_gone


def _age(run_dir: Path, *, seconds: float) -> None:
    """Let everything in a folder be written so long ago."""
    then = time.time() - seconds
    for path in (run_dir, *run_dir.rglob("*")):
        os.utime(path, (then, then))


def test_success_that_slurm_calls_a_failure_is_looked_up_by_every_verb(slurm: Slurm, tmp_path: Path) -> None:
    """Where the queue says FAILED of a run that reported success the accounting is asked why, once, and it is kept."""
    entry = make_run(tmp_path)
    report = make_report(run=entry.run, run_dir=entry.run_dir)
    (entry.path / "report.json").write_text(report.to_json())
    slurm.queue("FAILED")
    slurm.put("sacct", "".join(row + "|" * 8 + "\n" for row in ("4711|FAILED|1:0", "4711.0|OUT_OF_MEMORY|0:125")))
    for _ in range(2):
        (view,) = look_at_all([entry])
        assert view.report is not None
        assert (view.state, view.report.exit_code) == ("OUT_OF_MEMORY", 137)
    assert len(slurm.calls("sacct")) == 1
