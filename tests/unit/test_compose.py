"""From files and the command line to one configuration."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hydra.errors import ConfigCompositionException
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_multinode.compose import compose_config, explained, find_config_dirs, render_config
from hpc_multinode.config import Config, Mode, StartMethod
from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KEYS_TELL = "python -m hpc_multinode --help lists the keys"


def _folder(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def _compose(*words: str, dirs: Sequence[Path] = ()) -> Config:
    return compose_config(words, config_dirs=dirs)


def _refuse(*words: str, dirs: Sequence[Path] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        _compose(*words, dirs=dirs)
    return caught.value


def _refuse_defaults(root: Path, text: str | bytes) -> ConfigError:
    return _refuse(dirs=[_folder(root, {"defaults.yaml": text})])


# -- words of the command line ---------------------------------------------------------------------------------------


def test_without_words_the_defaults_are_the_schemas() -> None:
    """Nothing typed: strategy base, no GPU, and every other value as the schema has it."""
    config, schema = _compose(), Config()
    assert (config.nodes, config.strategy.name, config.resources.gpus_per_node) == (schema.nodes, "base", None)
    assert (config.stop, config.launch, config.work, config.env) == (
        schema.stop, schema.launch, schema.work, schema.env,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("nodes=2", "nodes", 2),
        ("++nodes=2", "nodes", 2),
        ("resources=gpu-fast-multi", "resources.gpus_per_node", 4),
        ("resources.mem_gb=1.5", "resources.mem_gb", "1.5"),
        ("resources.mem_gb=null", "resources.mem_gb", None),
        ("resources.time=90", "resources.time", "90"),
        ("resources.nodelist=node[01-03]", "resources.nodelist", "node[01-03]"),
        ("resources.nodelist=[n1,n2]", "resources.nodelist", ["n1", "n2"]),
        ("resources.time=1-00:00:00", "resources.time", "1-00:00:00"),
        ("resources.time=00:30:00", "resources.time", "00:30:00"),
        ("resources.time=10:00", "resources.time", "10:00"),
        ("resources.exclusive=true", "resources.exclusive", True),
        ("resources.srun_args=[--exact]", "resources.srun_args", ["--exact"]),
        ("cluster=debug", "cluster.mode", Mode.debug),
        ("cluster.mode=slurm", "cluster.mode", Mode.slurm),
        ("cluster.setup=['a, b','c']", "cluster.setup", ["a, b", "c"]),
        ("launch.start_method=spawn", "launch.start_method", StartMethod.spawn),
        ("private=false", "private", False),
        ("strategy=lite", "strategy.name", "lite"),
        ("work.args=[1,a]", "work.args", [1, "a"]),
        ("work.target=a b,c.py:X", "work.target", "a b,c.py:X"),
        ("cluster.python=/a b/python -u", "cluster.python", "/a b/python -u"),
        ("name=", "name", ""),
        ("name=null", "name", None),
        ("name='null'", "name", "null"),
        ("name=${strategy.name}x", "name", "basex"),
    ],
)
def test_a_word_sets_a_value(word: str, path: str, value: object) -> None:
    """Each kind of value arrives in its type."""
    found: Any = _compose(word)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_the_last_of_two_equal_keys_wins() -> None:
    """A key given twice is the later one's."""
    assert _compose("nodes=2", "name=a", "nodes=3", "name=b").nodes == 3


_PRINTABLE = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=12)
_HYDRA_READS = ("'", '"', "[", "{")


@given(_PRINTABLE.filter(lambda t: not t.startswith(_HYDRA_READS) and "${" not in t and "\\" not in t and t != "null"))
@settings(deadline=None, max_examples=15)
def test_a_text_arrives_letter_by_letter(text: str) -> None:
    """A value of a text key is taken as typed, unless it begins as a quoted text, list or mapping, or interpolates."""
    if text == "???":  # OmegaConf's word for a missing value
        return
    config = _compose(f"name={text}", f"env.X={text}", f"resources.sbatch.comment={text}")
    booleans = {"true": True, "false": False}
    assert config.name == text
    assert config.env == {"X": text}
    assert config.resources.sbatch == {"comment": booleans.get(text.lower(), text)}


@pytest.mark.parametrize("text", ["a\\b", "C:\\x\\", "\\d+"])
def test_a_backslash_arrives(text: str) -> None:
    """A backslash in a plain word is only a letter."""
    assert _compose(f"name={text}").name == text


@pytest.mark.parametrize("text", ["a\\\\b", "a\\,b", "a\\ b", "a,b\\c", "a=b\\c", "a\\'b", "é\\n"])
def test_a_backslash_beside_other_marks_arrives(text: str) -> None:
    """A backslash is a letter beside commas, blanks, quotes and letters beyond ASCII too."""
    assert _compose(f"name={text}").name == text


def test_three_question_marks_are_told() -> None:
    """``???`` is Hydra's sign for a value that is missing, and cannot be a text."""
    assert _refuse("env.X=???").found == "env.X: Missing mandatory value: X"


@pytest.mark.parametrize(
    ("word", "value"),
    [("x=1", 1), ("x=1e-3", 0.001), ("x=true", True), ("x=null", None), ("x=a b", "a b"), ("x='1'", "1"),
     ("x=[a,1]", ["a", 1]), ("x={a:1}", {"a": 1}), ("x=", ""), ("x=2024-01-01", "2024-01-01"), ("x=-1", -1)],
)  # fmt: skip
@pytest.mark.parametrize("sign", ["", "+", "++"])
def test_arguments_of_the_work_keep_their_types(sign: str, word: str, value: object) -> None:
    """``work.kwargs`` are read as Hydra reads them, with and without ``+``."""
    assert _compose(f"{sign}work.kwargs.{word}").work.kwargs == {"x": value}


@pytest.mark.parametrize("word", ["work.kwargs={a: 1}", "env={a: 1}", "resources.sbatch={a: 1}"])
def test_an_open_mapping_can_be_given_as_a_whole(word: str) -> None:
    """The person's own mappings take any keys, given one by one or together."""
    config = _compose(word)
    assert [config.work.kwargs, config.env, config.resources.sbatch].count({"a": 1}) == 1


@pytest.mark.parametrize("value", ["é", "~/data", "s3://b/k?x=1", "a=b", "it's"])
def test_a_plain_text_in_kwargs_needs_no_quotes(value: str) -> None:
    """A path in the home folder, a URL or a letter beyond ASCII is a text."""
    assert _compose(f"work.kwargs.x={value}").work.kwargs == {"x": value}


def test_nested_arguments_are_merged() -> None:
    """Dots make mappings."""
    assert _compose("work.kwargs.opt.lr=1", "work.kwargs.opt.m=2").work.kwargs == {"opt": {"lr": 1, "m": 2}}


def test_a_key_of_ones_own_can_be_taken_back() -> None:
    """``~`` removes a variable that was set before."""
    assert _compose("env.A=1", "env.B=2", "~env.A").env == {"B": "2"}


@pytest.mark.parametrize(
    ("word", "key", "fix"),
    [
        ("nods=2", "nods", "did you mean nodes?"),
        ("+nods=2", "nods", "did you mean nodes?"),
        ("resource=gpu", "resource", "did you mean resources?"),
        ("work.targt=x", "work.targt", "did you mean work.target?"),
        ("resources.gpus=2", "resources.gpus", "did you mean resources.gpus_per_node?"),
        ("gpus_per_node=2", "gpus_per_node", "did you mean resources.gpus_per_node?"),
        ("partition=x", "partition", "did you mean resources.partition?"),
        ("zzz=1", "zzz", KEYS_TELL),
    ],
)
def test_refuses_an_unknown_key(word: str, key: str, fix: str) -> None:
    """A misspelt, shortened or misplaced key is answered with the one that was meant."""
    error = _refuse(word)
    assert (error.what, error.found, error.fix) == (f"unknown key {key!r}", word, fix)


@pytest.mark.parametrize("word", ["x", "nodes", "=2", ""])
def test_refuses_a_word_without_equals(word: str) -> None:
    """A word that sets nothing is refused."""
    error = _refuse(word)
    assert (error.what, error.found) == ("an override has no =", word)
    assert error.fix == "write key=value; a script's own arguments come after --"


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("nodes=two", "give a whole number, as in nodes=2"),
        ("nodes=1.5", "give a whole number, as in nodes=2"),
        ("nodes=", "give a whole number, as in nodes=2"),
        ("private=null", "leave it out for its default"),
        ("stop.grace_s=4G", "give a number, as in stop.grace_s=30"),
        ("resources.exclusive=maybe", "give true or false"),
        ("cluster.mode=foo", f"one of {', '.join(Mode.__members__)}"),
        (
            "launch.start_method=forked",
            f"one of {', '.join(StartMethod.__members__)}",
        ),
        ("name=[1,2]", "give a text, in quotes of its own where it begins with a bracket"),
        ("work.kwargs=abc", "it holds names with values: a word for each, as in env.NAME=VALUE"),
        ("cluster.setup=abc", "give a list, as in cluster.setup=['module load cuda']"),
    ],
)
def test_refuses_a_wrong_type(word: str, text: str) -> None:
    """A value of the wrong type is told with the word as typed."""
    error = _refuse(word)
    assert (error.what, error.found, error.fix) == ("a value has the wrong type", word, text)


@pytest.mark.parametrize("word", ["nodes=2,4", "strategy=lite,base"])
def test_refuses_several_values(word: str) -> None:
    """A comma makes a sweep, which one run cannot be."""
    error = _refuse(word)
    assert (error.what, error.found) == ("an override has several values", word)
    assert error.fix == (
        """give one; a list is written [a,b], and a text with a comma in quotes of its own: 'key="a,b"'"""
    )


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("name=[a", """'name="[a"'"""),
        ("work.args=[a(b]", """'work.args="[a(b]"'"""),
        ("name='a", """'key="value"'"""),
        ("name='a' b", """'key="value"'"""),
        ("nodes==2", """'nodes="=2"'"""),
    ],
)
def test_refuses_a_word_that_cannot_be_read(word: str, quoted: str) -> None:
    """A quote or bracket without its partner is answered with the word, and with how it is quoted."""
    error = _refuse(word)
    assert error.what == "an override cannot be read"
    assert error.found.startswith(f"{word}: ")
    assert error.fix == f"put the value into quotes of its own, and the word into the shell's: {quoted}"


@pytest.mark.parametrize(
    ("word", "items"),
    [
        ("resources.nodelist=[node[01-03],x]", ["node[01-03]", "x"]),
        ("resources.exclude=[1,02, a(b]", ["1", "02", "a(b"]),
        ("""resources.exclude=["a,b",c]""", ["a,b", "c"]),
        ("resources.partition=[]", []),
        ("resources.partition=a,b", "a,b"),
        ("resources.nodelist=n[1,2]", "n[1,2]"),
    ],
)
def test_a_list_of_texts_needs_no_quotes(word: str, items: object) -> None:
    """Items are taken letter by letter, unless they are quoted already."""
    key = word.partition("=")[0].rpartition(".")[2]
    assert getattr(_compose(word).resources, key) == items


def test_options_of_srun_need_no_quotes() -> None:
    """An item may begin with dashes and hold an equals sign."""
    assert _compose("resources.srun_args=[--mpi=none,--x]").resources.srun_args == ["--mpi=none", "--x"]


def test_refuses_to_add_what_is_there() -> None:
    """``+`` before a key of ours is told as such."""
    error = _refuse("+private=true")
    assert error.what == "the configuration cannot be composed"
    assert error.found == "Could not append to config. An item is already at 'private'."


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("strategy=lit", "did you mean strategy=lite?"),
        ("strategy=zzz", "choose one of them, or add strategy/zzz.yaml to a folder of your own (--config-dir)"),
    ],
)
def test_refuses_an_unknown_option(word: str, fix: str) -> None:
    """An option that no folder has is told with those that there are."""
    error = _refuse(word)
    assert error.what == f"unknown strategy {word.partition('=')[2]!r}"
    assert error.found == f"{word}; there are: base, lightning, lite, pytorch_spawn, script"
    assert error.fix == fix


@pytest.mark.parametrize("word", ["strategy=null", "resources=null", "cluster=null"])
def test_refuses_no_option(word: str) -> None:
    """A group that must have an option cannot be null."""
    assert word.partition("=")[0] in _refuse(word).found


def test_takes_back_an_experiment(tmp_path: Path) -> None:
    """``experiment=null`` undoes the one of defaults.yaml."""
    folder = _folder(tmp_path, {"defaults.yaml": "experiment: digits\n"})
    assert _compose("experiment=null", dirs=[folder]).work.kwargs == {}


@pytest.mark.parametrize("word", ["strategy=[lite,base]", "resources=[cpu,gpu]"])
def test_refuses_a_list_of_options(word: str) -> None:
    """A group takes one option."""
    _refuse(word)


def test_refuses_an_option_outside_its_group() -> None:
    """An option is a name, not a path."""
    assert _refuse("strategy=../config").found.startswith("strategy=../config")


def test_refuses_a_sweep_in_words_that_fit() -> None:
    """A sweep function is refused without advice that does not work."""
    assert "--multirun" not in _refuse("nodes=range(1,3)").fix


def test_an_experiment_sets_options_and_values() -> None:
    """The example of an experiment chooses a strategy, nodes and arguments; words still win."""
    config = _compose("experiment=digits", "nodes=3")
    assert (config.strategy.name, config.nodes, config.work.kwargs) == ("pytorch_spawn", 3, {"epochs": 20})
    assert (config.work.target or "").endswith("/examples/digits.py:run")


def test_an_unknown_variable_in_an_interpolation_is_named() -> None:
    """A variable that is not set is an error that names it."""
    error = _refuse("env.X=${oc.env:HPC_NOPE}")
    assert error.what == "the configuration cannot be composed"
    assert "Environment variable 'HPC_NOPE' not found" in error.fix


# -- the person's folders --------------------------------------------------------------------------------------------


def test_a_folder_adds_an_option_to_every_group(tmp_path: Path) -> None:
    """Files of the person's own stand beside ours."""
    _folder(
        tmp_path,
        {
            "strategy/mine.yaml": "name: mine\nexecutor: my.mod:E\n",
            "resources/big.yaml": "defaults:\n  - gpu\ncpus_per_node: 64\nsbatch:\n  mail-type: END\n",
            "cluster/site.yaml": "# @package _global_\ncluster:\n  mode: slurm\nresources:\n  account: a\n",
            "experiment/e.yaml": "# @package _global_\ndefaults:\n  - override /strategy: mine\nnodes: 5\n",
        },
    )
    config = _compose("experiment=e", "cluster=site", "resources=big", dirs=[tmp_path])
    assert (config.strategy.name, config.strategy.executor, config.nodes) == ("mine", "my.mod:E", 5)
    assert (config.resources.gpus_per_node, config.resources.cpus_per_node, config.resources.sbatch) == (
        1, 64, {"mail-type": "END"},
    )  # fmt: skip
    assert (config.cluster.mode, config.resources.account) == (Mode.slurm, "a")


def test_a_persons_file_wins_over_ours(tmp_path: Path) -> None:
    """For equal names the person's file is read."""
    folder = _folder(tmp_path, {"resources/gpu.yaml": "gpus_per_node: 7\n"})
    assert _compose("resources=gpu", dirs=[folder]).resources.gpus_per_node == 7


def test_the_earlier_folder_wins(tmp_path: Path) -> None:
    """Group files and single keys of defaults.yaml come from the first folder that has them."""
    first = _folder(tmp_path / "a", {"defaults.yaml": "nodes: 2\n", "resources/x.yaml": "gpus_per_node: 1\n"})
    second = _folder(tmp_path / "b", {"defaults.yaml": "nodes: 3\nname: b\n", "resources/x.yaml": "gpus_per_node: 2\n"})
    config = _compose("resources=x", dirs=[first, second])
    assert (config.nodes, config.name, config.resources.gpus_per_node) == (2, "b", 1)


def test_folders_of_one_call_are_forgotten_in_the_next(tmp_path: Path) -> None:
    """Nothing of a call before stays."""
    _compose(dirs=[_folder(tmp_path, {"defaults.yaml": "nodes: 4\n"})])
    assert _compose().nodes == Config().nodes


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    """Blanks, quotes, commas, brackets and percent signs in a path do no harm."""
    files: dict[str, str | bytes] = {"defaults.yaml": "nodes: 9\n", "resources/z.yaml": "mem_gb: 5\n"}
    folder = _folder(tmp_path / "a 'b\" c,[d] é#%20", files)
    config = _compose("resources=z", dirs=[folder])
    assert (config.nodes, config.resources.mem_gb) == (9, "5")


def test_later_wins(tmp_path: Path) -> None:
    """In order: cluster, resources, experiment, defaults.yaml, command line."""
    folder = _folder(
        tmp_path,
        {
            "cluster/c.yaml": "# @package _global_\n"
            "resources: {partition: c, account: c, qos: c, gres: c, exclude: c}\n",
            "resources/r.yaml": "{partition: r, account: r, qos: r, gres: r}\n",
            "experiment/e.yaml": "# @package _global_\nresources: {partition: e, account: e, qos: e}\n",
            "defaults.yaml": "resources: {partition: d, account: d}\n",
        },
    )
    found = _compose("cluster=c", "resources=r", "experiment=e", "resources.partition=w", dirs=[folder]).resources
    assert (found.partition, found.account, found.qos, found.gres, found.exclude) == ("w", "d", "e", "r", "c")


def test_defaults_choose_options(tmp_path: Path) -> None:
    """In defaults.yaml a group takes the name of an option, and a word wins over it."""
    folder = _folder(tmp_path, {"defaults.yaml": "resources: gpu-fast\nstrategy: lite\nexperiment: digits\n"})
    assert _compose(dirs=[folder]).resources.gpus_per_node == 1
    assert _compose(dirs=[folder]).strategy.name == "lite"
    assert _compose("resources=cpu", dirs=[folder]).resources.gpus_per_node is None


@pytest.mark.parametrize("text", ["", "# a comment\n"])
def test_an_empty_file_changes_nothing(tmp_path: Path, text: str) -> None:
    """Empty files are taken."""
    folder = _folder(tmp_path, {"defaults.yaml": text, "resources/x.yaml": text})
    assert dataclasses.asdict(_compose("resources=x", dirs=[folder])) == dataclasses.asdict(_compose())


# -- files that are wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "fix"),
    [
        ("nods: 2\n", "nods", "did you mean nodes?"),
        ("resources:\n  gpus: 2\n", "resources.gpus", "did you mean resources.gpus_per_node?"),
        ("1: 2\n", "1", KEYS_TELL),
        ("defaults:\n  - resources: gpu\n", "defaults", KEYS_TELL),
    ],
)
def test_refuses_an_unknown_key_in_defaults(tmp_path: Path, text: str, key: str, fix: str) -> None:
    """A key that we do not know is told with its file."""
    error = _refuse_defaults(tmp_path, text)
    assert (error.what, error.found) == (f"unknown key {key!r}", f"{key} in {tmp_path}/defaults.yaml")
    assert error.fix == fix


def test_refuses_a_list_in_defaults(tmp_path: Path) -> None:
    """A list is no mapping."""
    error = _refuse_defaults(tmp_path, "- a\n")
    assert (error.what, error.found) == ("defaults.yaml is not a mapping", f"{tmp_path}/defaults.yaml")
    assert error.fix == "write keys and values, as in nodes: 2"


@pytest.mark.parametrize(
    "text",
    [
        "3\n",
        "hello\n",
    ],
)
def test_refuses_a_scalar_in_defaults(tmp_path: Path, text: str) -> None:
    """A number or a word alone is no mapping."""
    assert _refuse_defaults(tmp_path, text).what == "defaults.yaml is not a mapping"


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("nodes: [1\n", 2, "expected ',' or ']', but got '<stream end>'"),
        ("nodes: 2\nnodes: 3\n", 2, "found duplicate key nodes"),
        ("nodes: 2\n---\nnodes: 3\n", 2, "but found another document"),
        (
            "nodes: !!python/x y\n",
            1,
            "could not determine a constructor for the tag 'tag:yaml.org,2002:python/x'",
        ),
    ],
)
@pytest.mark.parametrize("file", ["defaults.yaml", "resources/cpu.yaml"])
def test_refuses_what_is_not_yaml(tmp_path: Path, file: str, text: str, line: int, problem: str) -> None:
    """A file that does not parse is told with its place, and no tag runs code."""
    error = _refuse(dirs=[_folder(tmp_path, {file: text})])
    place = f"{tmp_path}/{file}, line {line}: {problem}"
    assert (error.what, error.found) == ("a configuration file is not YAML", place)
    assert error.fix.startswith("mend that line")


@pytest.mark.parametrize("file", ["defaults.yaml", "resources/cpu.yaml"])
def test_refuses_a_file_that_is_not_utf_8(tmp_path: Path, file: str) -> None:
    """Bytes that are no text are an error with the file's name."""
    assert file in _refuse(dirs=[_folder(tmp_path, {file: b"name: caf\xe9\n"})]).found


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("defaults.yaml", "nodes: two\n", ["nodes", "two"]),
        ("defaults.yaml", "stop:\n  grace_s: 4G\n", ["grace_s", "4G"]),
        ("defaults.yaml", "stop:\n  grace_s: 1:30\n", ["grace_s", "1:30"]),
        ("defaults.yaml", "env: [a]\n", ["env"]),
        ("defaults.yaml", "env:\n", ["env"]),
        ("defaults.yaml", "resources:\n", ["resources"]),
        ("defaults.yaml", "resources.cpus_per_node: 3\n", ["resources.cpus_per_node"]),
        ("resources/cpu.yaml", "gpus_per_node: two\n", ["gpus_per_node", "two"]),
        ("resources/cpu.yaml", "gpus: 3\n", ["gpus"]),
        ("resources/cpu.yaml", "resources:\n  gpus_per_node: 3\n", ["resources/cpu", "key"]),
        ("resources/cpu.yaml", "- a\n", ["mapping"]),
        ("cluster/auto.yaml", "mode: slurm\nresources:\n  account: a\n", ["cluster", "resources"]),
    ],
)
def test_an_error_in_a_file_tells_key_and_value(tmp_path: Path, file: str, text: str, words: list[str]) -> None:
    """A wrong key, type or section in a file is told by its name and value."""
    told = str(_refuse(dirs=[_folder(tmp_path, {file: text})]))
    assert all(word in told for word in words)
    assert "raised while composing config" not in told


def test_defaults_may_name_no_experiment(tmp_path: Path) -> None:
    """``experiment: null`` is what our own config.yaml says."""
    assert _compose(dirs=[_folder(tmp_path, {"defaults.yaml": "experiment: null\n"})]).nodes == Config().nodes


@pytest.mark.parametrize("text", ["lr: 0.1\n", "nodes: 3\n", ""])
def test_refuses_a_config_of_another_app(tmp_path: Path, text: str) -> None:
    """A config.yaml of the person's own app in their folder must not silently take the place of ours."""
    error = _refuse(dirs=[_folder(tmp_path, {"config.yaml": text})])
    assert error.what == "a config.yaml of yours stands in the place of ours and lacks the schema"
    assert error.found == f"{tmp_path}/config.yaml"
    assert error.fix == "name it defaults.yaml to have its values merged, or give it the defaults list of ours"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr: 0.1\n", ["nodes=2"]),
        ("lr: 0.1\n", ["strategy=lite"]),
        ("defaults:\n  - model: x\n", []),
        ("- a\n", []),
    ],
)
def test_refuses_a_config_of_another_app_with_words_too(tmp_path: Path, text: str, words: list[str]) -> None:
    """The same error whatever else is typed, and whatever is in that file."""
    error = _refuse(*words, dirs=[_folder(tmp_path, {"config.yaml": text})])
    assert error.what == "a config.yaml of yours stands in the place of ours and lacks the schema"


def test_takes_a_config_with_our_defaults_list(tmp_path: Path) -> None:
    """A config.yaml that begins from the schema is the person's right."""
    groups = "{cluster: auto}, {resources: cpu}, {strategy: lite}"
    text = f"defaults: [_hpc_multinode_schema, _self_, {groups}, _hpc_multinode_defaults]"
    folder = _folder(tmp_path, {"config.yaml": f"{text}\nnodes: 4\n", "defaults.yaml": "name: x\n"})
    config = _compose(dirs=[folder])
    assert (config.nodes, config.strategy.name, config.name) == (4, "lite", "x")


@pytest.mark.parametrize("name", ["schema.yaml", "person_defaults.yaml"])
def test_files_with_our_internal_names_are_not_read(tmp_path: Path, name: str) -> None:
    """A file that happens to bear a name of our defaults list is nobody's setting."""
    assert _compose(dirs=[_folder(tmp_path, {name: "nodes: 7\n"})]).nodes == Config().nodes


# -- where the folders are -------------------------------------------------------------------------------------------


def test_folders_in_order(tmp_path: Path) -> None:
    """--config-dir in the order typed, then the variable, then the home folder's."""
    for name in ("a", "b", "c", "home/.config/hpc_multinode"):
        (tmp_path / name).mkdir(parents=True)
    environ = {"HPC_MULTINODE_CONFIG_DIR": str(tmp_path / "c"), "HOME": str(tmp_path / "home")}
    assert find_config_dirs([str(tmp_path / "b"), str(tmp_path / "a")], environ) == (
        tmp_path / "b", tmp_path / "a", tmp_path / "c", tmp_path / "home/.config/hpc_multinode",
    )  # fmt: skip


def test_xdg_config_home_takes_the_place_of_the_home_folder(tmp_path: Path) -> None:
    """The standard's variable wins over HOME."""
    (tmp_path / "hpc_multinode").mkdir()
    assert find_config_dirs([], {"XDG_CONFIG_HOME": str(tmp_path), "HOME": "/nope"}) == (tmp_path / "hpc_multinode",)


def test_a_relative_folder_is_taken_from_where_the_person_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--config-dir conf`` is below the current folder."""
    (tmp_path / "conf").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_config_dirs(["conf"], {}) == (tmp_path / "conf",)


def test_without_folders_there_are_none(tmp_path: Path) -> None:
    """A home without ours is no error."""
    assert find_config_dirs([], {"HOME": str(tmp_path)}) == ()


@pytest.mark.parametrize("name", ["nope", "file"])
def test_refuses_a_folder_that_is_not_there(tmp_path: Path, name: str) -> None:
    """A folder that was named must exist and be one."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        find_config_dirs([f"{tmp_path}/{name}"], {})
    assert caught.value.what == "the configuration folder does not exist"
    assert caught.value.found == f"--config-dir {tmp_path}/{name}"
    assert caught.value.fix == "name a folder that is there"


def test_the_variables_error_names_the_variable() -> None:
    """Who set it in a profile must see where it comes from."""
    with pytest.raises(ConfigError) as caught:
        find_config_dirs([], {"HPC_MULTINODE_CONFIG_DIR": "/nope_q"})
    assert caught.value.found == "HPC_MULTINODE_CONFIG_DIR=/nope_q"


def test_refuses_an_empty_folder_name() -> None:
    """``--config-dir=$UNSET`` is a mistake, not the current folder."""
    with pytest.raises(ConfigError):
        find_config_dirs([""], {})


def test_renders_resolved_values() -> None:
    """The text of config.yaml in the run folder holds values, not interpolations."""
    text = render_config(_compose("name=${nodes}-x", "nodes=3", "cluster=slurm"))
    assert "name: 3-x\n" in text
    assert "  mode: slurm\n" in text


@pytest.mark.parametrize("error", [ConfigCompositionException(), AttributeError("of a half-made node")])
def test_ctrl_c_while_composing_stays_one(error: Exception) -> None:
    """Whatever error Hydra makes of it, the person has pressed Ctrl-C and made no mistake."""
    with pytest.raises(KeyboardInterrupt), explained((), ()):
        raise error from KeyboardInterrupt()


def test_an_error_without_a_text_is_told_by_its_kind() -> None:
    """Hydra has such, and the error is ours all the same."""
    with pytest.raises(ConfigError) as caught, explained((), ()):
        raise ConfigCompositionException
    assert caught.value.found == "ConfigCompositionException"
