"""The command line: verbs, options, and errors as exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import hpc_multinode.launching  # noqa: F401 - before a test replaces sys.stdout
from hpc_multinode import __version__
from hpc_multinode.cli import run
from hpc_multinode.cli.command_line import OPTIONS, VERBS, CommandLine, parse_command_line
from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "def run(world_size, lr=0.1): pass\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder with a work, no Slurm and no settings of the person's own."""
    home = tmp_path / "home"
    home.mkdir()
    here = tmp_path / "here"
    here.mkdir()
    (here / "train.py").write_text(SOURCE)
    for name in ("HPC_MULTINODE_CONFIG_DIR", "XDG_CONFIG_HOME", "HPC_MULTINODE_RUN_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    programs = tmp_path / "bin"  # nothing else is on PATH: the machine may have a Slurm of its own
    programs.mkdir()
    (programs / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def sbatch(folder: Path) -> Path:
    """Put an sbatch on PATH that takes the job and keeps its text; return where."""
    program, kept = folder.parent / "bin/sbatch", folder.parent / "sent.sh"
    program.write_text(f"#!/bin/sh\n/bin/cp \"$1\" '{kept}'\necho Submitted batch job 4711\n")
    program.chmod(0o755)
    return kept


def _refuse(*argv: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_command_line(argv)
    return caught.value


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], CommandLine()),
        (["submit"], CommandLine()),
        (["nodes=2", "~name"], CommandLine(overrides=["nodes=2", "~name"])),
        (["render", "a=render"], CommandLine(verb="render", overrides=["a=render"])),
        (["-h"], CommandLine(wants_help=True)),
        (["render", "--help"], CommandLine(verb="render", wants_help=True)),
        (["--version"], CommandLine(wants_version=True)),
        (["--config-dir", "a", "x=1", "--config-dir=b=c"], CommandLine(overrides=["x=1"], config_dirs=["a", "b=c"])),
        (["--config-dir", "render"], CommandLine(config_dirs=["render"])),
        (["--"], CommandLine(script_argv=[])),
        (["a=1", "--", "--lr", "0", "--", "-m"], CommandLine(overrides=["a=1"], script_argv=["--lr", "0", "--", "-m"])),
    ],
)
def test_words_are_sorted(argv: list[str], line: CommandLine) -> None:
    """First a verb if it has no =, then settings and options; everything after -- is the script's, untouched."""
    assert parse_command_line(argv) == line


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("rendr", "did you mean render?"),
        ("zzz", f"the verbs are {', '.join(VERBS)}; --help tells more"),
        ("train.py", "work.target=train.py strategy=script"),
        ("train.py:run", "work.target=train.py:run"),
        ("pkg.mod:Name", "work.target=pkg.mod:Name"),
    ],
)
def test_refuses_an_unknown_verb(word: str, fix: str) -> None:
    """A misspelt verb, or a work in its place, is answered with what was meant."""
    error = _refuse(word)
    assert error.what == f"unknown verb {word!r}"
    assert error.found == "the first word has no =, so it is read as a verb"
    assert error.fix == fix


def test_refuses_a_verb_in_another_place() -> None:
    """A verb behind a setting is told to stand first."""
    error = _refuse("nodes=2", "render")
    assert (error.what, error.found) == ("the verb is not the first word", "render")
    assert error.fix == "python -m hpc_multinode render ..."


_NO_OPTION = f"options are {', '.join(OPTIONS)}; everything else is key=value; a script's own words come after --"


@pytest.mark.parametrize(
    ("word", "name", "fix"),
    [
        ("--confg-dir=x", "--confg-dir", "did you mean --config-dir? A script's own words come after --"),
        ("--verison", "--verison", "did you mean --version? A script's own words come after --"),
        (
            "--cfg=job",
            "--cfg",
            _NO_OPTION,
        ),
        (
            "-x",
            "-x",
            _NO_OPTION,
        ),
    ],
)
def test_refuses_an_unknown_option(word: str, name: str, fix: str) -> None:
    """A misspelt option is answered with the one that was meant."""
    error = _refuse(word)
    assert (error.what, error.found, error.fix) == (f"unknown option {name}", word, fix)


@pytest.mark.parametrize("word", ["-m", "--multirun"])
def test_a_sweep_goes_with_two_verbs(word: str) -> None:
    """Only what makes runs takes -m; a script's own -m stays its own."""
    assert parse_command_line([word, "nodes=1,2"]).is_sweep
    assert parse_command_line(["render", word]).is_sweep
    assert not parse_command_line(["a=1", "--", word]).is_sweep
    error = _refuse("context", word)
    assert (error.what, error.fix) == (f"this verb has no {word}", "it goes with submit, render")


def test_rerun_is_for_sweeps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A single run has no points to choose from."""
    assert run(["cluster=local", "work.target=train.py:run", "rerun=failed"]) == 2
    error = capsys.readouterr().err
    assert "error: rerun chooses points of a sweep, and this is a single run\n  found: rerun=failed\n" in error
    assert list(folder.iterdir()) == [folder / "train.py"]


@pytest.mark.parametrize("argv", [["--config-dir"], ["--config-dir", "--", "x"]])
def test_refuses_an_option_without_its_folder(argv: list[str]) -> None:
    """--config-dir needs a word behind it."""
    error = _refuse(*argv)
    assert (error.what, error.found) == ("--config-dir names no folder", "it is the last word")
    assert error.fix == "--config-dir FOLDER"


# -- help, version, errors -------------------------------------------------------------------------------------------


def test_help_fits_on_a_screen_and_a_half(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is short, and shows a command before anything else."""
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 60
    assert max(len(line) for line in lines) <= 120
    assert lines[2].lstrip().startswith("python -m hpc_multinode ")


def test_help_wins_over_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for help gets it, whatever else is typed."""
    assert run(["nods=2", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Run one PyTorch function")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The package's version."""
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"hpc_multinode {__version__}\n"


def test_an_error_has_three_parts_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """What, found, fix; exit code 2; nothing on stdout."""
    assert run(["rendr"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "error: unknown verb 'rendr'\n"
        "  found: the first word has no =, so it is read as a verb\n"
        "  fix:   did you mean render?\n"
    )


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["nods=2"], "unknown key 'nods'"),
        (["nodes=0"], "nodes is too small"),
        (["nodes=x"], "a value has the wrong type"),
        (["strategy=zzz"], "unknown strategy 'zzz'"),
        (["--config-dir", "nope"], "the configuration folder does not exist"),
        (["work.target=nope.py:run"], "the file nope.py does not exist"),
        (["work.target=train.py:rum"], "the work's source has no 'rum'"),
        (["work.target=train.py:run", "work.kwargs.x=1"], "run() does not take 'x' of work.kwargs"),
        (["work.target=train.py:run", "work.kwargs.world_size=1"], "work.kwargs sets 'world_size', which"),
        (["strategy.executor=nope.py:E"], "the executor cannot be used: the file nope.py does not exist"),
        (["strategy.executor=train.py:run"], "the executor cannot be used: run is a function"),
        (["strategy.preload=[nope_q]"], "strategy=base needs the package 'nope_q', which is not installed"),
        (["strategy.demo=null"], "there is no work to run"),
        (["work.target=train.py:run", "--", "--lr", "1"], "strategy=base takes no words after --"),
        (["cluster=slurm", "work.target=train.py:run"], "cluster=slurm, and there is no Slurm here"),
    ],
)
def test_bad_input_is_exit_2_and_leaves_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: list[str], what: str
) -> None:
    """One error, no traceback, no run folder."""
    assert run(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0].startswith(f"error: {what}"), err.count("error:")) == ("", True, 1)
    assert [line.split(":")[0] for line in err.splitlines()[1:]] == ["  found", "  fix"]
    assert [path.name for path in folder.iterdir()] == ["train.py"]


@pytest.mark.parametrize("word", ["env.PYTHONPATH=/site/modules", "cluster.setup=['module load pytorch']"])
def test_what_a_node_may_find_is_not_refused_here(folder: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    """A site's modules set PYTHONPATH, so what this interpreter lacks may be there on the nodes."""
    (folder / "train.py").write_text("import nope_q\n\n\ndef run(): pass\n")
    words = ["render", "work.target=train.py:run", "strategy.preload=[nope_q]"]
    assert run([*words, word]) == 0, capsys.readouterr().err
    assert run(words) == 2


def test_the_error_without_slurm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for Slurm on purpose, there is no fall-back to this machine."""
    del folder
    run(["cluster=slurm", "work.target=train.py:run"])
    assert capsys.readouterr().err == (
        "error: cluster=slurm, and there is no Slurm here\n"
        "  found: sbatch is not on PATH\n"
        "  fix:   log in to a node of the cluster that submits, load its Slurm module, or use cluster=local\n"
    )


def test_the_error_without_a_work(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A strategy without a demo needs a target."""
    del folder
    run(["strategy.demo=null"])
    err = capsys.readouterr().err
    assert "  found: work.target is not set, and strategy=base has no demo\n" in err
    assert "  fix:   work.target=path/to/train.py:Name\n" in err


def test_words_for_a_function_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands after -- is a script's."""
    del folder
    run(["work.target=train.py:run", "--", "--lr", "1"])
    err = capsys.readouterr().err
    assert "  found: -- --lr 1\n" in err
    assert "  fix:   strategy=script for a script's own command line, or work.kwargs.NAME=... for a function\n" in err


# -- render ----------------------------------------------------------------------------------------------------------


def test_render_prints_the_text_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No Slurm is needed, whatever mode is set."""
    assert run(["render", "work.target=train.py:run", "nodes=2", "run_id=r1", "cluster=local"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("#!/bin/bash\n")
    assert "#SBATCH --nodes=2\n" in out
    assert f"--chdir={folder}/runs/r1 " in out
    assert err == ""
    assert [path.name for path in folder.iterdir()] == ["train.py"]


def test_two_renders_differ_in_the_id_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``run_id`` two renders are equal."""
    del folder
    run(["render", "run_id=r1"])
    first = capsys.readouterr().out
    run(["render", "run_id=r1"])
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("variable", "word", "root"),
    [
        (None, "run_id=r1", "{here}/runs"),
        ("/scratch/x", "run_id=r1", "/scratch/x"),
        ("~/x", "run_id=r1", "{home}/x"),
        ("/scratch/x", "run_root=mine", "{here}/mine"),
        (None, "run_root=~/x", "{home}/x"),
    ],
)
def test_where_runs_are_kept(folder: Path, variable: str | None, word: str, root: str) -> None:
    """The setting, else the variable, else ``runs`` where the person stands; ``~`` is the home folder."""
    env = {**os.environ, **({} if variable is None else {"HPC_MULTINODE_RUN_ROOT": variable})}
    done = _program("-m", "hpc_multinode", "render", "run_id=r1", word, env=env)
    assert f"--chdir={root.format(here=folder, home=folder.parent / 'home')}/r1 " in done.stdout


# -- submit, with a fake sbatch --------------------------------------------------------------------------------------


SUBMITTED = """\
base: train.py:run on 2 x 1 = 2 workers, on Slurm, no GPU asked for (resources=gpu asks for one)
run:  runs/r1
logs: runs/r1/attempt-0/rank*.log
submitted: job 4711
agents: runs/r1/submitit/4711_0_log.out
status: python -m hpc_multinode status 4711
follow: python -m hpc_multinode logs -f 4711
cancel: python -m hpc_multinode cancel 4711
"""


@pytest.mark.parametrize("verb", [["submit"], [], ["submit", "cluster=slurm"]])
def test_submit_says_where_everything_is(folder: Path, sbatch: Path, verb: list[str]) -> None:
    """With an sbatch the job is submitted: id, run folder, logs and the commands for next."""
    done = _program("-m", "hpc_multinode", *verb, "work.target=train.py:run", "run_id=r1", "nodes=2")
    assert (done.returncode, done.stdout) == (0, SUBMITTED)
    assert (folder / "runs/r1/submission.sh").read_text() == sbatch.read_text()


@pytest.mark.usefixtures("folder", "sbatch")
@pytest.mark.parametrize("root", ["/tmp", "/var/tmp", "/dev/shm"])  # noqa: S108
def test_a_run_folder_on_one_node_alone_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], root: str
) -> None:
    """Folders that each node usually has for itself are named when the job is submitted."""
    run_root = f"{root}/{tmp_path.name}"
    try:
        assert run(["work.target=train.py:run", f"run_root={run_root}"]) == 0
        assert capsys.readouterr().err == (
            f"warning: the run folder lies in {root}/, which on most clusters each node has for itself; "
            "run_root=FOLDER on a file system that all nodes share\n"
        )
    finally:
        shutil.rmtree(run_root)


@pytest.mark.usefixtures("folder", "sbatch")
def test_what_submit_says_can_be_redirected() -> None:
    """A caller that redirects sys.stdout gets the text."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        run(["work.target=train.py:run", "run_id=r1", "nodes=2"])
    assert out.getvalue() == SUBMITTED


@pytest.mark.usefixtures("sbatch")
def test_submit_sends_what_render_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One plan, one text."""
    words = ["work.target=train.py:run", "run_id=r1", "resources=gpu", "name=a 'b'"]
    run(["render", *words])
    rendered = capsys.readouterr().out
    run(words)
    assert (folder / "runs/r1/submission.sh").read_text() == rendered


@pytest.mark.usefixtures("sbatch")
def test_a_scripts_words_reach_the_plan_untouched(folder: Path) -> None:
    """After -- nothing is read, quoted or split."""
    words = ["--lr", "0.1", "a b", "--", "x=[1,", "$HOME", ""]
    assert run(["strategy=script", "work.target=train.py", "run_id=r1", "--", *words]) == 0
    plan = json.loads((folder / "runs/r1/plan.json").read_text())
    assert plan["work"]["args"] == words


@pytest.mark.usefixtures("folder", "sbatch")
def test_the_same_run_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A second run of one id is an error and submits nothing."""
    words = ["work.target=train.py:run", "run_id=r1"]
    assert [run(words), run(words)] == [0, 2]
    assert "error: a run of this id is there already\n" in capsys.readouterr().err


@pytest.mark.usefixtures("sbatch")
def test_a_work_is_taken_from_where_the_person_stands(folder: Path) -> None:
    """A relative path is below the current folder, and an own executor's folder is on the workers' path."""
    (folder / "own").mkdir()
    (folder / "own/mine.py").write_text("from hpc_multinode import RunWorkExecutor\nclass E(RunWorkExecutor): pass\n")
    assert run(["work.target=train.py:run", "strategy.executor=own/mine.py:E", "run_id=r1"]) == 0
    plan = json.loads((folder / "runs/r1/plan.json").read_text())
    assert plan["work"]["file"] == f"{folder}/train.py"
    assert plan["work"]["folders"] == [str(folder), f"{folder}/own"]
    assert plan["strategy"]["executor"] == "mine:E"
    assert plan["strategy"]["executor_file"] == f"{folder}/own/mine.py"


# -- the program -----------------------------------------------------------------------------------------------------


def _program(*argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], env=env, capture_output=True, text=True, check=False, timeout=100)


def test_importing_the_package_loads_nothing_heavy() -> None:
    """Nothing of torch, lightning, hydra, omegaconf or submitit."""
    code = "import sys, hpc_multinode; print([m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    done = _program("-c", code, "torch", "lightning", "hydra", "omegaconf", "submitit")
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.usefixtures("folder")
def test_render_loads_no_framework() -> None:
    """On the login side torch is never imported."""
    code = (
        "import sys; from hpc_multinode.cli import run; code = run(['render', 'strategy=lite', 'nodes=2']); "
        "print(code, [m for m in sys.modules if m in ('torch', 'lightning', 'pytorch_lightning')])"
    )
    assert _program("-c", code).stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("name", ["queue.py", "logging.py", "yaml.py", "json.py", "secrets.py"])
def test_files_of_the_person_do_not_take_pythons_place(folder: Path, name: str) -> None:
    """A file where the person stands with the name of a module that we use is not imported by us."""
    (folder / name).write_text("raise SystemExit('imported')\n")
    done = _program("-m", "hpc_multinode", "render", "work.target=train.py:run")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("folder")
def test_a_reader_that_leaves_early_is_no_error() -> None:
    """``render | head -1`` prints no traceback."""
    command = f"'{sys.executable}' -m hpc_multinode render | /usr/bin/head -1"
    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=False, timeout=100)
    assert (done.stdout, done.stderr) == ("#!/bin/bash\n", "")


def test_help_can_be_printed_in_any_locale() -> None:
    """An ASCII terminal reads the help too."""
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = _program("-m", "hpc_multinode", "--help", env=env)
    assert (done.returncode, done.stderr) == (0, "")
