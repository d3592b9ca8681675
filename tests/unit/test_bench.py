"""The bench's parts are there, and its figures, comparison and table say what was measured."""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from bench import start
from bench.__main__ import PARTS, main
from bench.figures import Figure, make_ratio, render_figure
from bench.files import Counts
from bench.lab import Lab, Values
from bench.results import PartResult, read_parts, render_table, replace_table, write_results
from bench.stop import find_named
from tests.conftest import TESTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MACHINE = {"cpus": 2, "cpu": "a CPU", "memory_gb": 23, "python": "3.11", "packages": {"torch": "2"}, "commit": "abc"}


def _write(folder: Path, name: str, *values: float) -> Path:
    ratio = make_ratio("torchrun to ours", values, (1.0,) * len(values), least=4.0, in_table=True)
    seconds = Figure(what="ours", unit="s", values=values)
    path = write_results({"start": PartResult(figures=[ratio, seconds], failures=["srun: no job"])}, _MACHINE, folder)
    return path.rename(folder / name)


@pytest.mark.parametrize("name", PARTS)
def test_part_can_be_measured(name: str) -> None:
    """Every part is a module with a sentence and a function measure."""
    tree = ast.parse((TESTS.parent / "bench" / f"{name}.py").read_text())
    assert ast.get_docstring(tree)
    assert "measure" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


class _LabOfSeconds(Lab):
    """Every contestant takes as many seconds as this says, from each clock, and nothing is started."""

    cluster = SimpleNamespace(shared="/")

    def run(self, *_: object, **__: object) -> str:
        """Start nothing."""
        return ""

    def run_rounds(self, contestants: Mapping[str, object]) -> list[dict[str, Values]]:
        """Return two rounds in which torchrun takes four seconds and everybody else two."""
        clocks = ("now", "from_command", "from_sbatch", "from_step")
        takes = {who: 4.0 if who.startswith("torchrun,") else 2.0 for who in contestants}
        return [{who: dict.fromkeys(clocks, seconds) for who, seconds in takes.items()}] * 2


def test_all_contestants_starts_become_figures() -> None:
    """Each at each of its sizes, and each rival's ratio to ours, also of those that have no target."""
    lab = _LabOfSeconds(repeats=2)
    start.measure(lab)
    found = {figure.what: figure for figure in lab.result.figures}
    for who, (_, sizes) in start.CONTESTANTS.items():
        for workers in sizes:
            assert found[f"{who}, 2 x {workers}, from step"].median == (4.0 if who == "torchrun" else 2.0)
    ratios = {what.partition(" to ours")[0] for what in found if " to ours, 2 x 4, from sbatch" in what}
    assert ratios == {"torchrun", "srun", "submitit", "torchrunx", "Lightning under srun"}
    assert found["torchrun to ours, 2 x 16, from sbatch"].median == 2.0
    assert found["torchrun to ours, 2 x 4, from sbatch"].least == 4.0


def test_unknown_part_is_refused() -> None:
    """A part that is not there ends the bench before anything is measured."""
    with pytest.raises(SystemExit, match="no part speed; there are start, files"):
        main(["speed"])


def test_ratio_is_that_of_each_round() -> None:
    """A ratio divides round by round, and its line has median, spread, rounds and target."""
    figure = make_ratio("theirs to ours", (2.0, 9.0, 8.0), (1.0, 3.0, 2.0), least=4.0)
    assert render_figure(figure) == "theirs to ours: 3 x (2 to 4, n=3); target at least 4: MISSED"


def test_results_come_back(tmp_path: Path) -> None:
    """What was written is read back as it was."""
    part = read_parts(_write(tmp_path, "1.json", 4.0, 5.0))["start"]
    assert [figure.values for figure in part.figures] == [(4.0, 5.0), (4.0, 5.0)]
    assert part.failures == ["srun: no job"]


def test_compare_tells_changes_of_ratios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two files are compared by their ratios; one whose spread is apart from the older one's has changed."""
    files = [_write(tmp_path, "1.json", 4.0, 5.0, 6.0), _write(tmp_path, "2.json", 2.0, 2.5, 3.0)]
    assert main(["--compare", *map(str, files)]) == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    assert shown == ["start: torchrun to ours: 5 -> 2.5; target at least 4: MISSED; CHANGED -50 %"]


def test_compare_tells_what_came_and_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ratio that only one of the two has is named."""
    one = make_ratio("a", (1.0,), (1.0,))
    before = write_results({"start": PartResult(figures=[one])}, _MACHINE, tmp_path).rename(tmp_path / "1.json")
    now = _write(tmp_path, "2.json", 2.0)
    main(["--compare", str(before), str(now)])
    out = capsys.readouterr().out
    assert "start: torchrun to ours: new, 2; target at least 4: MISSED" in out
    assert "start: a: no longer measured" in out


def test_table_has_machine_ratios_and_what_failed(tmp_path: Path) -> None:
    """The table for the README names machine and date, the marked figures, and what could not be measured."""
    path = _write(tmp_path, "1.json", 4.0, 5.0, 6.0)
    table = render_table(path)
    assert re.match(r"Taken \d{4}-\d\d-\d\d at abc on 2 CPUs \(a CPU\), 23 GB, Python 3.11, torch 2\.", table)
    assert "| start: torchrun to ours | 5 | 4 to 6 | 3 | at least 4: met |" in table
    assert "start: ours" not in table
    assert "start: ours" in render_table(path, has_all=True)
    assert "- start: srun: no job" in table


def test_table_is_put_into_a_document(tmp_path: Path) -> None:
    """The table replaces what stands between the two marks, again and again; a document without them is refused."""
    document = tmp_path / "README.md"
    document.write_text("a\n<!-- figures -->\nold\n<!-- end of figures -->\nb\n")
    for table in ("| 1 |\n", "| 2 |\n"):
        replace_table(document, table)
    assert document.read_text() == "a\n<!-- figures -->\n| 2 |\n<!-- end of figures -->\nb\n"
    document.write_text("a\n")
    with pytest.raises(ValueError, match="lacks the marks"):
        replace_table(document, "| 3 |\n")


def test_readme_has_a_place_for_the_table() -> None:
    """The README has both marks, once."""
    text = (TESTS.parent / "README.md").read_text()
    assert (text.count("<!-- figures -->"), text.count("<!-- end of figures -->")) == (1, 1)


def test_trace_is_counted() -> None:
    """Files opened, names asked for and bytes read are counted, with calls that were interrupted by others."""
    counts = Counts()
    counts.add(
        [
            '7 openat(AT_FDCWD, "/lib/a.so", O_RDONLY) = 3</lib/a.so>',
            '7 openat(AT_FDCWD, "/lib/none", O_RDONLY) = -1 ENOENT (No such file or directory)',
            "7 read(3</lib/a.so>,  <unfinished ...>",
            '8 read(5<pipe:[12]>, "x", 1) = 1',
            '7 <... read resumed>"ELF", 832) = 832',
            '8 newfstatat(AT_FDCWD, "/lib/b", {st_mode=S_IFREG}, 0) = 0',
            '8 openat(AT_FDCWD, "/proc/self/stat", O_RDONLY) = 3</proc/self/stat>',
        ]
    )
    assert (counts.opened, counts.looked_up, counts.bytes_read) == (1, 3, 832)


def test_ranks_that_peers_name_are_found(tmp_path: Path) -> None:
    """The rank is read from torchrun's blocks, and the task from srun's lines."""
    block = "Root Cause (first observed failure):\n[0]:\n  time : now\n  host : n1\n  rank : {} (local_rank: 1)\n"
    assert find_named("torchrun", block.format(3) + block.format(1), tmp_path) == [3, 1]
    said = "srun: error: n2: task 3: Exited with exit code 1\nsrun: error: n1: tasks 0-1: Exited with exit code 1\n"
    assert find_named("srun", said, tmp_path) == [3, 0, 1]
    assert find_named("srun", "srun: error: n1: task 1: Terminated\n", tmp_path) == []
