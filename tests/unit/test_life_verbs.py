"""The words of the verbs that look at runs: what is refused, and how a run is named."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from hpc_multinode.cli import run
from hpc_multinode.cli.options import parse_ranks, parse_since
from hpc_multinode.errors import ConfigError
from hpc_multinode.life.finding import find_run, find_runs
from hpc_multinode.registry import register
from tests.unit.life.runs import make_plan

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 12, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Register three runs, of which two are tasks of an array, and return their root."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "runs"
    for name, job_id in (("train-aa", "4711"), ("train-ab", "4712_3"), ("eval-aa", "4712_4")):
        register(make_plan(root / name), job_id=job_id)
    return root


@pytest.mark.parametrize(
    ("word", "name"),
    [
        (None, "eval-aa"),
        ("4711", "train-aa"),
        ("4712_3", "train-ab"),
        ("train-aa", "train-aa"),
        ("train", "eval-aa"),
        ("ev", "eval-aa"),
        ("runs/train-ab", "train-ab"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_run_is_found(word: str | None, name: str) -> None:
    """By nothing, job id, array task, id, name (here of all three: the newest), beginning and folder."""
    assert find_run(word).run == name


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("train-a", "several runs are meant by 'train-a'"),
        ("4712", "several runs are meant by '4712'"),
        ("9999", "no run is known by '9999'"),
        ("trian-aa", "no run is known by 'trian-aa'"),
        ("./runs", "this folder is not that of a run"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_run_that_is_not_one_is_refused(word: str, what: str) -> None:
    """What fits several or none is told, with what comes close."""
    with pytest.raises(ConfigError) as caught:
        find_run(word)
    assert caught.value.what == what


@pytest.mark.usefixtures("runs")
def test_array_means_all_its_runs() -> None:
    """Where several may be meant, as for cancel, the array's id stands for all."""
    assert [entry.run for entry in find_runs("4712")] == ["eval-aa", "train-ab"]


@pytest.mark.usefixtures("runs")
def test_close_name_is_suggested() -> None:
    """A slip of the finger is answered with what was meant."""
    with pytest.raises(ConfigError) as caught:
        find_run("trian-aa")
    assert caught.value.fix == "did you mean train-aa?"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["list", "--state", "FINE"], "--state FINE: FINE"),
        (["list", "--since", "yesterday"], "--since yesterday"),
        (["list", "train"], "unrecognized arguments: train"),
        (["logs", "--rank", "3-1"], "--rank 3-1"),
        (["logs", "--rank", "4"], "--rank 4"),
        (["logs", "--node", "2"], "--node 2"),
        (["logs", "--grep", "["], "[: unterminated character set at position 0"),
        (["logs", "--attempt", "x"], "argument --attempt: invalid int value: 'x'"),
        (["status", "--watch", "--json"], "--watch --json"),
        (["wait", "a", "b"], "unrecognized arguments: b"),
        (["report", "--htm", "x"], "unrecognized arguments: --htm"),
        (["status", "--", "x=1"], "no id, name or folder of your 3 runs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.usefixtures("runs")
def test_wrong_words_are_refused(words: list[str], found: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each complaint is exit code 2 in three parts with what was typed."""
    assert run(words) == 2
    error = capsys.readouterr().err
    assert found in error
    assert "\n  fix:   " in error


def test_without_runs_every_verb_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was started yet: no traceback, and how to start."""
    for verb in ("status", "logs", "wait", "cancel", "report"):
        assert run([verb]) == 2
        assert "there is no run yet" in capsys.readouterr().err
    assert run(["list"]) == 0
    assert capsys.readouterr().out == "no runs yet\n"
    assert run(["list", "--state", "FAILED"]) == 0
    assert capsys.readouterr().out == "no runs like that; list alone shows all\n"


@pytest.mark.parametrize(("text", "ranks"), [("3", {3}), ("3,8-11", {3, 8, 9, 10, 11}), ("0-1", {0, 1})])
def test_ranks_are_read(text: str, ranks: set[int]) -> None:
    """Numbers and spans."""
    assert parse_ranks(text, option="--rank") == ranks


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        ("15min", NOW - timedelta(minutes=15)),
        ("12h", NOW - timedelta(hours=12)),
        ("2d", NOW - timedelta(days=2)),
        ("1w", NOW - timedelta(weeks=1)),
        ("2026-11-30T00:00:00+00:00", datetime(2026, 11, 30, tzinfo=timezone.utc)),
    ],
)
def test_since_is_a_span_or_a_date(text: str, moment: datetime) -> None:
    """Spans go back from now."""
    assert parse_since(text, now=NOW) == moment


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "--since", "99999999999999d"), "--since is neither a span nor a date"),
        (("list", "-n", "-3"), "no number from 0"),
        (("logs", "-n", "-3", "4711"), "no number from 0"),
        (("logs", "-n", "1" * 30, "4711"), "no number from 0"),
        (("cancel", ""), "RUN is empty"),
        (("status", " "), "RUN is empty"),
        (("report", "4711", "--html", ""), "--html takes a file"),
        (("report", "4711", "--html", "."), "--html takes a file"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_words_that_cannot_be_are_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers and spans out of range, and an empty name, as of an unset variable, which must not mean every run."""
    assert run(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("runs")
def test_reader_that_has_gone_is_no_error() -> None:
    """A pipe that nobody reads any more, as with ``| head``, leaves no traceback, however short the output is."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "hpc_multinode", "list"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, b"")
