"""The sbatch text, its submission by a fake sbatch, and the private names of submitit that we build on."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import submitit
from submitit.local.local import Controller

from hpc_multinode.config import Config, Mode
from hpc_multinode.errors import ConfigError, SubmissionError
from hpc_multinode.planning import make_plan
from hpc_multinode.runs import RunFolder
from hpc_multinode.slurm.commands import cancel_job, list_queue
from hpc_multinode.submission.local import CONTROLLER_MODULE
from hpc_multinode.submission.slurm import Withdrawn, render_slurm, submit_slurm
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

HOSTILE = ["a b", "it's", 'say "x"', "$HOME", "$(touch pwned)", "`touch pwned`", "#no", "a;b", "a|b", "a&b", "(x)"]
HOSTILE += ["é", "-x"]

FAKE_SBATCH = """#!{python}
import json, os, sys
times = json.load(open({dump!r}))["times"] + 1 if os.path.exists({dump!r}) else 1
told = {{"argv": sys.argv[1:], "env": dict(os.environ), "script": open(sys.argv[-1]).read(), "times": times}}
with open({dump!r}, "w") as file:
    json.dump(told, file)
sys.stderr.write({err!r})
sys.stdout.write({out!r})
sys.exit({code})
"""


def _plan(root: Path, **values: Any) -> LaunchPlan:
    config = Config()
    for key, value in values.items():
        section, _, name = key.rpartition("__")
        setattr(getattr(config, section) if section else config, name, value)
    facts = make_facts(run_id="r-1", cwd=str(root), python="/opt/python", mode=Mode.slurm)
    return make_plan(config, facts=facts, target=None)


def _directives(text: str) -> dict[str, str | None]:
    """Read the directives as sbatch does: a shell word each, up to the first command."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH "):
            (word,) = shlex.split(line.removeprefix("#SBATCH "))
            name, equals, value = word.removeprefix("--").partition("=")
            found[name] = value if equals else None
        elif line and not line.startswith("#"):
            break
    return found


def _srun(text: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith("srun "))
    return shlex.split(line)


@pytest.fixture
def fake_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that puts an sbatch of given behaviour on PATH and returns the file that it dumps into."""

    def make(out: str = "Submitted batch job 4711\n", err: str = "", code: int = 0) -> Path:
        program, dump = tmp_path / "bin/sbatch", tmp_path / "dump.json"
        program.parent.mkdir(exist_ok=True)
        program.write_text(FAKE_SBATCH.format(python=sys.executable, dump=str(dump), err=err, out=out, code=code))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        return dump

    return make


def _submit(plan: LaunchPlan, looks: list[float] | None = None) -> str:
    """Submit; each look into the queue notes how long it would have waited."""
    return submit_slurm(
        plan, RunFolder.create(plan, config_text=""), sleep=[0.0].append if looks is None else looks.append
    )


# -- the text --------------------------------------------------------------------------------------------------------


def test_the_directives_are_what_was_asked_for(tmp_path: Path) -> None:
    """No time, no key, no signal that nobody has asked for; the log of all tasks lies in the run folder."""
    assert _directives(render_slurm(_plan(tmp_path, nodes=2))) == {
        "job-name": "work",
        "nodes": "2",
        "ntasks-per-node": "1",
        "open-mode": "append",
        "output": f"{tmp_path}/runs/r-1/submitit/%j_0_log.out",
    }


def test_resources_become_directives(tmp_path: Path) -> None:
    """Each resource and each other option is one directive; true is a flag."""
    plan = _plan(
        tmp_path,
        resources__gpus_per_node=4,
        resources__cpus_per_node=8,
        resources__mem_gb=1.5,
        resources__time="1-00:00:00",
        resources__partition="a,b",
        resources__exclusive=True,
        resources__sbatch={"mail_type": "END,FAIL", "requeue": True, "comment": "a 'b' #c"},
    )
    found = _directives(render_slurm(plan))
    assert {key: found[key] for key in found if key not in ("job-name", "nodes", "ntasks-per-node", "output")} == {
        "gpus-per-node": "4",
        "cpus-per-task": "8",
        "mem": "1536M",
        "time": "1-00:00:00",
        "signal": "USR2@180",
        "partition": "a,b",
        "exclusive": None,
        "mail-type": "END,FAIL",
        "requeue": None,
        "comment": "a 'b' #c",
        "open-mode": "append",
    }


@pytest.mark.parametrize("name", ["signal", "wckey", "output", "error", "open-mode"])
def test_an_option_of_the_person_is_in_the_text(tmp_path: Path, name: str) -> None:
    """What is given in ``resources.sbatch`` is never dropped."""
    plan = _plan(tmp_path, resources__sbatch={name: "USR2@60"})
    assert _directives(render_slurm(plan))[name] == "USR2@60"


@pytest.mark.parametrize("name", [*HOSTILE, "a\\b", "100%j"])
def test_a_hostile_job_name_stays_one_word(tmp_path: Path, name: str) -> None:
    """Blanks, quotes, dollars and backticks in a name are letters."""
    text = render_slurm(_plan(tmp_path, name=name))
    assert _directives(text)["job-name"] == name
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


@pytest.mark.parametrize("folder", HOSTILE)
def test_a_hostile_folder_stays_one_word(tmp_path: Path, folder: str) -> None:
    """The run folder is where it was said to be, in the directive, for srun and for the agent."""
    plan = _plan(tmp_path / folder)
    text, run_dir = render_slurm(plan), f"{tmp_path}/{folder}/runs/r-1"
    assert plan.run_dir == run_dir
    assert _directives(text)["output"] == f"{run_dir}/submitit/%j_0_log.out"
    assert f"--chdir={run_dir}" in _srun(text)
    assert _srun(text)[-1] == run_dir


def test_a_percent_sign_in_the_folder_is_a_letter(tmp_path: Path) -> None:
    """``%j`` in a person's path is no job id: doubled for sbatch; srun gets the log's name below its folder."""
    text = render_slurm(_plan(tmp_path / "50%a%%t/x%j"))
    assert _directives(text)["output"] == f"{tmp_path}/50%%a%%%%t/x%%j/runs/r-1/submitit/%j_0_log.out"
    assert {"--output=submitit/%j_%t_log.out", f"--chdir={tmp_path}/50%a%%t/x%j/runs/r-1"} <= set(_srun(text))


def test_a_backslash_in_the_folder_is_refused(tmp_path: Path) -> None:
    """With a backslash in the path sbatch does not replace ``%j`` any more."""
    with pytest.raises(ConfigError, match="holds a backslash, which sbatch takes for a sign of its own") as caught:
        _plan(tmp_path / "a\\b")
    assert caught.value.fix == "run_root=FOLDER whose path has none"


def test_srun_starts_one_agent_a_node(tmp_path: Path) -> None:
    """The agents end together, in the run folder, with the job's environment."""
    words = _srun(render_slurm(_plan(tmp_path, nodes=2)))
    assert words[:1] == ["srun"]
    assert {
        "--kill-on-bad-exit=1", "--wait=60", f"--chdir={tmp_path}/runs/r-1", "--ntasks-per-node=1", "--export=ALL",
    } <= set(words)  # fmt: skip
    assert words[-4:] == ["/opt/python", "-m", "hpc_multinode.node", f"{tmp_path}/runs/r-1"]


def test_srun_takes_the_cpus_and_the_persons_words(tmp_path: Path) -> None:
    """CPUs are repeated for srun; the person's words stay words."""
    plan = _plan(tmp_path, resources__cpus_per_node=8, resources__srun_args=["--mpi=none", "--comment=a b"])
    assert {"--cpus-per-task=8", "--mpi=none", "--comment=a b"} <= set(_srun(render_slurm(plan)))


def test_the_persons_words_for_srun_win(tmp_path: Path) -> None:
    """The person's words come behind all of ours."""
    plan = _plan(tmp_path, resources__cpus_per_node=8, resources__srun_args=["--cpus-per-task=4"])
    words = _srun(render_slurm(plan))
    assert words.index("--cpus-per-task=8") < words.index("--cpus-per-task=4")


@pytest.mark.parametrize(("setup", "teardown"), [([], []), (["module load x", "echo 'a' # b"], ["echo bye"])])
def test_the_text_is_bash(tmp_path: Path, setup: list[str], teardown: list[str]) -> None:
    """Bash can read it, and it says that it is bash's."""
    text = render_slurm(_plan(tmp_path, cluster__setup=setup, cluster__teardown=teardown))
    assert text.startswith("#!/bin/bash\n")
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _run_text(text: str, root: Path, code: int) -> tuple[int, str]:
    srun = root / "bin/srun"
    srun.parent.mkdir()
    srun.write_text(f"#!/bin/bash\necho agents\nexit {code}\n")
    srun.chmod(0o755)
    environ = {"PATH": f"{srun.parent}:/usr/bin:/bin"}
    done = subprocess.run(["bash"], input=text, env=environ, text=True, capture_output=True, check=False, timeout=30)
    return done.returncode, done.stdout


@pytest.mark.parametrize("teardown", [[], ["echo bye"], ["echo bye", "exit 5"], ["echo bye", "exec true"]])
def test_the_job_ends_with_sruns_code(tmp_path: Path, teardown: list[str]) -> None:
    """Set-up, agents, teardown, in this order; the code is srun's."""
    text = render_slurm(_plan(tmp_path, cluster__setup=["echo hi"], cluster__teardown=teardown))
    assert _run_text(text, tmp_path, 3) == (3, "hi\nagents\n" + "bye\n" * bool(teardown))


def test_a_setup_that_fails_ends_the_job(tmp_path: Path) -> None:
    """The agents never start, and the job fails."""
    assert _run_text(render_slurm(_plan(tmp_path, cluster__setup=["false"])), tmp_path, 0) == (1, "")


def test_rendering_writes_nothing(tmp_path: Path) -> None:
    """No folder is made, and neither sbatch nor srun is needed."""
    render_slurm(_plan(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_same_plan_gives_the_same_text(tmp_path: Path) -> None:
    """Two renders of one plan are equal."""
    assert render_slurm(_plan(tmp_path)) == render_slurm(_plan(tmp_path))


# -- submission ------------------------------------------------------------------------------------------------------


def test_what_was_rendered_is_what_is_sent(tmp_path: Path, fake_sbatch: Any) -> None:
    """The text goes to sbatch unchanged, by file alone, from the run folder, where it stays."""
    dump = fake_sbatch()
    plan = _plan(tmp_path, name="a 'b'", nodes=2)
    assert _submit(plan) == "4711"
    sent = json.loads(dump.read_text())
    assert sent["script"] == render_slurm(plan)
    assert sent["argv"] == [f"{plan.run_dir}/submission.sh"]
    assert Path(plan.run_dir, "submission.sh").read_text() == sent["script"]


@pytest.mark.parametrize(
    ("out", "job_id"),
    [
        ("Submitted batch job 4711\n", "4711"),
        ("Submitted batch job 4711 on cluster alps\n", "4711;alps"),
        ("4711\n", "4711"),
        ("4711;alps\n", "4711;alps"),
        ("Welcome to ALPS, 2026\nyour job 99 was great\nSubmitted batch job 4711\nBye 12\n", "4711"),
        ("Quota: max job 500 per user\nSubmitted batch job 999\n", "999"),
        ("2026\nSubmitted batch job 4711\n2027\n", "4711"),
        ("Welcome\n4711;alps\n", "4711;alps"),
        ("Submitted batch job 4711 \r\n", "4711"),
    ],
)
def test_the_job_id_is_found_among_banners(tmp_path: Path, fake_sbatch: Any, out: str, job_id: str) -> None:
    """A site's wrapper may print more than Slurm does; the cluster is kept for later calls."""
    fake_sbatch(out)
    assert _submit(_plan(tmp_path)) == job_id


@pytest.mark.parametrize("command", ["squeue", "scancel"])
def test_later_calls_go_to_the_jobs_cluster(tmp_path: Path, fake_sbatch: Any, command: str) -> None:
    """A job on another cluster is asked for and cancelled there."""
    fake_sbatch()
    program, told = tmp_path / "bin" / command, tmp_path / "told"
    program.write_text(f'#!/bin/sh\necho "$@" > {told}\n')
    program.chmod(0o755)
    cancel_job("5;alpha") if command == "scancel" else list_queue("alpha")
    assert "--clusters=alpha" in told.read_text().split()


def test_warnings_of_sbatch_are_shown(tmp_path: Path, fake_sbatch: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """What sbatch says on stderr of a job that it takes is no error, and reaches the person."""
    fake_sbatch(err="sbatch: lua: Submitted batch job 1\n")
    assert _submit(_plan(tmp_path)) == "4711"
    assert capfd.readouterr() == ("", "sbatch: lua: Submitted batch job 1\n")


@pytest.mark.parametrize("is_there", [True, False])
def test_ctrl_c_while_sbatch_is_at_work_leaves_nothing(
    tmp_path: Path,
    fake_sbatch: Any,
    capfd: pytest.CaptureFixture[str],
    is_there: bool,  # noqa: FBT001
) -> None:
    """A job that got in is cancelled and keeps its folder; where there is none, no folder is left."""
    fake_sbatch()
    plan = _plan(tmp_path)
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\nkill -INT $PPID\nsleep 5\n")
    for command, text in {
        "squeue": f"echo '7 /x.sh'; echo \"12 {plan.run_dir}/submission.sh\"" if is_there else "",
        "scancel": f"echo $@ > {tmp_path}/cancelled",
    }.items():
        (tmp_path / "bin" / command).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / command).chmod(0o755)
    with pytest.raises(Withdrawn) as caught:
        _submit(plan)
    assert caught.value.job_id == ("12" if is_there else None)
    assert Path(plan.run_dir).exists() is is_there
    said = "job 12 was submitted, and is cancelled" if is_there else "no job was submitted"
    assert capfd.readouterr().err == f"interrupted: {said}\n"
    assert (tmp_path / "cancelled").exists() is is_there


@pytest.mark.parametrize("out", ["", "hello\n", "job 4711 maybe\n"])
def test_an_answer_without_an_id_keeps_the_run_folder(tmp_path: Path, fake_sbatch: Any, out: str) -> None:
    """The job may be in the queue, so nothing of it is removed."""
    fake_sbatch(out)
    plan = _plan(tmp_path)
    with pytest.raises(SubmissionError) as caught:
        _submit(plan)
    assert caught.value.what == "sbatch gave an answer that is not understood"
    assert caught.value.found == f"it names no job id; the job MAY be in the queue. It said: {out.strip()!r}"
    assert caught.value.fix == f"look with squeue --me --format='%i %o' | grep -F {plan.run_dir}/submission.sh"
    assert Path(plan.run_dir, "plan.json").exists()


def test_a_refusal_is_told_in_sbatchs_words(
    tmp_path: Path, fake_sbatch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """The lines of sbatch itself, once, and no run folder is left but the script, whose path is told."""
    fake_sbatch(
        out="",
        err="banner\nsbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed\n",
        code=1,
    )
    plan = _plan(tmp_path)
    with pytest.raises(SubmissionError) as caught:
        _submit(plan)
    assert caught.value.what == "sbatch refuses the job"
    assert caught.value.found == (
        "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed"
    )
    kept = Path(f"{plan.run_dir}.refused.sh")
    assert str(kept) in caught.value.fix
    assert kept.read_text() == render_slurm(plan)
    assert not Path(plan.run_dir).exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("out", "err", "found"),
    [
        ("", "site policy: no project\n", "site policy: no project"),
        ("no\n", "", "no"),
        ("", "", "nothing, with exit code 3"),
    ],
)
def test_a_refusal_in_other_words_is_told_as_it_is(
    tmp_path: Path, fake_sbatch: Any, out: str, err: str, found: str
) -> None:
    """A wrapper's words are kept where sbatch itself said nothing."""
    fake_sbatch(out=out, err=err, code=3)
    with pytest.raises(SubmissionError) as caught:
        _submit(_plan(tmp_path))
    assert caught.value.found == found


TIMED_OUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


@pytest.mark.parametrize(
    "answer",
    [
        ("", TIMED_OUT, 1),
        ("", "sbatch: error: Unable to contact slurm controller (connect failure)", 1),
        ("huh", "", 0),
    ],
)
def test_a_job_that_got_in_after_all_is_found(tmp_path: Path, fake_sbatch: Any, answer: tuple[str, str, int]) -> None:
    """A job whose answer was lost is known by its script's path; sbatch is asked once."""
    dump, looks = fake_sbatch(*answer), []
    plan = _plan(tmp_path / "a b")
    squeue = tmp_path / "bin/squeue"
    squeue.write_text(f"#!/bin/sh\necho '12 /other.sh'\necho '77 {plan.run_dir}/submission.sh'\n")
    squeue.chmod(0o755)
    assert _submit(plan, looks) == "77"
    assert len(looks) <= 1
    assert json.loads(dump.read_text())["times"] == 1
    assert Path(plan.run_dir).exists()


def test_without_an_answer_nothing_is_submitted_twice(tmp_path: Path, fake_sbatch: Any) -> None:
    """Where no job shows within seconds the person decides, and the run folder stays for a job that comes late."""
    dump, looks = fake_sbatch("", TIMED_OUT, 1), []
    plan = _plan(tmp_path)
    with pytest.raises(SubmissionError) as caught:
        _submit(plan, looks)
    assert caught.value.what == "Slurm did not answer sbatch, and no job of this run is in the queue by now"
    assert caught.value.found == TIMED_OUT
    assert f"grep -F {plan.run_dir}/submission.sh; if there is none, submit again" in caught.value.fix
    assert caught.value.exit_code == 2
    assert sum(looks) == 10
    assert json.loads(dump.read_text())["times"] == 1
    assert Path(plan.run_dir).exists()


def test_the_outer_job_does_not_reach_sbatch(tmp_path: Path, fake_sbatch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outer job's or launcher's variables and sbatch's options are left out; the person's and Slurm's place stay."""
    outer = ["SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_MEM_PER_NODE", "SLURM_CPU_BIND", "SLURM_TRES_PER_TASK", "RANK",
             "SLURM_EXPORT_ENV", "SRUN_CPUS_PER_TASK", "PMIX_RANK", "PMI_RANK", "WORLD_SIZE", "MASTER_ADDR",
             "TORCHELASTIC_RUN_ID", "SBATCH_ACCOUNT", "SBATCH_PARTITION"]  # fmt: skip
    kept = ["SLURM_CONF", "MY_OWN"]
    for name in (*outer, *kept):
        monkeypatch.setenv(name, "7 'x'")
    dump = fake_sbatch()
    _submit(_plan(tmp_path))
    env = json.loads(dump.read_text())["env"]
    assert [name for name in outer if name in env] == []
    assert {name: env.get(name) for name in kept} == dict.fromkeys(kept, "7 'x'")


def test_the_environment_of_the_caller_stays(tmp_path: Path, fake_sbatch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the child goes without them."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    fake_sbatch()
    _submit(_plan(tmp_path))
    assert subprocess.run(["/bin/sh", "-c", "echo $SLURM_JOB_ID"], capture_output=True, check=True).stdout == b"1\n"


def test_the_folder_of_submitit_is_private(tmp_path: Path, fake_sbatch: Any) -> None:
    """Logs of the agents are the person's alone, and so is the script."""
    fake_sbatch()
    plan = _plan(tmp_path)
    _submit(plan)
    assert Path(plan.run_dir, "submitit").stat().st_mode & 0o777 == 0o700
    assert Path(plan.run_dir, "submission.sh").stat().st_mode & 0o777 == 0o600


# -- the private names of submitit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"), [("_make_submission_file_text", ["self", "command", "uid"]), ("affinity", [])]
)
def test_submitits_executor_has_the_methods_that_we_use(name: str, parameters: list[str]) -> None:
    """A release that renames or changes one of them is noticed here, not on a cluster."""
    method = getattr(submitit.SlurmExecutor, name)
    assert list(inspect.signature(method).parameters) == parameters


def test_submitits_text_holds_the_lines_that_we_remove(tmp_path: Path) -> None:
    """If submitit no longer writes them, our filter can go."""

    class Executor(submitit.SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 1

    executor = Executor(folder=tmp_path)
    executor.update_parameters(
        job_name="x", time=None, wckey=None, nodes=1, ntasks_per_node=1, stderr_to_stdout=True, setup=None,
        teardown=None, use_srun=False, additional_parameters={},
    )  # fmt: skip
    lines = executor._make_submission_file_text("cmd", "").splitlines()  # noqa: SLF001
    assert {"#SBATCH --signal=USR2@90", "export SUBMITIT_EXECUTOR=slurm", "cmd"} <= set(lines)


def test_submitits_local_program_reads_our_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller takes its orders from these variables, and the words of the command as a shell would."""
    variables = {
        "SUBMITIT_LOCAL_NTASKS": "2",
        "SUBMITIT_LOCAL_COMMAND": "'a b' c",
        "SUBMITIT_LOCAL_TIMEOUT_S": "10000000000",
        "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "0",
        "SUBMITIT_STDERR_TO_STDOUT": "1",
        "SUBMITIT_LOCAL_WITH_SHELL": "",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    source = inspect.getsource(Controller)
    assert all(f'"{name}"' in source for name in variables)
    assert 'self.command = shlex.split(os.environ["SUBMITIT_LOCAL_COMMAND"])' in source
    done = subprocess.run(
        [sys.executable, "-m", CONTROLLER_MODULE, str(tmp_path / "tasks")],
        env={**variables, "SUBMITIT_LOCAL_COMMAND": "/bin/sh -c 'echo $SUBMITIT_LOCAL_GLOBALID'"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.read_text() for path in (tmp_path / "tasks").iterdir()) == ["0\n", "1\n"]


def test_a_plan_can_be_changed_without_touching_the_text_of_another(tmp_path: Path) -> None:
    """No state of submitit is shared between plans."""
    plan = _plan(tmp_path, resources__partition="a")
    before = render_slurm(plan)
    render_slurm(dataclasses.replace(plan, sbatch={**plan.sbatch, "partition": "b"}))
    assert render_slurm(plan) == before
