"""The ranks' lines as they come."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.logs import TRACEBACK_HEADER, LogFollower, RunFollower, WaitingFollower


class _Run:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.follower = LogFollower(root)

    def write(self, data: bytes, *, rank: int = 0, attempt: int = 0) -> None:
        folder = self.root / f"attempt-{attempt}"
        folder.mkdir(exist_ok=True)
        with (folder / f"rank{rank}.log").open("ab") as file:
            file.write(data)

    def new(self) -> list[tuple[int, str]]:
        return list(self.follower.read_new())

    def rest(self) -> list[tuple[int, str]]:
        return list(self.follower.read_rest())


@pytest.fixture
def run(tmp_path: Path) -> _Run:
    """Give a run folder without logs, and its follower."""
    return _Run(tmp_path)


def test_before_there_are_logs_nothing_is_new(run: _Run) -> None:
    """Logs may come later than the follower."""
    assert run.new() == []


def test_only_whole_lines_are_passed_on(run: _Run) -> None:
    """A line comes when it has its end, once."""
    run.write(b"a\n\nb")
    assert run.new() == [(0, "a"), (0, "")]
    run.write(b"c\n")
    assert run.new() == [(0, "bc")]
    assert run.new() == []


def test_a_last_line_without_end_comes_at_the_end(run: _Run) -> None:
    """What never got an end is not lost, and told once."""
    run.write(b"a\nb")
    assert run.rest() == [(0, "a"), (0, "b")]
    assert run.rest() == []


def test_each_line_has_its_rank(run: _Run) -> None:
    """Ranks are read from the logs' names, above nine too."""
    for rank in (2, 11):
        run.write(f"from {rank}\n".encode(), rank=rank)
    assert sorted(run.new()) == [(2, "from 2"), (11, "from 11")]


def test_the_next_attempt_is_followed_too(run: _Run) -> None:
    """A restart's logs lie in a folder of their own."""
    run.write(b"first\n")
    assert run.new() == [(0, "first")]
    run.write(b"second\n", attempt=1)
    assert run.new() == [(0, "second")]


def test_other_files_are_no_logs(run: _Run, tmp_path: Path) -> None:
    """Only ranks' logs are shown."""
    (tmp_path / "attempt-0").mkdir()
    for name in ("node0.log", "rankx.log", "rank0.log.bak", "rank0.result.pkl"):
        (tmp_path / "attempt-0" / name).write_text("x\n")
    assert run.rest() == []


def test_a_letter_cut_in_two_is_put_together(run: _Run) -> None:
    """A letter of several bytes may come in two writes."""
    run.write(b"\xc3")
    assert run.new() == []
    run.write(b"\xa9\n")
    assert run.new() == [(0, "\u00e9")]


def test_bytes_that_are_no_text_are_shown_as_such(run: _Run) -> None:
    """A worker may print anything."""
    run.write(b"a\xff\n")
    assert run.new() == [(0, "a\ufffd")]


def test_carriage_returns_at_the_end_are_dropped(run: _Run) -> None:
    """Line ends of Windows are line ends; those within a progress bar stay."""
    run.write(b"1%\r2%\r\n")
    assert run.new() == [(0, "1%\r2%")]


def test_a_traceback_is_kept_out(run: _Run) -> None:
    """From our header on a log is silent: the report tells it. Other ranks go on."""
    run.write(f"a\n{TRACEBACK_HEADER}\nTraceback\nx".encode())
    run.write(b"b\n", rank=1)
    assert sorted(run.rest()) == [(0, "a"), (1, "b")]


def test_an_endless_line_is_passed_on_in_pieces(run: _Run) -> None:
    """Memory is bounded, and no letter is lost."""
    run.write(b"x" * 3_000_000 + b"\n")
    pieces = [text for _, text in run.new()]
    assert "".join(pieces) == "x" * 3_000_000
    assert len(pieces) > 1


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_how_it_is_cut_does_not_matter(tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]) -> None:
    """Chunk by chunk or all at once gives the same lines."""
    one, other = (_Run(tmp_path_factory.mktemp("run")) for _ in range(2))
    seen = []
    for chunk in chunks:
        one.write(chunk)
        seen += one.new()
    seen += one.rest()
    other.write(b"".join(chunks))
    assert seen == other.rest()


def test_no_log_is_held_open(run: _Run) -> None:
    """A run may have more ranks than a process may have open files."""
    for rank in range(20):
        run.write(b"a\n", rank=rank)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert len(run.new()) == 20
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_attempts_and_beginnings_are_chosen(run: _Run) -> None:
    """A follower may take one attempt alone, and begin where another reader has stopped."""
    for attempt in range(3):
        run.write(b"old\nnew\n", attempt=attempt)
    path = run.root / "attempt-1" / "rank0.log"
    follower = LogFollower(run.root, first_attempt=1, last_attempt=1, offsets={path: 4})
    assert list(follower.read_new()) == [(0, "new")]


def test_a_traceback_is_passed_on_where_it_is_wanted(run: _Run) -> None:
    """Whoever shows nothing but logs shows all of them."""
    run.write(f"a\n{TRACEBACK_HEADER}\nTraceback\n".encode())
    follower = LogFollower(run.root, shows_traceback=True)
    assert [line for _, line in follower.read_new()] == ["a", TRACEBACK_HEADER, "Traceback"]


def test_run_is_followed_attempt_after_attempt(tmp_path: Path) -> None:
    """An attempt after which another has begun is read to its end, last lines without an end too."""
    run = _Run(tmp_path)
    follower = RunFollower(tmp_path)
    run.write(b"a\nb")
    assert list(follower.read_new()) == [(0, [(0, "a")])]
    run.write(b"c\n", attempt=1)
    assert list(follower.read_new()) == [(0, [(0, "b")]), (1, [(0, "c")])]
    run.write(b"d", attempt=1)
    assert [batch for batch in follower.read_rest() if batch[1]] == [(1, [(0, "d")])]


def test_agents_tell_for_whom_they_wait_until_there_are_workers(tmp_path: Path) -> None:
    """The newest word of node 0 or 1 is told once, and none of an attempt whose workers are there."""
    run, follower = _Run(tmp_path), WaitingFollower(tmp_path)
    assert follower.read_new() is None
    (tmp_path / "submitit").mkdir()
    log = tmp_path / "submitit" / "4711_0_log.out"
    log.write_text("srun: hello\nwaiting for node 1 (n02): 5 s of 300 s\nwaiting for node 1 (n02): 10 s of 300 s\n")
    assert follower.read_new() == "waiting for node 1 (n02): 10 s of 300 s"
    assert follower.read_new() is None
    with log.open("a") as file:
        file.write("0: waiting for node 1 (n02): 15 s of 300 s\n")
    assert follower.read_new() == "waiting for node 1 (n02): 15 s of 300 s"
    run.write(b"here\n")
    with log.open("a") as file:
        file.write("waiting for node 1 (n02): 20 s of 300 s\n")
    assert follower.read_new() is None
