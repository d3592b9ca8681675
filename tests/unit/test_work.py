"""The work as it was named: where its source lies, and whether its source can meet the call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpc_multinode.errors import WorkError
from hpc_multinode.modules import check_modules
from hpc_multinode.source import check_call, check_class, check_imports
from hpc_multinode.work import WorkTarget, find_target

PLAIN = "def run(): pass\n"


def _write(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def _find(root: Path, target: str, *, is_script: bool = False) -> WorkTarget:
    return find_target(target, cwd=root, is_script=is_script)


def _refuse_target(root: Path, target: str, *, is_script: bool = False) -> WorkError:
    with pytest.raises(WorkError) as caught:
        _find(root, target, is_script=is_script)
    return caught.value


def _check(root: Path, source: str | bytes, name: str = "run", **kwargs: Any) -> None:
    _write(root, {"train.py": source})
    check_call(_find(root, f"train.py:{name}"), args=kwargs.pop("args", ()), kwargs=kwargs)


def _refuse(root: Path, source: str | bytes, name: str = "run", **kwargs: Any) -> WorkError:
    with pytest.raises(WorkError) as caught:
        _check(root, source, name, **kwargs)
    return caught.value


# -- where the source lies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "file", "module"),
    [
        ("train.py", "train.py", "train"),
        ("./train.py", "train.py", "train"),
        ("my-train.py", "my-train.py", "my-train"),
        ("a b/tr 'ain\".py", "a b/tr 'ain\".py", "tr 'ain\""),
        ("a:b.py", "a:b.py", "a:b"),
        ("C:x/train.py", "C:x/train.py", "train"),
        ("été/naïve.py", "été/naïve.py", "naïve"),
        ("queue.py", "queue.py", "queue"),
    ],
)
def test_finds_a_file(tmp_path: Path, place: str, file: str, module: str) -> None:
    """A path is taken from where the person stands, hostile characters and names of Python's own included."""
    _write(tmp_path, {file: PLAIN})
    assert _find(tmp_path, f"{place}:run") == WorkTarget(
        file=str(tmp_path / file), module=module, name="run", folders=(str((tmp_path / file).parent),)
    )


def test_takes_an_absolute_path(tmp_path: Path) -> None:
    """An absolute path needs no folder to stand in."""
    _write(tmp_path, {"train.py": PLAIN})
    assert _find(Path("/"), f"{tmp_path}/train.py:run").file == str(tmp_path / "train.py")


def test_takes_a_path_from_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is the person's home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    _write(tmp_path, {"train.py": PLAIN})
    assert _find(Path("/"), "~/train.py:run").file == str(tmp_path / "train.py")


def test_a_file_in_a_package_bears_its_dotted_name(tmp_path: Path) -> None:
    """Relative imports of a file in a package work: the package's parent stands on the path too."""
    _write(tmp_path, {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/m.py": "from . import x\n" + PLAIN})
    target = _find(tmp_path, "pkg/sub/m.py:run")
    assert (target.module, target.folders) == ("pkg.sub.m", (str(tmp_path / "pkg/sub"), str(tmp_path)))


def test_the_file_of_a_package_bears_the_packages_name(tmp_path: Path) -> None:
    """``pkg/__init__.py:run`` is the package itself."""
    _write(tmp_path, {"pkg/__init__.py": PLAIN})
    assert _find(tmp_path, "pkg/__init__.py:run").module == "pkg"


def test_a_file_with_a_dot_in_its_name_has_a_module_name_without(tmp_path: Path) -> None:
    """``train.v2.py`` is no module v2 of a package train."""
    _write(tmp_path, {"train.v2.py": PLAIN})
    module = _find(tmp_path, "train.v2.py:run").module
    assert module is not None
    assert "." not in module


def test_follows_a_symlink_to_the_source(tmp_path: Path) -> None:
    """Siblings of the real file can be imported, as Python does it for a script."""
    _write(tmp_path, {"real/x.py": PLAIN})
    (tmp_path / "x.py").symlink_to(tmp_path / "real/x.py")
    target = _find(tmp_path, "x.py:run")
    assert (target.file, target.folders) == (str(tmp_path / "real/x.py"), (str(tmp_path / "real"),))


@pytest.mark.parametrize(
    ("target", "file", "module"),
    [
        ("train:run", "train.py", "train"),
        ("pkg:run", "pkg/__init__.py", "pkg"),
        ("pkg.sub.m:run", "pkg/sub/m.py", "pkg.sub.m"),
        ("queue:run", "queue.py", "queue"),
        ("pkg.sub:A.B", "pkg/sub/__init__.py", "pkg.sub"),
    ],
)
def test_finds_a_module(tmp_path: Path, target: str, file: str, module: str) -> None:
    """A dotted name is looked for where the person stands first, and nothing is imported."""
    init = "raise SystemExit\n"
    _write(tmp_path, {"pkg/__init__.py": init, "pkg/sub/__init__.py": init, "pkg/sub/m.py": init, file: init})
    assert _find(tmp_path, target) == WorkTarget(
        file=str(tmp_path / file), module=module, name=target.partition(":")[2], folders=(str(tmp_path),)
    )


def test_finds_a_module_in_a_folder_without_init(tmp_path: Path) -> None:
    """A folder without ``__init__.py`` is a package to Python, and to us."""
    _write(tmp_path, {"nspkg/sub/m.py": PLAIN})
    assert _find(tmp_path, "nspkg.sub.m:run").file == str(tmp_path / "nspkg/sub/m.py")


def test_finds_an_installed_module(tmp_path: Path) -> None:
    """What is not in the folder is looked for on the interpreter's path."""
    assert _find(tmp_path, "json.decoder:JSONDecoder").file.endswith("/json/decoder.py")


@pytest.mark.parametrize("target", ["", "run", ":run", "train.py:", "train.py::run", "train.py:a-b", "..:run", "a b:c"])
def test_refuses_a_malformed_target(tmp_path: Path, target: str) -> None:
    """What is neither module nor file with a name is told the two forms."""
    _write(tmp_path, {"other.py": PLAIN})
    error = _refuse_target(tmp_path, target)
    assert error.what == "work.target is not in a form that can be found"
    assert error.found == f"work.target={target}"
    assert error.fix == (
        'write it as "pkg.mod:Name" or "path/to/train.py:Name", or for strategy=script as "path/to/train.py"'
    )


def test_a_file_without_a_name_lists_what_is_in_it(tmp_path: Path) -> None:
    """A file alone is answered with the last three names in it, ready to paste."""
    _write(tmp_path, {"train.py": "def a(): pass\ndef b(): pass\nclass C: pass\ndef _d(): pass\ndef e(): pass\n"})
    error = _refuse_target(tmp_path, "train.py")
    assert error.what == "a file is named without the function or class in it"
    assert error.found == "work.target=train.py"
    assert error.fix == (
        "work.target=train.py:b or work.target=train.py:C or work.target=train.py:e "
        "or strategy=script to run the whole file"
    )


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    """A file that is not there is told with its full path and a name like it."""
    _write(tmp_path, {"train.py": PLAIN})
    error = _refuse_target(tmp_path, "trian.py:run")
    assert error.what == "the file trian.py does not exist"
    assert error.found == f"work.target=trian.py:run, that is {tmp_path}/trian.py"
    assert error.fix == "did you mean train.py?"


def test_refuses_a_folder(tmp_path: Path) -> None:
    """A folder is no source; where no name is like it the fix tells from where the path is taken."""
    (tmp_path / "d.py").mkdir()
    error = _refuse_target(tmp_path, "./:run")
    assert error.found == f"work.target=./:run, that is {tmp_path} (a folder)"
    assert error.fix == f"give a path that is right from {tmp_path}"


@pytest.mark.parametrize("target", ["nope_q:run", "pkg.nope:run", "train.mod:run", "train.txt:run", "sys:exit"])
def test_refuses_a_missing_module(tmp_path: Path, target: str) -> None:
    """A module without a source is an error that says where was looked."""
    _write(tmp_path, {"pkg/__init__.py": "", "train.py": "", "train.txt": ""})
    error = _refuse_target(tmp_path, target)
    place = target.partition(":")[0]
    assert error.what == f"the module {place} cannot be found"
    assert error.found == f"work.target={target}: no source of {place!r} in {tmp_path} nor on this interpreter's path"
    assert error.fix == "run from the folder that holds it, install it, or give a path: path/to/file.py:Name"


def test_the_error_names_the_setting(tmp_path: Path) -> None:
    """The same search serves other settings under their own key."""
    with pytest.raises(WorkError) as caught:
        find_target("x.py:E", cwd=tmp_path, is_script=False, key="strategy.executor")
    assert caught.value.found == f"strategy.executor=x.py:E, that is {tmp_path}/x.py"


def test_refuses_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    """A name in a file without the ending .py is refused at submit."""
    _write(tmp_path, {"train": PLAIN})
    _refuse_target(tmp_path, "./train:run")


def test_refuses_a_nul_in_a_path(tmp_path: Path) -> None:
    """A NUL, which YAML can write, is an error like others."""
    _refuse_target(tmp_path, "a\0b.py:run")


def test_refuses_a_symlink_to_itself(tmp_path: Path) -> None:
    """A loop of symlinks is a missing file."""
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    _refuse_target(tmp_path, "loop.py:run")


# -- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train.py", "a b/it's.py", "train"])
def test_finds_a_script(tmp_path: Path, name: str) -> None:
    """A script is a file with any name; its own folder stands on the path, as with python."""
    _write(tmp_path, {name: "import sys\n"})
    assert _find(tmp_path, name, is_script=True) == WorkTarget(
        file=str(tmp_path / name), module=None, name=None, folders=(str((tmp_path / name).parent),)
    )


def test_refuses_a_name_in_a_script(tmp_path: Path) -> None:
    """A script with a name in it is answered with both ways out."""
    error = _refuse_target(_write(tmp_path, {"train.py": PLAIN}), "train.py:main", is_script=True)
    assert error.what == "strategy=script runs a file, not a name in it"
    assert error.found == "work.target=train.py:main"
    assert error.fix == "work.target=train.py, or strategy=pytorch_spawn for the function main"


def test_checks_that_a_script_parses(tmp_path: Path) -> None:
    """A script that is not Python is refused at submit."""
    target = _find(_write(tmp_path, {"train.py": "def (\n"}), "train.py", is_script=True)
    with pytest.raises(WorkError, match="the source of the work is not Python: invalid syntax"):
        check_call(target, args=(), kwargs={})


# -- the source itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "what", "place"),
    [
        (b"x = 1\ndef run(:\n", "invalid syntax", ", line 2"),
        (b"# coding: nope\n", "unknown encoding: nope", ""),
        (b"\0", "source code string cannot contain null bytes", ""),
        (b"\xff\xfed\0e\0f\0", "source code string cannot contain null bytes", ""),
    ],
)
def test_refuses_what_is_not_python(tmp_path: Path, source: bytes, what: str, place: str) -> None:
    """Wrong syntax, encoding and bytes are told with file and line, never as a traceback."""
    error = _refuse(tmp_path, source)
    assert error.what == f"the source of the work is not Python: {what}"
    assert error.found == f"{tmp_path}/train.py{place}"
    assert error.fix == "mend it; python -m py_compile on the file shows the place"


def test_refuses_a_source_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that has gone or may not be read is told as such."""
    target = WorkTarget(file=f"{tmp_path}/gone.py", module="gone", name="run", folders=())
    with pytest.raises(WorkError) as caught:
        check_call(target, args=(), kwargs={})
    assert caught.value.what == "the source of the work cannot be read: No such file or directory"
    assert (caught.value.found, caught.value.fix) == (f"{tmp_path}/gone.py", "make it readable")


def test_refuses_a_parameter_named_twice(tmp_path: Path) -> None:
    """What only the compiler refuses is refused too."""
    assert "duplicate argument 'a'" in _refuse(tmp_path, "def run(a, a): pass\n").what


@pytest.mark.parametrize(
    "source",
    ["\ufeffdef run(): pass\n".encode(), b"# coding: latin-1\n# \xe9\ndef run(): pass\n", b"def run(): pass\r\n"],
)
def test_reads_sources_as_python_does(tmp_path: Path, source: bytes) -> None:
    """A byte order mark, a declared encoding and other line ends are Python."""
    _check(tmp_path, source)


def test_refuses_a_missing_name(tmp_path: Path) -> None:
    """A name that the source does not give is told with what it does give."""
    error = _refuse(tmp_path, "def run(): pass\nclass Train: pass\ndef _x(): pass\n", "rum")
    assert error.what == "the work's source has no 'rum'"
    assert error.found == f"{tmp_path}/train.py defines run, Train"
    assert error.fix == "did you mean run?"


def test_refuses_a_name_in_an_empty_source(tmp_path: Path) -> None:
    """Where nothing is like it the fix is to define it."""
    error = _refuse(tmp_path, "")
    assert error.found == f"{tmp_path}/train.py defines no function and no class"
    assert error.fix == "define 'run' there, or name what is there"


@pytest.mark.parametrize(
    "source",
    [
        "run = lambda nope: 1\n",
        "run: object = print\n",
        "a, run = 1, 2\n",
        "(run := print)\n",
        "if a:\n    def run(nope): pass\nelse:\n    def run(): pass\n",
        "try:\n    from a import run\nexcept ImportError:\n    run = None\n",
        "from helper import run\n",
        "from helper import other as run\n",
        "from helper import *\n",
        "import helper as run\n",
        "with a as run: pass\n",
        "for run in a: pass\n",
        "def __getattr__(name): return print\n",
        "@deco\ndef run(nope): pass\n",
        "@deco\nclass run: pass\n",
        "class run(Base): pass\n",
        "class run(metaclass=Meta): pass\n",
        "class run:\n    run = other\n",
        "class run:\n    if a:\n        def run(self, nope): pass\n",
        "class run:\n    from helper import run\n",
        "class run:\n    @deco\n    def run(self, nope): pass\n",
        "class run(Base):\n    def run(self, nope): pass\n",
    ],
)
def test_leaves_to_the_worker_what_source_cannot_tell(tmp_path: Path, source: str) -> None:
    """Re-exports, conditions, decorators and base classes are no error here."""
    _check(tmp_path, source)


@pytest.mark.parametrize(
    "source",
    [
        "def run(a): pass\nrun = partial(run, 1)\n",
        "def run(a): pass\nrun = deco(run)\n",
        "def run(a): pass\nif x:\n    def run(): pass\n",
        "def run(a): pass\nfrom helper import run\n",
    ],
)
def test_leaves_to_the_worker_a_name_that_is_bound_again(tmp_path: Path, source: str) -> None:
    """A definition that a later statement replaces is not the work."""
    _check(tmp_path, source)


def test_the_last_of_two_definitions_counts(tmp_path: Path) -> None:
    """As in Python the later definition is the work."""
    _check(tmp_path, "def run(nope): pass\ndef run(): pass\n")


@pytest.mark.parametrize(
    ("source", "name", "args", "kwargs"),
    [
        ("def run(world_size, lr): pass\n", "run", (), {"lr": 1}),
        ("def run(a, /, b, *, c): pass\n", "run", (1,), {"b": 1, "c": 2}),
        ("def run(*args, **kwargs): pass\n", "run", (1, 2), {"x": 1}),
        ("def run(context, x=1): pass\n", "run", (), {}),
        ("class A:\n    def run(self, lr): pass\n", "A", (), {"lr": 1}),
        ("class A:\n    def run(*args): pass\n", "A", (1,), {}),
        ("class A(object):\n    @staticmethod\n    def run(global_rank): pass\n", "A", (), {}),
        ("class A:\n    @classmethod\n    def run(cls, lr): pass\n", "A", (1,), {}),
        ("class A:\n    def __init__(self, lr): pass\n    def run(self, world_size): pass\n", "A", (), {"lr": 1}),
        ("class A:\n    class B:\n        def run(self): pass\n", "A.B", (), {}),
        ("class A:\n    @staticmethod\n    def go(): pass\n", "A.go", (), {}),
        ("@dataclass\nclass A:\n    lr: float\n    def run(self): pass\n", "A", (), {"lr": 1}),
    ],
)
def test_takes_a_call_that_the_source_can_meet(
    tmp_path: Path, source: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Functions, static, class and instance methods, nested and constructed classes are understood."""
    _write(tmp_path, {"train.py": source})
    check_call(_find(tmp_path, f"train.py:{name}"), args=args, kwargs=kwargs)


@pytest.mark.parametrize(
    ("source", "name", "kwargs", "what"),
    [
        ("def run(rank): pass\n", "run", {}, "run() asks for 'rank', which nobody gives"),
        ("def run(a): pass\n", "run", {"b": 1, "a": 1}, "run() does not take 'b' of work.kwargs"),
        ("class A:\n def run(self, x): pass\n", "A", {}, "A.run() asks for 'x', which nobody gives"),
        ("class A:\n @staticmethod\n def run(x): pass\n", "A", {}, "A.run() asks for 'x', which nobody gives"),
        ("class A:\n @classmethod\n def run(cls, x): pass\n", "A", {}, "A.run() asks for 'x', which nobody gives"),
        (
            "class A:\n def __init__(self, a): pass\n def run(self): pass\n",
            "A",
            {},
            "A() asks for 'a', which nobody gives",
        ),
        (
            "class A:\n def __init__(self): pass\n def run(self, b): pass\n",
            "A",
            {},
            "A.run() asks for 'b', which nobody gives",
        ),
    ],
)
def test_refuses_a_call_that_the_source_cannot_meet(
    tmp_path: Path, source: str, name: str, kwargs: dict[str, Any], what: str
) -> None:
    """The signature is checked before anything is submitted, and the error names the call."""
    assert _refuse(tmp_path, source, name, **kwargs).what == what


def test_checks_a_nested_class(tmp_path: Path) -> None:
    """Dots in the name lead into classes."""
    error = _refuse(tmp_path, "class A:\n    class B:\n        def run(self, x): pass\n", "A.B")
    assert error.what.endswith("B.run() asks for 'x', which nobody gives")


def test_defaults_are_shown_as_they_were_written(tmp_path: Path) -> None:
    """The signature in the error is the source's, not Python's idea of its values."""
    error = _refuse(tmp_path, "def run(a={'x': [1]}, *, c=...): pass\n", b=1)
    assert error.found == "its signature is (a={'x': [1]}, *, c=...)"


def test_refuses_a_class_without_run(tmp_path: Path) -> None:
    """A plain class needs the method."""
    error = _refuse(tmp_path, "class A:\n    def fit(self): pass\n", "A")
    assert error.what == "the class A has no method run"
    assert error.found == "it defines fit"
    assert error.fix == "add run to A: a static, class or instance method"


def test_refuses_a_coroutine(tmp_path: Path) -> None:
    """A coroutine function would return at once, so it is refused, decorated or not."""
    error = _refuse(tmp_path, "@deco\nasync def run(): pass\n")
    assert error.what == "run is a coroutine, which a worker would never start"
    assert error.found == "async def at line 2"
    assert error.fix == "give a plain function that calls asyncio.run(run(...))"


def test_refuses_a_coroutine_method(tmp_path: Path) -> None:
    """The same for a class's run."""
    error = _refuse(tmp_path, "class A:\n    async def run(self): pass\n", "A")
    assert error.what == "A.run is a coroutine, which a worker would never start"


def test_an_executor_must_be_a_class(tmp_path: Path) -> None:
    """A function is no executor."""
    _write(tmp_path, {"e.py": "x = 1\ndef E(): pass\n"})
    with pytest.raises(WorkError) as caught:
        check_class(_find(tmp_path, "e.py:E"))
    assert (caught.value.what, caught.value.found) == ("E is a function", f"{tmp_path}/e.py, line 2")
    assert caught.value.fix == "name a class"


# -- imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["import nope_q", "import os, nope_q.sub as x", "from nope_q import *"])
def test_refuses_an_import_that_is_not_installed(tmp_path: Path, line: str) -> None:
    """What the work imports at its top level must be there, with the line that asks for it."""
    target = _find(_write(tmp_path, {"train.py": f"'''doc'''\n{line}\n{PLAIN}"}), "train.py:run")
    with pytest.raises(WorkError) as caught:
        check_imports(target)
    assert caught.value.what == "the work imports 'nope_q', which is not installed"
    assert caught.value.found == f"{tmp_path}/train.py, line 2"
    assert caught.value.fix == "install it for this interpreter, or run from the folder that holds nope_q"


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import nope_q\nexcept ImportError:\n    pass\n",
        "if False:\n    import nope_q\n",
        "import sys\nsys.path.insert(0, '/a')\nimport nope_q\n",
        "from sys import path\npath.append('/a')\nimport nope_q\n",
        "import site\nsite.addsitedir('/a')\nfrom nope_q import x\n",
        "import sys\ndef own():\n    sys.path.append('/a')\nown()\nimport nope_q\n",
        "def run():\n    import nope_q\n",
        "from . import nope_q\n",
        "from __future__ import annotations\n",
        "import sibling, sibling_pkg.x, sys, os.path, torch\n",
    ],
)
def test_takes_imports_that_are_there_or_may_fail(tmp_path: Path, source: str) -> None:
    """Siblings, folders without init, builtins and guarded imports are no error."""
    _write(tmp_path, {"sibling.py": "raise SystemExit", "sibling_pkg/x.py": "", "train.py": source})
    check_imports(_find(tmp_path, "train.py:run"))


def test_imports_of_a_file_in_a_package_are_looked_for_from_its_root(tmp_path: Path) -> None:
    """A file in a package may import the package by its full name."""
    source = "import pkg_q.other\nimport other\n"
    _write(tmp_path, {"pkg_q/__init__.py": "", "pkg_q/other.py": "", "pkg_q/m.py": source})
    check_imports(_find(tmp_path, "pkg_q/m.py:run"))


def test_refuses_a_module_to_preload_that_is_not_installed() -> None:
    """Preloaded modules are looked for by their top-level package."""
    with pytest.raises(WorkError) as caught:
        check_modules(["os.path", "nope_q.sub"], folders=(), wanted_by="strategy=lite")
    assert caught.value.what == "strategy=lite needs the package 'nope_q', which is not installed"
    assert caught.value.found == "this interpreter cannot find it"
    assert caught.value.fix == "pip install nope_q"
