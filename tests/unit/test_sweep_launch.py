"""A sweep submitted to a fake sbatch: what is written, sent and said, and what stays when a part is refused."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

import hpc_multinode.sweep_launch  # noqa: F401 - before a test replaces sys.stdout
from hpc_multinode.cli import run
from hpc_multinode.registry import read_entries
from hpc_multinode.runs import RunFolder
from hpc_multinode.slurm.commands import find_max_array_size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SWEEP = ["-m", "work.target=train.py:run", "run_id=s", "work.kwargs.lr=0.1,0.2", "nodes=1,2"]
# Gives jobs the ids 41, 42 and so on, keeps their texts, and refuses those that hold a word.
FAKE_SBATCH = """#!/bin/bash
if grep -q -e '{refused}' "$1"; then echo "sbatch: error: no such thing" >&2; exit 1; fi
number=$((41 + $(ls {kept} | wc -l)))
cp "$1" "{kept}/$number"
echo "Submitted batch job $number"
"""


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Stand in a folder with a work and give a function that makes an sbatch; it returns where that keeps the texts."""
    here, kept, programs = tmp_path / "here", tmp_path / "kept", tmp_path / "bin"
    for folder in (here, kept, programs):
        folder.mkdir()
    (here / "train.py").write_text("def run(lr=0.1): pass\n")
    for name in [name for name in os.environ if name.startswith(("SLURM_", "HPC_MULTINODE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(here)

    def make(*, refused: str = "nothing is", max_size: int = 1001) -> Path:
        for name, text in {
            "sbatch": FAKE_SBATCH.format(kept=kept, refused=refused),
            "scontrol": f"#!/bin/sh\necho 'MaxArraySize            = {max_size}'\n",
            "squeue": "#!/bin/sh\n",
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return kept

    return make


def _directives(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"#SBATCH --{name}=")]


def test_a_sweep_is_one_array_for_each_kind(sbatch: Callable[..., Path]) -> None:
    """Points that ask for the same are one sbatch, and no limit is set that nobody asked for."""
    kept = sbatch()
    assert run(SWEEP) == 0
    texts = [path.read_text() for path in sorted(kept.iterdir())]
    assert [(_directives(text, "array"), _directives(text, "nodes")) for text in texts] == [
        (["0,2"], ["1"]), (["1,3"], ["2"]),
    ]  # fmt: skip


def test_each_point_has_its_run_folder_and_configuration(sbatch: Callable[..., Path], tmp_path: Path) -> None:
    """Plan, resolved configuration and secret of its own, closed to others."""
    sbatch()
    run(SWEEP)
    runs = [tmp_path / "here/runs/s" / str(number) for number in range(4)]
    plans = [json.loads((folder / "plan.json").read_text()) for folder in runs]
    assert [(plan["work"]["kwargs"]["lr"], plan["num_nodes"]) for plan in plans] == [
        (0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2),
    ]  # fmt: skip
    assert ["lr: 0.2" in (folder / "config.yaml").read_text() for folder in runs] == [False, False, True, True]
    assert len({(folder / "secret").read_bytes() for folder in runs}) == 4
    assert {folder.stat().st_mode & 0o777 for folder in (*runs, runs[0].parent)} == {0o700}


def test_what_is_said(sbatch: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Where the points are, which jobs they are, and how to look at and cancel all of them."""
    sbatch()
    run(SWEEP)
    no_gpu = "no GPU asked for (resources=gpu asks for one)"
    assert capsys.readouterr().out.splitlines() == [
        "sweep: 4 points, each in runs/s/NUMBER; runs/s/sweep.json tells which is which",
        f"submitted: job 41, points 0,2: base: train.py:run on 1 x 1 = 1 worker, on Slurm, {no_gpu}",
        f"submitted: job 42, points 1,3: base: train.py:run on 2 x 1 = 2 workers, on Slurm, {no_gpu}",
        "list:   python -m hpc_multinode list --name s",
        "follow: python -m hpc_multinode logs -f 41_0",
        "cancel: python -m hpc_multinode cancel s",
    ]


def test_the_record_names_the_jobs(sbatch: Callable[..., Path], tmp_path: Path) -> None:
    """From a point to its job and back."""
    sbatch()
    run(SWEEP)
    record = json.loads((tmp_path / "here/runs/s/sweep.json").read_text())
    assert [(job["job_id"], job["numbers"]) for job in record["jobs"]] == [("41", [0, 2]), ("42", [1, 3])]


def test_each_point_is_a_run_in_the_registry(sbatch: Callable[..., Path]) -> None:
    """Under the id of its task, so that every verb finds it."""
    sbatch()
    run(SWEEP)
    assert {entry.run: entry.job_id for entry in read_entries()} == {
        "s-0": "41_0", "s-1": "42_1", "s-2": "41_2", "s-3": "42_3",
    }  # fmt: skip


def test_what_is_sent_is_what_render_prints(
    sbatch: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The same text, which stays in the sweep's folder; rendering writes nothing."""
    kept = sbatch()
    words = ["-m", "work.target=train.py:run", "run_id=s", "work.kwargs.lr=1,2", "array.parallel=1"]
    assert run(["render", *words]) == 0
    printed = capsys.readouterr().out
    assert not (tmp_path / "here/runs").exists()
    run(words)
    assert printed == (kept / "41").read_text() == (tmp_path / "here/runs/s/submission-0.sh").read_text()
    assert _directives(printed, "array") == ["0-1%1"]


def test_render_parts_several_jobs(sbatch: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Each text is headed by which points it is for."""
    sbatch()
    run(["render", *SWEEP])
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# job")]
    assert heads == ["# job 1 of 2, points 0,2:", "# job 2 of 2, points 1,3:"]


def test_render_needs_no_slurm(
    sbatch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without scontrol Slurm's default of MaxArraySize counts."""
    assert sbatch
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_max_array_size() == 1001
    assert run(["render", "-m", "work.target=train.py:run", "work.kwargs.lr=range(0,3)"]) == 0
    assert _directives(capsys.readouterr().out, "array") == ["0-2"]


def test_a_large_sweep_is_split(sbatch: Callable[..., Path]) -> None:
    """No array is larger than the site's MaxArraySize."""
    kept = sbatch(max_size=2)
    run(["-m", "work.target=train.py:run", "work.kwargs.lr=range(0,5)"])
    texts = [path.read_text() for path in sorted(kept.iterdir())]
    assert [_directives(text, "array") for text in texts] == [["0-1"], ["0-1"], ["0"]]
    assert '"$((SLURM_ARRAY_TASK_ID + 4))"' in texts[2]


def test_a_refused_sweep_leaves_its_script_alone(
    sbatch: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was submitted, so no run stays; Slurm's words and the script are shown."""
    sbatch(refused="--array")
    assert run(SWEEP) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: sbatch refuses the job\n  found: sbatch: error: no such thing\n")
    runs = tmp_path / "here/runs"
    assert f"{runs}/s.refused.sh" in error
    assert [path.name for path in runs.iterdir()] == ["s.refused.sh"]
    assert "#SBATCH --array=0,2" in (runs / "s.refused.sh").read_text()


def test_a_sweep_that_is_refused_in_part_is_told_so(
    sbatch: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was submitted stays and is named; of the rest no run folder stays."""
    sbatch(refused="--nodes=2")
    assert run(SWEEP) == 2
    error = capsys.readouterr().err.splitlines()
    assert error == [
        "error: sbatch refuses a part of the sweep, after another part was submitted",
        "  found: sbatch: error: no such thing",
        "         submitted: job 41, points 0,2",
        "         not submitted: points 1,3",
        "  fix:   mend that; the same words with rerun=failed then submit the rest",
        "         cancel: python -m hpc_multinode cancel s",
    ]
    folder = tmp_path / "here/runs/s"
    assert {path.name for path in folder.iterdir()} == {
        "0", "2", "submission-0.sh", "submission-1.sh", "submitit", "sweep.json",
    }  # fmt: skip
    assert [point["number"] for point in json.loads((folder / "sweep.json").read_text())["points"]] == [0, 2]


def test_the_rest_is_submitted_by_rerun(sbatch: Callable[..., Path], tmp_path: Path) -> None:
    """After a part was refused, ``rerun=failed`` submits what is neither done nor in the queue."""
    sbatch(refused="--nodes=2")
    run(SWEEP)
    kept = sbatch()
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\necho 41_0\necho 41_2\n")
    again = [word for word in SWEEP if word != "run_id=s"]
    assert run([*again, "rerun=failed"]) == 0
    assert _directives((kept / "42").read_text(), "array") == ["1,3"]


def test_a_sweep_in_which_all_is_done_starts_nothing(
    sbatch: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, and no folder is made."""
    kept = sbatch()
    run(SWEEP)
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\nprintf '41_%s\\n' 0 2; printf '42_%s\\n' 1 3\n")
    capsys.readouterr()
    assert run([*[word for word in SWEEP if word != "run_id=s"], "rerun=failed"]) == 0
    assert capsys.readouterr().out == "left out: points 0-3 wait or run\nnothing to start\n"
    assert len(list(kept.iterdir())) == 2
    assert len(list((tmp_path / "here/runs").iterdir())) == 1


def test_a_sweeps_id_is_taken_once(sbatch: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """As of any run."""
    kept = sbatch()
    run(SWEEP)
    assert run(SWEEP) == 2
    assert "a run of this id is there already" in capsys.readouterr().err
    assert len(list(kept.iterdir())) == 2


def test_a_wrong_point_is_refused_before_anything_is_written(
    sbatch: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last point counts as much as the first."""
    kept = sbatch()
    assert run(["-m", "work.target=train.py:run", "nodes=1,2,0"]) == 2
    assert "nodes is too small" in capsys.readouterr().err
    assert not (tmp_path / "here/runs").exists()
    assert list(kept.iterdir()) == []


def test_run_folders_that_cannot_be_made_leave_nothing(
    sbatch: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is submitted then, and no half of a sweep stays."""
    kept = sbatch()
    real = RunFolder.write

    def write(self: RunFolder, name: str, content: bytes) -> None:
        if self.path.name == "3":
            raise OSError(28, "No space left on device")
        real(self, name, content)

    monkeypatch.setattr(RunFolder, "write", write)
    assert run(SWEEP) == 2
    assert list((tmp_path / "here/runs").iterdir()) == []
    assert list(kept.iterdir()) == []


def test_the_code_is_copied_once(
    sbatch: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All points run the copy in the sweep's folder."""
    sbatch()
    assert run([*SWEEP, "snapshot=true"]) == 0
    assert f"\ncode:  1 file, 0.0 MB of {tmp_path}/here, which git does not know\n" in capsys.readouterr().out
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("code")] == ["here/runs/s/code"]


def test_a_sweep_has_no_standalone_script(sbatch: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A script for plain sbatch is for one run."""
    assert sbatch
    assert run(["render", "--standalone", *SWEEP]) == 2
    assert capsys.readouterr().err.startswith("error: --standalone prints the script of one run, not of a sweep\n")


@pytest.mark.parametrize("site", ["cluster.container=/images/a b.sif", "cluster.template=pyxis"])
def test_what_stands_around_the_agents_finds_the_points_folder(
    sbatch: Callable[..., Path], site: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A container in an array is given the run folder of its task, in whatever word that stands."""
    assert sbatch
    container = [] if "container" in site else ["cluster.container=image"]
    assert run(["render", "-m", *SWEEP[1:4], "nodes=2", site, *container, "cluster.python=python3"]) == 0
    text = capsys.readouterr().out
    assert "HPC_MULTINODE_POINT" not in text
    script = f"srun() {{ printf '%s\\n' \"$@\"; }}\nSLURM_ARRAY_TASK_ID=1\n{text}"
    words = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True).stdout
    assert words.count(f"{tmp_path}/here/runs/s/1") >= 3
