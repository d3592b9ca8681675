"""What of an outer job reaches a new one, and what is said of the rest."""

from __future__ import annotations

import pytest

from hpc_multinode.slurm.leaking import make_submission_env, render_left_out

LEFT_OUT = "is left out, for a job is what its script says"
OPTIONS = {"partition": "gpu", "time": "01:00:00", "exclusive": True}


def test_the_variables_for_sbatch_are_the_persons() -> None:
    """Variables that are none of Slurm's and none of a launcher's stay, and Slurm's place does."""
    environ = {"PATH": "/bin", "SLURM_CONF": "/c", "SLURM_JOB_ID": "1", "SBATCH_QOS": "q", "RANK": "0", "MY": "x"}
    assert make_submission_env(environ) == {"PATH": "/bin", "SLURM_CONF": "/c", "MY": "x"}


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("SBATCH_PARTITION", "cpu", "SBATCH_PARTITION=cpu is left out: the run asks for --partition=gpu"),
        ("SBATCH_TIMELIMIT", "5", "SBATCH_TIMELIMIT=5 is left out: the run asks for --time=01:00:00"),
        (
            "SBATCH_ACCOUNT",
            "x",
            f"SBATCH_ACCOUNT=x {LEFT_OUT}; resources.account or resources.sbatch.account asks for it",
        ),
    ],
)
def test_each_wish_that_does_not_count_is_named(name: str, value: str, line: str) -> None:
    """A variable of sbatch that contradicts the script, or adds to it, is told with what to write instead."""
    assert render_left_out({name: value, "SLURM_JOB_ID": "1"}, OPTIONS) == [line]


def test_a_wish_that_says_the_same_is_not_named() -> None:
    """Nobody is warned of what the run asks for anyway."""
    assert render_left_out({"SBATCH_PARTITION": "gpu"}, OPTIONS) == []
