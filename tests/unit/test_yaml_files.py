"""The same letters mean the same in a file and on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hpc_multinode.compose import compose_config

if TYPE_CHECKING:
    from pathlib import Path

    from hpc_multinode.config import Config

TRICKY = ["10:00", "12:00:00", "1:30", "190:20:30", "00:30:00", "1-12:00:00", "0123", "007", "on", "no", "yes", "off"]
TRICKY += [
    "123_4",
    "123456_7",
    "1.10",
    "1e3",
    "0x1F",
    "2024-01-01",
    ".5",
    "node[01-03]",
    "a100&80gb",
    "true",
    "~/x",
    "+1",
]


def _yaml(key: str, value: str) -> str:
    """Write a value under its key as a person would, quoted only where YAML itself insists."""
    *sections, last = key.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(sections)]
    return "\n".join([*lines, f"{'  ' * len(sections)}{last}: {value}"]) + "\n"


def _compose(folder: Path, files: dict[str, str], *words: str) -> Config:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return compose_config(words, config_dirs=[folder])


def _at(config: Config, key: str) -> object:
    value: Any = config
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


@pytest.mark.parametrize("text", TRICKY)
@pytest.mark.parametrize("key", ["resources.account", "resources.time", "env.X", "name", "resources.nodelist"])
def test_a_text_is_the_same_in_defaults_and_typed(tmp_path: Path, key: str, text: str) -> None:
    """A number, a time or a boolean of YAML's is text where text is wanted."""
    assert _at(_compose(tmp_path, {"defaults.yaml": _yaml(key, text)}), key) == text
    assert _at(_compose(tmp_path / "none", {}, f"{key}={text}"), key) == text


@pytest.mark.parametrize(
    ("file", "text", "word"),
    [
        ("resources/mine.yaml", "time: 10:00\n", "resources=mine"),
        ("resources/mine.yaml", "{time: 10:00}\n", "resources=mine"),
        ("cluster/site.yaml", "# @package _global_\nresources:\n  time: 10:00\n", "cluster=site"),
        ("cluster/site.yaml", "# @package resources\ntime: 10:00\n", "cluster=site"),
        ("experiment/e.yaml", "# @package _global_\nresources: {time: 10:00}\n", "experiment=e"),
    ],
)
def test_a_text_is_kept_in_every_kind_of_file(tmp_path: Path, file: str, text: str, word: str) -> None:
    """Files of each group, with each form of header, keep the letters of texts."""
    assert _compose(tmp_path, {file: text}, word).resources.time == "10:00"


def test_items_of_lists_are_texts(tmp_path: Path) -> None:
    """A list of nodes or of commands keeps the letters of each."""
    text = "resources:\n  nodelist: [01, 02]\n  srun_args: [on]\ncluster:\n  setup:\n    - true\n    - 10:00\n"
    config = _compose(tmp_path, {"defaults.yaml": text})
    assert config.resources.nodelist == ["01", "02"]
    assert (config.resources.srun_args, config.cluster.setup) == (["on"], ["true", "10:00"])


def test_merged_mappings_are_read_too(tmp_path: Path) -> None:
    """What YAML's ``<<`` brings in stands under the key that it is brought to."""
    text = "env: &e {A: 1.10}\nresources:\n  <<: {time: 10:00}\n  sbatch: {<<: *e, B: on, hold: true}\n"
    config = _compose(tmp_path, {"defaults.yaml": text})
    assert (config.env, config.resources.time) == ({"A": "1.10"}, "10:00")
    assert config.resources.sbatch == {"A": "1.10", "B": "on", "hold": True}


def test_values_for_templates_are_texts(tmp_path: Path) -> None:
    """A version keeps its last zero, in a file and typed; true and false are what they say."""
    text = "cluster:\n  vars:\n    a: 1.10\n    b: [2.0, x/1.10]\n    c: false\n"
    told = _compose(tmp_path, {"defaults.yaml": text}).cluster.vars
    words = ["cluster.vars.a=1.10", "cluster.vars.b=[2.0,x/1.10]", "cluster.vars.c=false"]
    assert told == _compose(tmp_path / "none", {}, *words).cluster.vars
    assert told == {"a": "1.10", "b": ["2.0", "x/1.10"], "c": False}


@pytest.mark.parametrize("value", ["1:30", "12:00:00", "0123"])
def test_arguments_of_the_work_know_no_other_base(tmp_path: Path, value: str) -> None:
    """Base 60 and base 8 are texts in a file, as they are on the command line."""
    told = _compose(tmp_path, {"defaults.yaml": f"work:\n  kwargs:\n    x: {value}\n"}).work.kwargs
    assert told == _compose(tmp_path / "none", {}, f"work.kwargs.x={value}").work.kwargs == {"x": value}


def test_other_values_keep_their_types(tmp_path: Path) -> None:
    """Numbers, booleans, null, quoted texts and interpolations are what YAML says they are."""
    text = (
        "nodes: 2\nprivate: off\nname: null\nstop: {grace_s: 1e1}\nresources: {account: '0123', qos: ~}\n"
        "work: {kwargs: {a: 1, b: 0.5, c: yes, d: '1:30', e: '${nodes}'}}\nenv: {X: '${name}-${nodes}'}\n"
    )
    config = _compose(tmp_path, {"defaults.yaml": text}, "name=n")
    assert (config.nodes, config.private, config.stop.grace_s) == (2, False, 10.0)
    assert (config.resources.account, config.resources.qos) == ("0123", None)
    assert config.work.kwargs == {"a": 1, "b": 0.5, "c": True, "d": "1:30", "e": 2}
    assert config.env == {"X": "n-2"}


def test_a_number_of_another_base_is_no_count(tmp_path: Path) -> None:
    """``nodes: 010`` is 10, as on the command line, and not 8."""
    assert _compose(tmp_path, {"defaults.yaml": "nodes: 010\n"}).nodes == 10
