"""Shell lines around the agents."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.config import Config
from hpc_multinode.planning import make_plan
from hpc_multinode.submission.shell import make_foreground_script, make_setup
from hpc_multinode.wrapping import make_agent_command
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpc_multinode.plan import LaunchPlan

FACTS = make_facts(run_id="r-1", cwd="/a b's", python="/py thon/bin/python")


def _plan(setup: Sequence[str] = (), teardown: Sequence[str] = ()) -> LaunchPlan:
    plan = make_plan(Config(), facts=FACTS, target=None)
    return dataclasses.replace(plan, setup=tuple(setup), teardown=tuple(teardown))


def _bash(script: str) -> tuple[int, str, str]:
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=30)
    return done.returncode, done.stdout, done.stderr


def _setup(*lines: str) -> tuple[int, str, str]:
    return _bash("\n".join([*make_setup(lines), "echo agents"]))


def test_the_agents_command_is_quoted() -> None:
    """Blanks and quotes in paths stay in their words."""
    assert shlex.split(make_agent_command(_plan())) == [
        "/py thon/bin/python", "-m", "hpc_multinode.node", "/a b's/runs/r-1",
    ]  # fmt: skip


def test_the_persons_python_is_several_words() -> None:
    """A command given for Python is the shell's to read."""
    plan = dataclasses.replace(_plan(), python="singularity exec 'my image' python")
    assert shlex.split(make_agent_command(plan))[:4] == ["singularity", "exec", "my image", "python"]


def test_a_signal_during_the_start_ends_no_agent_of_a_job() -> None:
    """What sbatch starts outlives TERM and USR2 until it has handlers."""
    says = """/bin/sh -c 'kill -TERM $$; kill -USR2 $$; echo "$@"' python"""
    plan = dataclasses.replace(_plan(), python=says, mode="slurm")
    assert _bash(make_agent_command(plan)) == (0, "-m hpc_multinode.node /a b's/runs/r-1\n", "")


def test_a_command_of_the_persons_own_gets_all_signals() -> None:
    """A shell script in place of Python can pass signals on, which no shell can that was started to ignore them."""
    says = """/bin/sh -c 'trap "echo heard" TERM; kill -TERM $$'"""
    plan = dataclasses.replace(_plan(), python=says, mode="slurm", has_plain_python=False)
    assert _bash(make_agent_command(plan)) == (0, "heard\n", "")


def test_without_lines_there_is_no_setup() -> None:
    """Nothing is written for nothing."""
    assert make_setup([]) == []


def test_what_a_line_exports_stays() -> None:
    """All lines run in the script's own shell, comments and quotes in them do no harm."""
    assert _setup("export A='x y' # set it", "cd /tmp;", 'echo "$A" in $PWD') == (0, "x y in /tmp\nagents\n", "")


@pytest.mark.parametrize(
    "line", ["false", "false | cat", "(exit 3)", "echo a; false", "no_such_command_q 2>/dev/null", "echo 'it''s' >/; x"]
)
def test_a_line_that_fails_ends_the_script(line: str) -> None:
    """The agents never start behind a set-up that failed; the line is told."""
    code, out, err = _setup("true", line, "echo not reached")
    assert (code, "agents" in out, "not reached" in out) == (1, False, False)
    assert err.endswith(f"hpc_multinode: this set-up line failed: {line}\n")


@pytest.mark.parametrize("line", ["", "# load modules", "  "])
def test_a_line_may_be_empty_or_a_comment(line: str) -> None:
    """A blank line or a comment in the set-up does nothing."""
    assert _setup(line) == (0, "agents\n", "")


def test_pipefail_does_not_reach_what_follows() -> None:
    """The set-up's own option ends with it."""
    assert _bash("\n".join([*make_setup(["true"]), "false | true"]))[0] == 0


def test_without_teardown_the_program_takes_the_shells_place() -> None:
    """No shell stands between launcher and program."""
    assert make_foreground_script(_plan(), ["a b", "c"]) == "exec 'a b' c"


# Bash of a program that goes on when the shell around it has set its trap and waits.
UNTIL_WAITED_FOR = (
    "until (( (0x$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$PPID/status) & 0x4000) != 0 )) "
    "&& grep -q '^State:.S' /proc/$PPID/status; do :; done; "
)


def test_the_script_ends_with_the_programs_code() -> None:
    """Between set-up and teardown, and the code is the program's."""
    script = make_foreground_script(_plan(["echo hi"], ["echo bye"]), ["bash", "-c", UNTIL_WAITED_FOR + "exit 7"])
    assert _bash(script) == (7, "hi\nbye\n", "")


def test_a_program_that_fails_at_once_fails_the_script() -> None:
    """The code is the program's however soon it ends."""
    script = make_foreground_script(_plan([], ["true"]), ["sh", "-c", "exit 7"])
    late = 'kill() { while builtin kill -0 "$2" 2>/dev/null; do :; done; builtin kill "$@"; }'  # looks after the end
    assert _bash(f"{late}\n{script}")[0] == 7


@pytest.mark.parametrize("setup", [[], ["true"], ["echo 'a' # b", 'x="$(date)"']])
@pytest.mark.parametrize("teardown", [[], ["echo done", "# only a comment"]])
def test_the_script_is_shell(setup: list[str], teardown: list[str]) -> None:
    """Bash can read every script."""
    script = make_foreground_script(_plan(setup, teardown), ["x"])
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_teardown_runs_after_a_sigterm() -> None:
    """SIGTERM reaches the program, and teardown still follows."""
    program = f"trap 'exit 5' TERM; {UNTIL_WAITED_FOR} echo up; cat >/dev/null & wait"
    script = make_foreground_script(_plan([], ["echo bye"]), ["bash", "-c", program])
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "up\n"
        shell.terminate()
        assert shell.stdout.readline() == "bye\n"
