"""The person's executor and work, loaded as a worker loads them."""

from __future__ import annotations

import pickle
import sys
import textwrap
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

from hpc_multinode.arguments import OFFERED_NAMES, RANK_NAMES
from hpc_multinode.config import Config
from hpc_multinode.errors import WorkError
from hpc_multinode.executors.loading import load_executor, load_work, run_script
from hpc_multinode.planning import make_plan
from hpc_multinode.work import find_target
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpc_multinode.executors.base import RunWorkExecutor
    from hpc_multinode.plan import LaunchPlan

GIVEN: dict[str, Any] = {name: f"<{name}>" for name in (*RANK_NAMES, *OFFERED_NAMES)}


pytestmark = pytest.mark.usefixtures("clean_modules")


def make_work_plan(tmp_path: Path, target: str | None, **work: Any) -> LaunchPlan:
    """Return the plan of a work, found as the login side finds it, with its folders on the path."""
    is_script = target is not None and ":" not in target
    config = Config()
    config.strategy.is_script = is_script
    config.work.args = work.get("args", [])
    config.work.kwargs = work.get("kwargs", {})
    facts = make_facts(cwd=str(tmp_path), python=sys.executable, run_root=str(tmp_path / "runs"))
    found = None if target is None else find_target(target, cwd=tmp_path, is_script=is_script)
    plan = make_plan(config, facts=facts, target=found)
    sys.path[:0] = plan.work.folders
    return plan


def write(file: Path, source: str) -> None:
    """Write a source of the person's, with the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(source))


def call(tmp_path: Path, source: str, name: str, **work: Any) -> Any:
    """Load a work of one file and run it once."""
    write(tmp_path / "my_work.py", source)
    return load_work(make_work_plan(tmp_path, f"my_work.py:{name}", **work), given=GIVEN)()


def load_own(tmp_path: Path, executor: str) -> RunWorkExecutor:
    """Load an executor of the person's own."""
    strategy = replace(make_work_plan(tmp_path, None).strategy, executor=executor)
    if ".py:" in executor:
        found = find_target(executor, cwd=tmp_path, is_script=False)
        sys.path[:0] = found.folders
        strategy = replace(strategy, executor=f"{found.module}:{found.name}", executor_file=found.file)
    return load_executor(strategy, folders=(str(tmp_path),))


def run_as_script(monkeypatch: pytest.MonkeyPatch, file: Path, *argv: str) -> dict[str, Any]:
    """Run a script in a fresh ``__main__``, as a worker has one, and return its variables."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["worker"])
    run_script(str(file), argv)
    return vars(main)


def test_a_function_gets_its_arguments_by_name(tmp_path: Path) -> None:
    """Ours by name, the person's from args and kwargs."""
    source = """
        def train(lr, global_rank, *, epochs, context):
            return lr, global_rank, epochs, context
    """
    found = call(tmp_path, source, "train", args=[0.1], kwargs={"epochs": 3})
    assert found == (0.1, "<global_rank>", 3, "<context>")


@pytest.mark.parametrize("decorator", ["@staticmethod", "@classmethod", ""], ids=["static", "class", "instance"])
def test_a_class_is_run_by_its_method(tmp_path: Path, decorator: str) -> None:
    """Static, class and instance methods named run get the same arguments."""
    first = {"@staticmethod": "", "@classmethod": "cls, ", "": "self, "}[decorator]
    source = f"""
        class Train:
            {decorator or "# an instance method"}
            def run({first}world_size, lr):
                return world_size, lr
    """
    assert call(tmp_path, source, "Train", kwargs={"lr": 0.1}) == ("<world_size>", 0.1)


def test_an_instance_is_made_from_the_arguments(tmp_path: Path) -> None:
    """A class with a constructor takes work.args and work.kwargs there, and its run the ranks."""
    source = """
        class Train:
            def __init__(self, lr, node_rank, *, epochs):
                self.made = lr, node_rank, epochs

            def run(self, local_rank):
                return (*self.made, local_rank)
    """
    found = call(tmp_path, source, "Train", args=[0.1], kwargs={"epochs": 3})
    assert found == (0.1, "<node_rank>", 3, "<local_rank>")


def test_an_instance_is_made_when_the_work_runs(tmp_path: Path) -> None:
    """Loading constructs nothing: the process group is not there yet."""
    source = """
        made = []

        class Train:
            def __init__(self):
                made.append(self)

            def run(self):
                return len(made)
    """
    write(tmp_path / "my_work.py", source)
    work = load_work(make_work_plan(tmp_path, "my_work.py:Train"), given=GIVEN)
    assert sys.modules["my_work"].made == []
    assert work() == 1


def test_a_nested_class_is_found_by_its_dotted_name(tmp_path: Path) -> None:
    """Outer.Inner is a name in a file."""
    source = """
        class Outer:
            class Inner:
                @staticmethod
                def run():
                    return "inner"
    """
    assert call(tmp_path, source, "Outer.Inner") == "inner"


def test_a_work_can_be_pickled(tmp_path: Path) -> None:
    """What the file defines is found again under its module's name."""
    source = """
        class Thing:
            pass

        def train():
            return Thing()
    """
    thing = call(tmp_path, source, "train")
    assert type(pickle.loads(pickle.dumps(thing))) is type(thing)  # noqa: S301 - just made


def test_a_file_imports_its_siblings(tmp_path: Path) -> None:
    """The folder of the file stands on the path."""
    write(tmp_path / "my_sibling.py", "VALUE = 7\n")
    assert call(tmp_path, "import my_sibling\n\ndef train():\n    return my_sibling.VALUE\n", "train") == 7


def test_a_file_in_a_package_has_relative_imports(tmp_path: Path) -> None:
    """A path into a package imports the file as part of it."""
    write(tmp_path / "my_pkg" / "__init__.py", "")
    write(tmp_path / "my_pkg" / "part.py", "VALUE = 7\n")
    write(tmp_path / "my_pkg" / "train.py", "from .part import VALUE\n\ndef train():\n    return VALUE, __name__\n")
    plan = make_work_plan(tmp_path, "my_pkg/train.py:train")
    assert load_work(plan, given=GIVEN)() == (7, "my_pkg.train")


def test_a_module_is_found_by_its_name(tmp_path: Path) -> None:
    """pkg.mod:Name is taken from where the person stands."""
    write(tmp_path / "my_pkg" / "__init__.py", "")
    write(tmp_path / "my_pkg" / "train.py", "def train():\n    return __name__\n")
    assert load_work(make_work_plan(tmp_path, "my_pkg.train:train"), given=GIVEN)() == "my_pkg.train"


def test_a_file_may_bear_the_name_of_a_module_in_use(tmp_path: Path) -> None:
    """A queue.py of the person's runs, and the library's queue stays in its place."""
    library = sys.modules["queue"]
    write(tmp_path / "queue.py", "def train():\n    return 'mine'\n")
    assert load_work(make_work_plan(tmp_path, "queue.py:train"), given=GIVEN)() == "mine"
    assert sys.modules["queue"] is library


@pytest.mark.parametrize("name", ["train-v2.py", "train.v2.py", "2024.py"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    """A file whose name is no identifier is a work like any other."""
    write(tmp_path / name, "def train():\n    return 'mine'\n")
    assert load_work(make_work_plan(tmp_path, f"{name}:train"), given=GIVEN)() == "mine"


def test_a_file_that_fails_to_import_leaves_no_module(tmp_path: Path) -> None:
    """Half a module is in nobody's way, and the error is the person's own."""
    write(tmp_path / "my_work.py", "raise ZeroDivisionError('mine')\n\ndef train(): pass\n")
    with pytest.raises(ZeroDivisionError, match="mine"):
        load_work(make_work_plan(tmp_path, "my_work.py:train"), given=GIVEN)
    assert "my_work" not in sys.modules


def test_a_name_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """What the source could not tell is told here: name and file."""
    with pytest.raises(WorkError, match="has no 'train'") as caught:
        call(tmp_path, "def other(): pass\n", "train")
    assert "my_work.py" in caught.value.found


def test_a_class_without_run_is_an_error(tmp_path: Path) -> None:
    """The error names the class and what to add."""
    with pytest.raises(WorkError, match="the class Train has no method run"):
        call(tmp_path, "class Train: pass\n", "Train")


def test_a_value_is_no_work(tmp_path: Path) -> None:
    """What cannot be called is told as such."""
    with pytest.raises(WorkError, match="train cannot be called"):
        call(tmp_path, "train = 3\n", "train")


@pytest.mark.parametrize(
    "source",
    ["async def train(): pass\n", "def train(): yield 1\n", "async def train(): yield 1\n"],
    ids=["coroutine", "generator", "async-generator"],
)
def test_a_work_that_would_return_at_once_is_an_error(tmp_path: Path, source: str) -> None:
    """Calling these runs nothing of them, so a run that seems to succeed would be a lie."""
    with pytest.raises(WorkError, match="would return without having run"):
        call(tmp_path, source, "train")


def test_a_signature_that_cannot_be_met_is_an_error(tmp_path: Path) -> None:
    """A parameter that nobody gives is named before the work is called."""
    with pytest.raises(WorkError, match="asks for 'data', which nobody gives"):
        call(tmp_path, "def train(data): pass\n", "train")


def test_a_decorated_function_is_asked_for_its_own_signature(tmp_path: Path) -> None:
    """functools.wraps shows the signature that is meant."""
    source = """
        import functools

        def log(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return "logged", function(*args, **kwargs)
            return wrapper

        @log
        def train(global_rank):
            return global_rank
    """
    assert call(tmp_path, source, "train") == ("logged", "<global_rank>")


def test_an_object_travels_in_the_run_folder(tmp_path: Path) -> None:
    """A lambda of a notebook is loaded from the pickle, with its arguments."""
    plan = make_work_plan(tmp_path, None)
    factor = 2

    def target(value: int, global_rank: str) -> tuple[int, str]:
        return value * factor, global_rank

    run_dir = tmp_path / "runs" / "run-1"
    run_dir.mkdir(parents=True)
    (run_dir / "work.pkl").write_bytes(cloudpickle.dumps((target, [21], {})))
    assert load_work(plan, given=GIVEN)() == (42, "<global_rank>")


def test_a_script_is_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard at its end holds, and __file__ is its path."""
    write(tmp_path / "train.py", "if __name__ == '__main__':\n    seen = __file__\n")
    assert run_as_script(monkeypatch, tmp_path / "train.py")["seen"] == str(tmp_path / "train.py")


def test_a_script_has_its_own_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sys.argv is the file and the words after it."""
    write(tmp_path / "train.py", "import sys\nseen = list(sys.argv)\n")
    found = run_as_script(monkeypatch, tmp_path / "train.py", "--lr", "0.1")
    assert found["seen"] == [str(tmp_path / "train.py"), "--lr", "0.1"]


def test_words_of_a_script_come_from_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers in work.args are words on a script's command line."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    monkeypatch.setattr(sys, "argv", ["worker"])
    write(tmp_path / "train.py", "import sys\n")
    load_work(make_work_plan(tmp_path, "train.py", args=["--lr", 0.1]), given=GIVEN)()
    assert sys.argv[1:] == ["--lr", "0.1"]


def test_classes_of_a_script_can_be_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found under __main__, as when the script is run alone."""
    source = """
        import pickle

        class Thing:
            pass

        copy = pickle.loads(pickle.dumps(Thing()))
        is_same = type(copy) is Thing and Thing.__module__ == "__main__"
    """
    write(tmp_path / "train.py", source)
    assert run_as_script(monkeypatch, tmp_path / "train.py")["is_same"]


def test_a_script_has_its_own_future_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Annotations of a script are evaluated, as when it is run alone."""
    write(tmp_path / "train.py", "def train(lr: float) -> None: ...\nseen = train.__annotations__['lr']\n")
    assert run_as_script(monkeypatch, tmp_path / "train.py")["seen"] is float


def test_a_script_finds_the_builtins_as_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ``python train.py`` the name __builtins__ is a module, and scripts that patch print rely on it."""
    write(tmp_path / "train.py", "seen = type(__builtins__).__name__\n")
    assert run_as_script(monkeypatch, tmp_path / "train.py")["seen"] == "module"


def test_an_executor_of_ours_is_found_by_its_module(tmp_path: Path) -> None:
    """The base executor runs the work and returns what it returns."""
    executor = load_own(tmp_path, "hpc_multinode.executors.base:RunWorkExecutor")
    work: Callable[[], int] = lambda: 7  # noqa: E731 - a work
    context: Any = None
    assert executor.run(work, context) == 7


def test_an_executor_is_given_its_strategy(tmp_path: Path) -> None:
    """The chosen strategy with its settings is there as options."""
    assert load_own(tmp_path, "hpc_multinode.executors.base:RunWorkExecutor").options.name == "base"


OWN = "from hpc_multinode import RunWorkExecutor\n\nclass Own(RunWorkExecutor):\n    word = 'mine'\n"


def test_an_own_executor_is_found_by_path(tmp_path: Path) -> None:
    """path/to/file.py:Class names a class of the person's."""
    write(tmp_path / "my_executor.py", OWN)
    assert load_own(tmp_path, f"{tmp_path}/my_executor.py:Own").word == "mine"  # type: ignore[attr-defined]


def test_an_own_executor_is_found_by_module(tmp_path: Path) -> None:
    """pkg.mod:Class names a class on the path."""
    write(tmp_path / "my_pkg" / "__init__.py", "")
    write(tmp_path / "my_pkg" / "executor.py", OWN)
    sys.path.insert(0, str(tmp_path))
    assert load_own(tmp_path, "my_pkg.executor:Own").word == "mine"  # type: ignore[attr-defined]


def test_an_own_executor_by_path_in_a_package_has_relative_imports(tmp_path: Path) -> None:
    """A path into a package imports the executor as part of it, as it does a work."""
    write(tmp_path / "my_pkg" / "__init__.py", "")
    write(tmp_path / "my_pkg" / "part.py", "VALUE = 7\n")
    write(tmp_path / "my_pkg" / "executor.py", f"from .part import VALUE\n{OWN}")
    sys.path.insert(0, str(tmp_path))
    assert load_own(tmp_path, f"{tmp_path}/my_pkg/executor.py:Own").word == "mine"  # type: ignore[attr-defined]


def test_work_and_executor_in_one_file_share_it(tmp_path: Path) -> None:
    """The file is imported once, so its globals are one."""
    write(tmp_path / "my_both.py", f"{OWN}\ndef train():\n    return Own\n")
    executor = load_own(tmp_path, f"{tmp_path}/my_both.py:Own")
    assert type(executor) is load_work(make_work_plan(tmp_path, "my_both.py:train"), given=GIVEN)()


@pytest.mark.parametrize("name", ["Absent", "VALUE", "Other"])
def test_what_is_no_executor_is_an_error(tmp_path: Path, name: str) -> None:
    """A name that is not there, a value and another class are told with the setting and where it was looked for."""
    write(tmp_path / "my_executor.py", "VALUE = 3\n\nclass Other: pass\n")
    with pytest.raises(WorkError, match="names no RunWorkExecutor") as caught:
        load_own(tmp_path, f"{tmp_path}/my_executor.py:{name}")
    assert f"my_executor:{name}" in caught.value.found
    assert str(tmp_path) in caught.value.found
