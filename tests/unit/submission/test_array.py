"""Job arrays: which points go into one, and the text of it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.config import Config, Mode
from hpc_multinode.planning import make_plan
from hpc_multinode.submission.array import make_arrays, render_array, render_numbers
from hpc_multinode.submission.slurm import render_slurm
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

HOSTILE = ["/runs/s", "/it's $HOME", '/a "b" `c`', "/50%/%j", "/{x}/y", "/ü"]


def _plan(root: str = "/r", number: int = 0, nodes: int = 1, **sbatch: str) -> LaunchPlan:
    config = Config(nodes=nodes, run_root=root, run_id=str(number))
    config.resources.sbatch = dict(sbatch)
    return make_plan(config, facts=make_facts(python="/opt/python", mode=Mode.slurm), target=None)


def _texts(*plans: LaunchPlan, root: str = "/r", parallel: int | None = None, max_size: int = 1001) -> list[str]:
    arrays = make_arrays(dict(enumerate(plans)), folder=Path(root), parallel=parallel, max_size=max_size)
    return [render_array(array) for array in arrays]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0], "0"),
        ([7], "7"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([0, 2, 4], "0-4:2"),
        ([0, 1, 2, 7, 9, 10], "0-2,7,9-10"),
        ([3, 6, 9, 10, 11], "3-9:3,10-11"),
        ([], ""),
    ],
)
def test_numbers_are_written_as_slurm_does(numbers: list[int], text: str) -> None:
    """Ranges, and ranges in steps."""
    assert render_numbers(numbers) == text


@given(st.sets(st.integers(0, 60)))
def test_numbers_can_be_read_back(numbers: set[int]) -> None:
    """None is lost and none is added."""
    found: list[int] = []
    for part in filter(None, render_numbers(sorted(numbers)).split(",")):
        reach, _, step = part.partition(":")
        first, _, last = reach.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    assert found == sorted(numbers)


def test_points_that_ask_for_the_same_are_one_array() -> None:
    """Different work is no reason for another job, different resources are."""
    arrays = make_arrays(
        {number: _plan(number=number, nodes=1 + number % 2) for number in range(4)},
        folder=Path("/r"),
        parallel=None,
        max_size=1001,
    )
    assert [(array.numbers, array.plan.num_nodes) for array in arrays] == [((0, 2), 1), ((1, 3), 2)]


@pytest.mark.parametrize("change", [{"comment": "b"}, {"mail_type": "END"}])
def test_any_other_option_makes_another_array(change: dict[str, str]) -> None:
    """Whatever stands in the script counts."""
    assert len(_texts(_plan(), _plan(number=1, **change))) == 2


def test_arrays_are_split_at_the_largest_size() -> None:
    """No task has a number that Slurm does not take, and each finds its point."""
    plans = {number: _plan(number=number) for number in (0, 2, 3, 5, 6)}
    arrays = make_arrays(plans, folder=Path("/r"), parallel=2, max_size=3)
    assert [(array.first, array.numbers) for array in arrays] == [(0, (0, 2)), (3, (3, 5)), (6, (6,))]
    texts = [render_array(array) for array in arrays]
    assert [_directive(text, "array") for text in texts] == ["0,2%2", "0,2%2", "0%2"]
    assert [_run_dir(text, task=0) for text in texts] == ["/r/0", "/r/3", "/r/6"]


def test_the_text_is_that_of_a_single_job_but_for_its_numbers() -> None:
    """Whatever a single job has, each task has: only the array, its logs and the folders differ."""
    plan = _plan(comment="a 'b'")
    single, array = render_slurm(plan).splitlines(), _texts(plan)[0].splitlines()
    changed = [line for line in array if line not in single]
    assert [line.partition("=")[0].split()[0] for line in changed] == ["#SBATCH", "#SBATCH", "srun"]
    assert _directive("\n".join(array), "array") == "0"
    assert _directive("\n".join(array), "output") == "/r/submitit/%A_%a_0_log.out"
    assert "--output=submitit/%A_%a_%t_log.out" in changed[-1]


@pytest.mark.parametrize("root", HOSTILE)
def test_each_task_finds_its_run_folder(root: str) -> None:
    """As bash reads the script, whatever letters the folder has."""
    (text,) = _texts(_plan(root), _plan(root, 1), root=root)
    assert _run_dir(text, task=1) == f"{root}/1"
    assert f"--chdir={root}/1" in _srun(text, task=1)


@pytest.mark.parametrize("root", HOSTILE)
def test_the_scripts_own_log_lies_in_the_sweeps_folder(root: str) -> None:
    """A doubled % is one for sbatch, which puts in the array's numbers."""
    (text,) = _texts(_plan(root), root=root)
    assert _directive(text, "output") == f"{root.replace('%', '%%')}/submitit/%A_%a_0_log.out"


def _directive(text: str, name: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(f"#SBATCH --{name}="))
    (word,) = shlex.split(line.removeprefix("#SBATCH "))
    return word.partition("=")[2]


def _srun(text: str, *, task: int) -> list[str]:
    script = f"srun() {{ printf '%s\\0' \"$@\"; }}\nSLURM_ARRAY_TASK_ID={task}\n{text}"
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def _run_dir(text: str, *, task: int) -> str:
    return _srun(text, task=task)[-1]
