"""One worker's work, run in this process: what it is called with, and what is said when it ends."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hpc_multinode
from hpc_multinode import stopping
from hpc_multinode.config import Config
from hpc_multinode.context import WorkerContext
from hpc_multinode.node.spec import WorkerSpec
from hpc_multinode.node.supervisor import Supervisor
from hpc_multinode.node.worker import TRACEBACK_HEADER, run_worker
from hpc_multinode.planning import make_plan
from hpc_multinode.stopping import Page
from hpc_multinode.work import find_target
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from hpc_multinode.plan import LaunchPlan

PACKAGE = str(Path(hpc_multinode.__file__).parent)


pytestmark = pytest.mark.usefixtures("clean_modules")


def make_place(tmp_path: Path) -> WorkerContext:
    """Return the second worker of the second of two nodes."""
    return WorkerContext(
        world_size=4,
        node_rank=1,
        global_rank=3,
        local_rank=1,
        local_world_size=2,
        num_nodes=2,
        main_address="n0",
        main_port=1234,
        attempt=0,
        run_dir=str(tmp_path / "run-1"),
        devices=("0",),
    )


def make_worker_plan(tmp_path: Path, body: str, *, signature: str = "") -> LaunchPlan:
    """Return the plan of a function ``run`` with this body."""
    source = f"import os, sys\n\ndef run({signature}):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    (tmp_path / "my_work.py").write_text(source)
    config = Config(nodes=2)
    config.resources.workers_per_node = 2
    facts = make_facts(cwd=str(tmp_path), python=sys.executable, run_root=str(tmp_path), num_cpus=4)
    target = find_target("my_work.py:run", cwd=tmp_path, is_script=False)
    (tmp_path / "run-1" / "attempt-0").mkdir(parents=True)
    return make_plan(config, facts=facts, target=target, keeps_results=True)


def run_plan(tmp_path: Path, plan: LaunchPlan) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and what the worker said."""
    sys.path[:0] = plan.work.folders
    said: list[dict[str, Any]] = []
    return run_worker(plan, make_place(tmp_path), say=said.append), said


def run(tmp_path: Path, body: str, *, signature: str = "") -> tuple[int, list[dict[str, Any]]]:
    """Run a function's body as a work."""
    return run_plan(tmp_path, make_worker_plan(tmp_path, body, signature=signature))


def find_failure(said: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the one failure that was said."""
    (failure,) = [words for words in said if words["kind"] == "failed"]
    return failure


def read_result(tmp_path: Path) -> Any:
    """Return what the worker left for the caller."""
    return pickle.loads((tmp_path / "run-1" / "attempt-0" / "rank3.result.pkl").read_bytes())[1]  # noqa: S301 - ours


def test_a_work_that_returns_ends_with_0(tmp_path: Path) -> None:
    """Nothing is said of a good end but that the executor was ready."""
    assert run(tmp_path, "pass") == (0, [{"kind": "phase", "name": "process_group"}])


def test_the_return_value_comes_back(tmp_path: Path) -> None:
    """It lies in the attempt's folder under the global rank."""
    run(tmp_path, "return {'loss': 0.5}")
    assert read_result(tmp_path) == {"loss": 0.5}


def test_the_result_is_private(tmp_path: Path) -> None:
    """Nobody else may read a return value."""
    run(tmp_path, "return 1")
    assert (tmp_path / "run-1" / "attempt-0" / "rank3.result.pkl").stat().st_mode & 0o777 == 0o600


def test_no_result_is_kept_where_nobody_asks(tmp_path: Path) -> None:
    """A run from the command line leaves no pickles."""
    run_plan(tmp_path, replace(make_worker_plan(tmp_path, "return 1"), keeps_results=False))
    assert list((tmp_path / "run-1" / "attempt-0").iterdir()) == []


def test_the_work_gets_its_place(tmp_path: Path) -> None:
    """Ranks, sizes and address are the worker's own."""
    names = "world_size, node_rank, global_rank, local_rank, local_world_size, num_nodes, main_address, main_port"
    run(tmp_path, f"return {names}, attempt, run_dir", signature=f"{names}, attempt, run_dir")
    assert read_result(tmp_path) == (4, 1, 3, 1, 2, 2, "n0", 1234, 0, str(tmp_path / "run-1"))


def test_the_context_holds_the_same(tmp_path: Path) -> None:
    """A work that asks for context gets its place and the node's devices in one object."""
    run(tmp_path, "return context.global_rank, context.world_size, context.devices", signature="context")
    assert read_result(tmp_path) == (3, 4, ("0",))


def test_an_exception_is_said(tmp_path: Path) -> None:
    """Type, text and traceback go to the agent, and the code is 1."""
    code, said = run(tmp_path, "raise KeyError('lr')")
    failure = find_failure(said)
    assert (code, failure["exception"], failure["message"]) == (1, "KeyError", "'lr'")
    assert failure["traceback"][-1] == "KeyError: 'lr'"


def test_the_traceback_stands_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It comes after a line by which a follower of the log knows it."""
    run(tmp_path, "raise ValueError('boom')")
    header, _, rest = capsys.readouterr().err.partition("\n")
    assert header == TRACEBACK_HEADER
    assert rest.startswith("Traceback (most recent call last):")
    assert rest.endswith("ValueError: boom\n")


def test_a_stop_does_not_overtake_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All workers get SIGTERM as soon as one failure is heard of; the one that failed is still writing."""
    plan = make_worker_plan(tmp_path, "raise ValueError('boom')")
    sys.path[:0] = plan.work.folders
    came: list[str] = []

    def say(words: dict[str, Any]) -> None:
        if words["kind"] == "failed":
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: came.append(capsys.readouterr().err))
    try:
        assert run_worker(plan, make_place(tmp_path), say=say) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    (log,) = came
    assert log.endswith("ValueError: boom\n")


def test_a_failure_in_a_thread_of_the_caller_s_is_said(tmp_path: Path) -> None:
    """``cluster=debug`` may run there, where no handler of a signal can be set."""
    with ThreadPoolExecutor(1) as pool:
        code, said = pool.submit(run, tmp_path, "raise ValueError('boom')").result()
    assert (code, find_failure(said)["message"]) == (1, "boom")


def test_a_forked_child_does_not_tell_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no rank, and would count as one."""
    descriptor, page = Page.make()
    os.close(descriptor)
    monkeypatch.setattr(stopping._Own, "page", page)  # noqa: SLF001 - as if this process were a worker
    monkeypatch.setattr(stopping._Own, "tell_first", None)  # noqa: SLF001
    own_pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own_pid)
    body = "import os\nfrom hpc_multinode import stop_requested\nos.getpid = lambda: -1\nstop_requested()"
    _, said = run(tmp_path, body)
    assert [words["name"] for words in said if words["kind"] == "phase"] == ["process_group"]


def test_a_traceback_has_no_frames_of_ours(tmp_path: Path) -> None:
    """The person sees their own lines only."""
    _, said = run(tmp_path, "os.stat('/nowhere/at/all')")
    text = "\n".join(find_failure(said)["traceback"])
    assert "os.stat('/nowhere/at/all')" in text
    assert PACKAGE not in text


def test_a_chained_traceback_has_no_frames_of_ours(tmp_path: Path) -> None:
    """Causes are told, without our lines in them."""
    body = """
        try:
            {}['lr']
        except KeyError as error:
            raise ValueError('no lr') from error
    """
    text = "\n".join(find_failure(run(tmp_path, body)[1])["traceback"])
    assert "KeyError: 'lr'" in text
    assert "direct cause" in text
    assert PACKAGE not in text


def test_a_work_that_cannot_be_imported_fails_with_its_own_lines(tmp_path: Path) -> None:
    """An import error is shown where the person wrote it, without the machinery of import."""
    plan = make_worker_plan(tmp_path, "pass")
    (tmp_path / "my_work.py").write_text("import not_there_at_all\n\ndef run(): pass\n")
    code, said = run_plan(tmp_path, plan)
    failure = find_failure(said)
    text = "\n".join(failure["traceback"])
    assert (code, failure["exception"]) == (1, "ModuleNotFoundError")
    assert "import not_there_at_all" in text
    assert PACKAGE not in text
    assert "<frozen" not in text


def test_an_error_of_ours_has_no_traceback(tmp_path: Path) -> None:
    """A signature that cannot be met is told in three parts."""
    code, said = run(tmp_path, "pass", signature="data")
    failure = find_failure(said)
    assert (code, failure["exception"]) == (1, "WorkError")
    assert "error: run() asks for 'data', which nobody gives" in failure["traceback"][0]
    assert not any("Traceback" in line for line in failure["traceback"])


def test_a_failed_work_leaves_no_result(tmp_path: Path) -> None:
    """There is no return value of a work that raised."""
    run(tmp_path, "raise ValueError")
    assert list((tmp_path / "run-1" / "attempt-0").iterdir()) == []


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(0)", "sys.exit(None)", "sys.exit(False)"])
def test_a_work_may_end_itself_well(tmp_path: Path, end: str) -> None:
    """sys.exit without a code, or with 0, is a good end."""
    code, said = run(tmp_path, end)
    assert (code, [words["kind"] for words in said]) == (0, ["phase"])


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit(255)", 255),
        ("sys.exit(-1)", 255),
        ("sys.exit(256)", 1),
        ("sys.exit(True)", 1),
        ("sys.exit('no data')", 1),
        ("sys.exit('3')", 1),
        ("sys.exit(['a', 'b'])", 1),
    ],
)
def test_a_work_may_end_itself_badly(tmp_path: Path, end: str, code: int) -> None:
    """The process ends with the work's own code, never with 0, and the report names the same code."""
    found, said = run(tmp_path, end)
    failure = find_failure(said)
    supervisor = Supervisor(node_rank=0, host="n1", signal_workers=lambda _: None)
    supervisor.start([WorkerSpec(place=make_place(tmp_path), cpus=(), title="rank", log="rank3.log")])
    told = supervisor.hear(1, failure)
    assert told is not None
    assert (found, failure["exception"], told.exit_code) == (code, "SystemExit", code)


def test_the_text_of_sys_exit_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the interpreter does, sys.exit with a text prints it."""
    _, said = run(tmp_path, "sys.exit('no data')")
    assert find_failure(said)["message"] == "no data"
    assert capsys.readouterr().err == "no data\n"


def test_a_code_whose_text_cannot_be_made_is_a_failure(tmp_path: Path) -> None:
    """sys.exit with an object that cannot be printed ends the worker as any other failure."""
    body = """
        class Code:
            def __str__(self):
                raise RuntimeError('no text')
        sys.exit(Code())
    """
    code, said = run(tmp_path, body)
    assert (code, find_failure(said)["exception"]) == (1, "SystemExit")


def test_keyboard_interrupt_is_a_failure(tmp_path: Path) -> None:
    """A work that is interrupted has not ended well."""
    code, said = run(tmp_path, "raise KeyboardInterrupt")
    assert (code, find_failure(said)["exception"]) == (1, "KeyboardInterrupt")


def test_an_exception_whose_text_cannot_be_made_is_said(tmp_path: Path) -> None:
    """The type is told, and why there is no text."""
    body = """
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError('no text')
        raise Odd
    """
    code, said = run(tmp_path, body)
    failure = find_failure(said)
    assert (code, failure["exception"]) == (1, "Odd")
    assert "RuntimeError" in failure["message"]


def test_the_log_names_an_exception_without_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The log has the type, too."""
    run(tmp_path, "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Odd")
    assert "Odd" in capsys.readouterr().err


def test_an_exception_that_cannot_be_built_again_is_said(tmp_path: Path) -> None:
    """Only words leave the process, so a class with a constructor of its own does no harm."""
    body = """
        class Odd(Exception):
            def __init__(self, first, second):
                super().__init__(f'{first} and {second}')
        raise Odd(1, 2)
    """
    assert find_failure(run(tmp_path, body)[1])["message"] == "1 and 2"


@pytest.mark.parametrize("text", ["'x' * 20_000_000", "'line\\n' * 4_000_000"], ids=["one-line", "many-lines"])
def test_a_message_of_20_mb_is_cut(tmp_path: Path, text: str) -> None:
    """What is said stays small, whatever the exception holds."""
    _, said = run(tmp_path, f"raise ValueError({text})")
    failure = find_failure(said)
    assert 0 < len(failure["message"]) <= 4_000
    assert 0 < sum(map(len, failure["traceback"])) < 50_000


def test_the_log_keeps_the_whole_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only what goes to the agent is cut."""
    run(tmp_path, "raise ValueError('x' * 100_000)")
    assert "x" * 100_000 in capsys.readouterr().err


def test_a_long_traceback_keeps_its_ends(tmp_path: Path) -> None:
    """Where it began and what it was are told; the middle is in the log."""
    body = """
        def deeper(depth):
            if depth % 2:
                return deeper(depth - 1)
            if depth:
                return (deeper(depth - 1))
            raise ValueError('bottom')
        deeper(100)
    """
    lines = find_failure(run(tmp_path, body)[1])["traceback"]
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: bottom"
    assert len(lines) <= 41
    assert sum("see the log" in line for line in lines) == 1


@pytest.mark.parametrize("value", ["__import__('threading').Lock()", "(number for number in range(3))"])
def test_a_result_that_cannot_be_pickled_is_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """The work ended well; the log says that its return value did not come through."""
    code, said = run(tmp_path, f"return {value}")
    assert (code, [words["kind"] for words in said]) == (0, ["phase"])
    assert "cannot be pickled and is dropped" in capsys.readouterr().err
    assert read_result(tmp_path) is None


def test_a_lambda_is_a_result(tmp_path: Path) -> None:
    """Cloudpickle carries what pickle cannot."""
    run(tmp_path, "return lambda: 7")
    assert read_result(tmp_path)() == 7
