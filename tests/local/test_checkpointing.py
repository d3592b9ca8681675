"""A Lightning Trainer in code that says nothing of it saves when the run is to stop, and goes on in the next attempt.

Each case is compared with the same fit that nobody has stopped: weights, steps and optimizer to the last digit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import WORKS
from tests.unit.life.runs import make_plan

if TYPE_CHECKING:
    from pathlib import Path

CALLBACK = "StopAndGoOn"
# Arguments of the fit, by what is special about it, and the step in which the first attempt is to stop.
STOPPED: dict[str, tuple[str, dict[str, Any], int]] = {
    "in an epoch": ("one_fit", {}, 12),
    "at an epoch's end": ("one_fit", {}, 10),
    "in the first step": ("one_fit", {}, 1),
    "while gradients accumulate": ("one_fit", {"accumulate_grad_batches": 4}, 6),
    "before min_steps": ("one_fit", {"min_steps": 25}, 7),
    "between validations": ("one_fit", {"val_check_interval": 3}, 14),
    "by max_steps": ("one_fit", {"max_steps": 22, "max_epochs": -1}, 12),
    "in the first of two fits": ("two_fits", {}, 5),
    "in the second of two fits": ("two_fits", {}, 25),
    "after a fit that stopped early": ("stops_early", {}, 25),
}


@dataclass(slots=True)
class Case:
    """Attempts of one run, and what became of them."""

    folder: Path
    attempts: list[dict[str, Any]] = field(default_factory=list)

    def code(self, number: int) -> int:
        """Exit code of an attempt."""
        return int((self.folder / f"{number}.code").read_text())

    def text(self, number: int) -> str:
        """What an attempt has printed."""
        return (self.folder / f"{number}.log").read_text()

    def steps(self, number: int) -> list[int]:
        """The steps that an attempt has trained."""
        return [int(step) for step in re.findall(r"^step (\d+)", self.text(number), re.MULTILINE)]

    def said(self, number: int) -> list[Any]:
        """What an attempt has printed as JSON."""
        return [json.loads(line) for line in self.text(number).splitlines() if line[:1] in "[{"]

    def ends(self, number: int) -> list[Any]:
        """How its fits have ended."""
        return [said for said in self.said(number) if "weights" in said]


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All cases, in one process that forks a worker for each attempt."""
    root = tmp_path_factory.mktemp("trainers")
    own = str(root / "own")
    all_attempts: dict[str, list[dict[str, Any]]] = {
        name: [{"function": function, "kwargs": kwargs, "stop_at": stop_at}, {"function": function, "kwargs": kwargs}]
        for name, (function, kwargs, stop_at) in STOPPED.items()
    }
    wholes = {json.dumps([function, kwargs]): (function, kwargs) for function, kwargs, _ in STOPPED.values()}
    for key, (function, kwargs) in wholes.items():
        all_attempts[key] = [{"function": function, "kwargs": kwargs}]
    all_attempts |= {
        "long validation": [{"function": "one_fit", "dies_in_epoch": 1}, {"function": "one_fit"}],
        "ckpt_path": [
            {"function": "one_fit", "stop_at": 12},
            {"function": "from_checkpoint", "kwargs": {"path": f"{own}/last.ckpt"}},
        ],
        "own checkpoints": [
            {"function": "keeps_own", "kwargs": {"folder": own, "fails_in": 15}},
            {"function": "keeps_own", "kwargs": {"folder": own}},
        ],
        "outside": [{"function": "says_callbacks", "is_outside": True}],
        "off": [{"function": "says_callbacks", "is_on": False}],
        "on": [{"function": "says_callbacks"}],
        "other package": [{"function": "by_other_package", "stop_at": 4}, {"function": "by_other_package"}],
    }
    found = {}
    for number, (name, attempts) in enumerate(all_attempts.items()):
        folder = root / str(number)
        (folder.parent / folder.name).parent.mkdir(exist_ok=True)
        plan = make_plan(folder, mode="slurm")
        (folder / "plan.json").write_text(plan.to_json())
        found[name] = Case(folder, attempts)
    listed = [{"folder": str(case.folder), "attempts": case.attempts} for case in found.values()]
    (root / "cases.json").write_text(json.dumps(listed))
    words = [sys.executable, "-W", "ignore", str(WORKS / "trainer_worker.py"), str(root / "cases.json")]
    subprocess.run(words, check=True, timeout=240, cwd=root)
    return found


@pytest.mark.parametrize("name", STOPPED)
def test_a_fit_goes_on_where_it_was_stopped(cases: dict[str, Case], name: str) -> None:
    """The weights are those of a fit that nobody has stopped, to the last digit, and no step is done twice."""
    function, kwargs, stop_at = STOPPED[name]
    case, whole = cases[name], cases[json.dumps([function, kwargs])]
    assert (case.code(0), case.code(1), whole.code(0)) == (0, 0, 0), case.text(0) + case.text(1)
    assert case.ends(1) == whole.ends(0)
    assert case.ends(0) == whole.ends(0)[: len(case.ends(0))]
    assert case.steps(0) + case.steps(1) == whole.steps(0)
    assert len(case.steps(0)) >= stop_at
    validated = re.findall("validates.*", case.text(0) + case.text(1))
    assert validated == re.findall("validates.*", whole.text(0))


def test_what_is_saved_counts_as_progress(cases: dict[str, Case]) -> None:
    """Steps of a Trainer count by themselves."""
    case = cases["in an epoch"]
    assert (case.said(0)[-1], case.said(1)[-1]) == ({"saved": 12}, {"saved": 30})
    assert "step 12 of fit 0 is saved for the next attempt" in case.text(0)


def test_a_state_is_saved_before_a_validation_that_outlasts_the_grace(cases: dict[str, Case]) -> None:
    """Killed in the middle of it, the fit goes on behind it."""
    case = cases["long validation"]
    assert case.code(0) == 9
    assert (case.steps(0)[-1], case.steps(1)[0]) == (19, 20), case.text(0)
    assert case.ends(1) == cases[json.dumps(["one_fit", {}])].ends(0)


def test_a_checkpoint_path_of_the_persons_is_for_the_first_attempt(cases: dict[str, Case]) -> None:
    """A later attempt says what it goes on from instead."""
    case = cases["ckpt_path"]
    assert case.steps(1)[0] == 12, case.text(1)
    assert f"goes on from {case.folder}/trainer/fit0-attempt0-0.ckpt, which came after ckpt_path=" in case.text(1)


def test_a_run_that_could_not_save_goes_on_from_the_persons_own_checkpoint(cases: dict[str, Case]) -> None:
    """After a lost node, say: from the newest that a ModelCheckpoint has written."""
    case = cases["own checkpoints"]
    assert case.code(0) == 9
    assert (case.steps(0)[-1], case.steps(1)[0]) == (14, 12), case.text(1)
    assert case.ends(1) == cases[json.dumps(["one_fit", {}])].ends(0)


def test_only_a_trainer_in_a_worker_gets_the_callback(cases: dict[str, Case]) -> None:
    """Not one elsewhere in the same environment, nor where ``strategy.auto_checkpoint=false``."""
    found = {name: cases[name].said(0)[0] for name in ("outside", "off", "on")}
    assert {name: CALLBACK in said for name, said in found.items()} == {"outside": False, "off": False, "on": True}


def test_the_same_trainer_in_its_other_package(cases: dict[str, Case]) -> None:
    """``import pytorch_lightning`` asks by an entry point of its own."""
    case = cases["other package"]
    assert (case.code(0), case.code(1)) == (0, 0), case.text(1)
    assert case.steps(0) + case.steps(1) == list(range(9))
