"""The plan: everything that a run will ask for, decided before anything happens."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_multinode.config import Config, Mode
from hpc_multinode.errors import ConfigError
from hpc_multinode.plan import Facts, LaunchPlan
from hpc_multinode.planning import make_plan, make_run_id, make_run_name
from hpc_multinode.work import WorkTarget
from tests.unit.facts import make_facts

if TYPE_CHECKING:
    from collections.abc import Callable

FACTS = make_facts(
    run_id="train-1", python="/opt/py thon/bin/python", mode=Mode.slurm, num_cpus=8, python_path=("/libs", "/code")
)
HERE = dataclasses.replace(FACTS, mode=Mode.local, devices=("0", "GPU-b", "2"))
TARGET = WorkTarget(file="/code/train.py", module="train", name="run", folders=("/code",))


def _set(config: Config, values: dict[str, Any]) -> Config:
    for key, value in values.items():
        *path, last = key.split(".")
        place: Any = config
        for part in path:
            place = getattr(place, part)
        setattr(place, last, value)
    return config


def _plan(values: dict[str, Any] | None = None, facts: Facts = FACTS, target: WorkTarget | None = TARGET) -> LaunchPlan:
    return make_plan(_set(Config(), values or {}), facts=facts, target=target)


def _refuse(values: dict[str, Any], facts: Facts = FACTS) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        _plan(values, facts)
    return caught.value


def test_a_plan_of_defaults() -> None:
    """Without settings: one worker on one node, and sbatch is asked for nothing but that."""
    plan = _plan()
    assert (plan.run_id, plan.name, plan.run_dir) == ("train-1", "train", "/home/ada/runs/train-1")
    assert (plan.num_nodes, plan.local_world_size, plan.world_size) == (1, 1, 1)
    assert plan.sbatch == {"job-name": "train", "nodes": 1, "ntasks-per-node": 1}
    assert (plan.mode, plan.cwd, plan.user) == ("slurm", "/home/ada", "ada")
    assert (plan.grace_s, plan.kill_s, plan.join_timeout_s) == (60.0, 5.0, 300.0)
    assert (plan.node_devices, plan.threads) == (None, None)


def test_the_work_is_in_the_plan() -> None:
    """Workers import from the work's folder, then from where the caller could, each folder once."""
    work = _plan({"work.args": [1], "work.kwargs": {"lr": 0.1}}).work
    assert (work.file, work.module, work.name) == ("/code/train.py", "train", "run")
    assert (work.folders, work.args, work.kwargs) == (("/code", "/libs"), (1,), {"lr": 0.1})


def test_python_is_quoted_unless_given() -> None:
    """Our interpreter is one shell word; a person's command is taken as it is."""
    assert _plan().python == "'/opt/py thon/bin/python'"
    assert _plan({"cluster.python": "singularity exec x python"}).python == "singularity exec x python"


@pytest.mark.parametrize(
    ("root", "run_dir"),
    [("/data", "/data/train-1"), ("rel", "/home/ada/rel/train-1"), (None, "/home/ada/runs/train-1")],
)
def test_the_run_root_is_taken_from_where_the_person_stands(root: str | None, run_dir: str) -> None:
    """Relative roots are below the current folder."""
    assert _plan({"run_root": root}).run_dir == run_dir


@pytest.mark.parametrize(
    ("values", "workers"),
    [
        ({}, 1),
        ({"resources.gpus_per_node": 4}, 4),
        ({"resources.gpus_per_node": 0}, 1),
        ({"resources.gpus_per_node": 4, "resources.workers_per_node": 2}, 2),
        ({"resources.gpus_per_node": 4, "strategy.is_one_worker_a_node": True}, 1),
    ],
)
def test_workers_on_slurm(values: dict[str, Any], workers: int) -> None:
    """One worker a GPU asked for, unless said otherwise."""
    assert _plan(values).local_world_size == workers


@pytest.mark.parametrize(
    ("values", "workers", "devices", "threads"),
    [
        ({}, 3, (("0", "GPU-b", "2"),), 2),
        ({"nodes": 2}, 1, (("0",), ("GPU-b",)), 4),
        ({"nodes": 4}, 1, ((), (), (), ()), 2),
        ({"nodes": 2, "resources.gpus_per_node": 1}, 1, (("0",), ("GPU-b",)), 4),
        ({"nodes": 2, "resources.gpus_per_node": 0}, 1, ((), ()), 4),
        ({"nodes": 2, "resources.workers_per_node": 9}, 9, (("0",), ("GPU-b",)), 1),
    ],
)
def test_this_machine_is_shared_out(
    values: dict[str, Any], workers: int, devices: tuple[tuple[str, ...], ...], threads: int
) -> None:
    """Nodes side by side share the GPUs seen and the CPUs, no device twice."""
    plan = _plan(values, HERE)
    assert (plan.local_world_size, plan.node_devices, plan.threads) == (workers, devices, threads)


def test_debug_is_a_world_of_one() -> None:
    """Whatever is asked, debug runs rank 0 alone with all devices."""
    plan = _plan({"nodes": 3, "resources.workers_per_node": 2}, dataclasses.replace(HERE, mode=Mode.debug))
    assert (plan.world_size, plan.node_devices, plan.mode) == (1, (("0", "GPU-b", "2"),), "debug")


def test_refuses_more_gpus_than_there_are() -> None:
    """This machine cannot give what it does not have."""
    error = _refuse({"nodes": 2, "resources.gpus_per_node": 2}, HERE)
    assert error.what == "this machine has fewer GPUs than the run asks for"
    assert error.found == "nodes=2, GPUs asked for each: 2; seen: 0, GPU-b, 2"
    assert error.fix == "resources=cpu, fewer nodes or resources.gpus_per_node, or cluster=slurm"


@pytest.mark.parametrize(
    ("key", "value", "least"),
    [
        ("nodes", 0, 1),
        ("nodes", -1, 1),
        ("resources.workers_per_node", 0, 1),
        ("resources.gpus_per_node", -1, 0),
        ("resources.cpus_per_node", 0, 1),
        ("launch.main_port", 0, 1),
    ],
)
def test_refuses_counts_that_are_too_small(key: str, value: int, least: int) -> None:
    """Counts have a least value."""
    error = _refuse({key: value})
    assert (error.what, error.found, error.fix) == (
        f"{key} is too small", f"{key}={value}", f"{key} is at least {least}",
    )  # fmt: skip


def test_refuses_a_port_that_is_none() -> None:
    """Ports end at 65535."""
    error = _refuse({"launch.main_port": 65536})
    assert (error.what, error.found) == ("launch.main_port is too large", "launch.main_port=65536")
    assert error.fix == "1 to 65535"
    assert _plan({"launch.main_port": 65535}).main_port == 65535


@pytest.mark.parametrize("key", ["launch.join_timeout_s", "stop.grace_s", "stop.kill_s", "strategy.timeout_s"])
@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
def test_refuses_amounts_that_are_none(key: str, value: float) -> None:
    """Amounts are finite and not negative."""
    error = _refuse({key: value})
    assert (error.what, error.found) == (f"{key} is not an amount", f"{key}={value}")
    assert error.fix == f"{key} is a finite number from 0 on"


def test_refuses_more_workers_than_the_strategy_starts() -> None:
    """Strategy base has one worker a node."""
    error = _refuse({"strategy.is_one_worker_a_node": True, "resources.workers_per_node": 2})
    assert error.what == "strategy=base runs one worker on each node, with all its devices"
    assert error.found == "resources.workers_per_node=2"
    assert error.fix == "strategy=pytorch_spawn for one worker a GPU, or leave resources.workers_per_node out"


def test_an_allocation_gives_its_nodes() -> None:
    """Within an allocation a run without ``nodes`` takes all, and may take fewer."""
    facts = dataclasses.replace(FACTS, mode=Mode.step, num_allocated=3)
    assert [_plan({"nodes": nodes}, facts).num_nodes for nodes in (None, 2)] == [3, 2]


def test_refuses_more_nodes_than_the_allocation_has() -> None:
    """More nodes than there are need a job of their own."""
    error = _refuse({"nodes": 4}, dataclasses.replace(FACTS, mode=Mode.step, num_allocated=2))
    assert error.what == "the allocation has fewer nodes than the run asks for"
    assert error.found == "nodes=4, the allocation that we are in has 2"
    assert error.fix == "nodes=2, or cluster=slurm to submit a job of its own"


# -- names -----------------------------------------------------------------------------------------------------------


def test_the_name_is_given_or_the_files() -> None:
    """The work's file names a run that has no name."""
    assert make_run_name(Config(), TARGET) == "train"
    assert make_run_name(Config(name="a b"), TARGET) == "a b"
    assert make_run_name(Config(), None) == "work"


@given(st.text(max_size=300).filter(lambda name: "hetjob" not in name and "packjob" not in name))
def test_a_run_id_is_safe_as_a_folder(name: str) -> None:
    """Whatever the name: no slash, blank or leading dot or dash, within a file system's limit, and taken by a plan."""
    run_id = make_run_id(name, "20260101-000000", "abcd")
    assert run_id.endswith("-20260101-000000-abcd")
    assert run_id[0] not in ".-"
    assert set(run_id) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert len(run_id) < 255
    assert _plan({"run_id": run_id}).run_id == run_id


def test_refuses_a_name_that_cannot_be_printed() -> None:
    """A line break or an escape in a name would break the script and the terminal."""
    error = _refuse({"name": "a\nb"})
    assert (error.what, error.found) == ("the name holds a character that cannot be printed", "name='a\\nb'")
    assert error.fix == "name=word"


@pytest.mark.parametrize("run_id", ["a b", "..", ".x", "-x", "a/b", "é", "a\n", "x" * 231])
def test_refuses_a_run_id_that_is_no_folder(run_id: str) -> None:
    """A run id given by hand is a plain folder name."""
    error = _refuse({"run_id": run_id})
    assert (error.what, error.found) == ("run_id cannot be the name of a folder", f"run_id={run_id}")
    assert error.fix == "letters, digits, dot, dash and underscore, not beginning with dot or dash"


# -- variables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"), [("x", "x"), (1, "1"), (1.5, "1.5"), ("", ""), ("a b'\n$X", "a b'\n$X"), ("é", "é")]
)
def test_variables_become_texts(value: object, text: str) -> None:
    """Numbers are written out, texts stay."""
    assert _plan({"env": {"A_1": value}}).env == {"A_1": text}


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "É", "A=B", "A\n"])
def test_refuses_a_variable_name(name: str) -> None:
    """Names are those of a shell."""
    error = _refuse({"env": {name: "x"}})
    assert (error.what, error.found) == ("env holds a name that no shell would take", f"env.{name}")
    assert error.fix == "letters, digits, underscore"


@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}])
def test_refuses_a_variable_that_is_no_text(value: object) -> None:
    """What has no one spelling as a text must be quoted."""
    error = _refuse({"env": {"A": value}})
    assert (error.what, error.found, error.fix) == (
        "env.A is not a text", f"env.A={value!r}", 'quote it: A: "..."',
    )  # fmt: skip


def test_refuses_a_nul_in_a_variable() -> None:
    """No process can be given a NUL."""
    error = _refuse({"env": {"A": "a\0"}})
    assert (error.what, error.found, error.fix) == ("env.A holds a NUL", "'a\\x00'", "remove it")


# -- options of sbatch -----------------------------------------------------------------------------------------------


def test_only_what_was_asked_for_is_an_option() -> None:
    """Every resource has its long option."""
    names = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "gres")
    values: dict[str, Any] = {f"resources.{name}": f"my {name}" for name in names}
    values |= {"resources.gpus_per_node": 4, "resources.cpus_per_node": 8, "resources.time": "30"}
    assert _plan({**values, "nodes": 2, "resources.exclusive": True, "name": "n"}).sbatch == {
        "job-name": "n",
        "nodes": 2,
        "ntasks-per-node": 1,
        "gpus-per-node": "4",
        "cpus-per-task": 8,
        "time": "00:30:00",
        "signal": "USR2@180",
        "exclusive": True,
        **{name: f"my {name}" for name in names},
    }


@pytest.mark.parametrize(
    ("key", "given", "option", "text"),
    [
        ("mem_gb", "2.5", "mem", "2560M"),
        ("mem_gb", "0", "mem", "0"),
        ("mem_gb", "0.0001", "mem", "1M"),
        ("mem_gb", "8G", "mem", "8G"),
        ("mem_per_gpu", "40G", "mem-per-gpu", "40G"),
        ("mem_per_cpu", "1.5", "mem-per-cpu", "1536M"),
    ],
)
def test_each_kind_of_memory_is_one_option(key: str, given: str, option: str, text: str) -> None:
    """Only the kind that was asked for is in the script; only 0 means the whole node."""
    sbatch = _plan({f"resources.{key}": given, "resources.gpus_per_node": 1}).sbatch
    assert {name: sbatch[name] for name in sbatch if name.startswith("mem")} == {option: text}


@pytest.mark.parametrize(
    "values",
    [
        {"resources.mem_gb": "8", "resources.mem_per_cpu": "1"},
        {"resources.mem_per_gpu": "8", "resources.mem_per_cpu": "1", "resources.gpus_per_node": 1},
        {"resources.mem_gb": "8", "resources.sbatch": {"mem-per-cpu": "1G"}},
        {"resources.sbatch": {"mem": "1G", "mem_per_cpu": "1G"}},
    ],
)
def test_refuses_two_kinds_of_memory(values: dict[str, Any]) -> None:
    """Slurm takes one kind; both keys are named."""
    error = _refuse(values)
    assert error.what == "two kinds of memory are asked for at once, of which Slurm takes one"
    for key, value in values.items():
        names = [f"{key}.{name}" for name in value] if isinstance(value, dict) else [key]
        assert key == "resources.gpus_per_node" or all(name in error.found for name in names)


def test_refuses_memory_for_no_gpu() -> None:
    """Memory for each GPU needs a GPU."""
    error = _refuse({"resources.mem_per_gpu": "8"})
    assert error.found == "resources.mem_per_gpu=8"
    assert error.fix == "resources.gpus_per_node=N, or resources.mem_gb=GIB for the node"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"gpus_per_node": 2}, {"gpus-per-node": "2"}),
        ({"gpus_per_node": 2, "gpu_type": "a100"}, {"gpus-per-node": "a100:2"}),
        ({"gpus_per_node": 0}, {}),
        ({"gres": "gpu:a100:4"}, {"gres": "gpu:a100:4"}),
        ({"gres": "gpu:a100:4", "gpus_per_node": 4}, {"gres": "gpu:a100:4"}),
        ({"gres": "lustre:1", "gpus_per_node": 1}, {"gpus-per-node": "1", "gres": "lustre:1"}),
    ],
)
def test_gpus_are_asked_for_once(values: dict[str, Any], expected: dict[str, str]) -> None:
    """One option asks for GPUs, and none where there are none."""
    sbatch = _plan({f"resources.{key}": value for key, value in values.items()}).sbatch
    assert {name: sbatch[name] for name in sbatch if name.startswith("g")} == expected


@pytest.mark.parametrize(
    ("values", "gres"),
    [
        ({"gpus_per_node": 2}, "gpu:2"),
        ({"gpus_per_node": 2, "gpu_type": "a100"}, "gpu:a100:2"),
        ({"gpus_per_node": 2, "gres": "lustre:1"}, "lustre:1,gpu:2"),
    ],
)
@pytest.mark.parametrize("option", ["gres", "--gres"])
def test_a_site_may_want_gres(values: dict[str, Any], gres: str, option: str) -> None:
    """``cluster.gpu_option=gres`` writes GPUs as a gres, beside others."""
    plan = _plan({f"resources.{key}": value for key, value in values.items()} | {"cluster.gpu_option": option})
    assert {name: plan.sbatch[name] for name in plan.sbatch if name.startswith("g")} == {"gres": gres}


def test_gpus_of_gres_make_workers() -> None:
    """GPUs that gres names count as ``gpus_per_node``."""
    plan = _plan({"resources.gres": "gpu:a100:4"})
    assert (plan.gpus_per_node, plan.local_world_size) == (4, 4)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"resources.gpus_per_node": 2, "resources.gres": "gpu:p6000:1"}, "two keys ask for different numbers of GPUs"),
        ({"resources.gpu_type": "a100"}, "a type of GPU without a number"),
        ({"resources.gpu_type": "a:1", "resources.gpus_per_node": 1}, "resources.gpu_type is no type of GPU"),
        ({"resources.gpu_type": "4", "resources.gpus_per_node": 1}, "resources.gpu_type is no type of GPU"),
        (
            {"resources.gpu_type": "a", "resources.gpus_per_node": 1, "resources.gres": "gpu:1"},
            "the type of GPU is given twice",
        ),
        ({"cluster.gpu_option": "gpus"}, "cluster.gpu_option is no way to ask for GPUs"),
    ],
)
def test_refuses_gpus_that_contradict(values: dict[str, Any], what: str) -> None:
    """GPUs are asked for in one way, or both keys are named."""
    error = _refuse(values)
    assert error.what == what
    assert all(f"{key}={value}" in error.found for key, value in values.items() if key != "resources.gpus_per_node")


@pytest.mark.parametrize(("given", "text"), [("a,b", "a,b"), (["a", "b[1-2]"], "a,b[1-2]"), ([], None), (None, None)])
@pytest.mark.parametrize("key", ["partition", "nodelist", "exclude"])
def test_a_list_is_joined_with_commas(key: str, given: object, text: str | None) -> None:
    """Partitions and nodes may be given as a list."""
    assert _plan({f"resources.{key}": given}).sbatch.get(key) == text


@pytest.mark.parametrize("value", [[1], 5, ["a", ""], {"a": 1}])
def test_refuses_a_list_of_other_things(value: object) -> None:
    """A number in a list may have lost its zeros before it came here."""
    assert _refuse({"resources.nodelist": value}).what == "resources.nodelist is not made of texts"


def test_other_options_pass_through() -> None:
    """Underscores become dashes, true is a flag, false and null are left out."""
    given_options = {"mail_type": "END", "requeue": True, "no-kill": False, "deadline": None}
    sbatch = _plan({"resources.sbatch": given_options}).sbatch
    assert {key: sbatch[key] for key in sbatch if key not in ("job-name", "nodes", "ntasks-per-node")} == {
        "mail-type": "END", "requeue": True,
    }  # fmt: skip


def test_refuses_an_option_given_twice() -> None:
    """An option that a key of ours sets cannot be set again."""
    error = _refuse({"resources.partition": "a", "resources.sbatch": {"partition": "b"}})
    assert error.what == "--partition is given twice"
    assert error.found == "resources.partition=a, resources.sbatch.partition=b"
    assert error.fix == "remove resources.sbatch.partition"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"name": "n", "resources.sbatch": {"job-name": "b"}}, "name=n, resources.sbatch.job-name=b"),
        ({"resources.sbatch": {"nodes": 2}}, "nodes=1, resources.sbatch.nodes=2"),
        (
            {"resources.sbatch": {"mail_type": "END", "mail-type": "ALL"}},
            "resources.sbatch.mail_type=END, resources.sbatch.mail-type=ALL",
        ),
        (
            {"resources.sbatch": {"ntasks_per_node": 2}},
            "--ntasks-per-node by the launcher, one agent a node, resources.sbatch.ntasks_per_node=2",
        ),
        (
            {"resources.time": "9", "resources.sbatch": {"time": "5"}},
            "resources.time=00:09:00, resources.sbatch.time=5",
        ),
    ],
)
def test_both_places_of_an_option_are_named(values: dict[str, Any], found: str) -> None:
    """An option given twice is told with both keys."""
    assert _refuse(values).found == found


@pytest.mark.parametrize("option", ["gpus", "gpus-per-task", "ntasks", "array", "wrap", "wait", "quiet", "test_only"])
def test_refuses_what_would_change_the_script(option: str) -> None:
    """Options that decide how many tasks there are, or what sbatch says, are the launcher's."""
    error = _refuse({"resources.sbatch": {option: "1"}})
    assert error.what == f"--{option.replace('_', '-')} is not to be given by hand"


def test_refuses_a_line_break_in_an_option() -> None:
    """A directive is one line, or the rest would be run as a command."""
    error = _refuse({"resources.partition": "a\nrm -rf x"})
    assert error.what == "--partition holds a line break or another character that cannot be printed"
    assert error.found == "'a\\nrm -rf x'"
    assert error.fix == "a directive of sbatch is one line"


@pytest.mark.parametrize(
    ("signal", "time", "what"),
    [
        ("B:USR2@60", "10", "--signal with B: goes to the batch script alone, and no agent hears of it"),
        ("RB:USR2", None, "--signal with B: goes to the batch script alone, and no agent hears of it"),
        ("USR1@60", "10", "--signal names a signal by which no agent knows that the time limit is near"),
        ("SIGTERM", None, "--signal names a signal by which no agent knows that the time limit is near"),
        ("USR2@600", "10", "--signal comes earlier before the end than the job is long"),
        ("USR2", "1", "--signal comes earlier before the end than the job is long"),
    ],
)
def test_refuses_a_signal_that_helps_nobody(signal: str, time: str | None, what: str) -> None:
    """A signal goes to the agents, and within the job's time."""
    assert _refuse({"resources.sbatch": {"signal": signal}, "resources.time": time}).what == what


@pytest.mark.parametrize(
    ("signal", "time"), [("USR2@599", "10"), ("R:12@60", None), ("USR2", "2"), ("USR2@60", "unlimited")]
)
def test_takes_a_signal_of_the_persons_own(signal: str, time: str | None) -> None:
    """By name or number, with and without a time."""
    assert _plan({"resources.sbatch": {"signal": signal}, "resources.time": time}).sbatch["signal"] == signal


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("none", "a word for srun is no option, so srun would take it for the program to start"),
        ("--nodes=5", "--nodes of srun is not to be given by hand"),
        ("-n2", "--ntasks of srun is not to be given by hand"),
        ("--kill-on-bad-exit=0", "--kill-on-bad-exit of srun is not to be given by hand"),
        ("--export=A", "--export of srun is not to be given by hand"),
    ],
)
def test_refuses_words_that_would_change_the_step(word: str, what: str) -> None:
    """Who starts, where and how all end is the launcher's own."""
    error = _refuse({"resources.srun_args": ["--mpi=none", word]})
    assert (error.what, error.found) == (what, f"resources.srun_args: {word}")


@pytest.mark.parametrize(
    ("option", "value"),
    [("gres", "lustre:1,gpu:a100:3"), ("tres_per_node", "gres/gpu:2"), ("tres-per-task", "gres:gpu")],
)
def test_refuses_gpus_of_which_it_would_not_know(option: str, value: str) -> None:
    """As many workers are started as there are GPUs, so they are asked for by a key of ours."""
    error = _refuse({"resources.sbatch": {option: value}, "resources.gpus_per_node": 2})
    assert error.what == f"--{option.replace('_', '-')} with GPUs is not to be given by hand"
    assert error.fix == "resources.gres=gpu:TYPE:N, or resources.gpus_per_node=N with resources.gpu_type=TYPE"


def test_takes_other_generic_resources() -> None:
    """A gres without GPUs is nobody's business."""
    assert _plan({"resources.sbatch": {"gres": "lustre:1"}}).sbatch["gres"] == "lustre:1"


@pytest.mark.parametrize(("is_enabled", "option"), [(True, "no_requeue"), (False, "requeue")])
def test_refuses_a_requeue_that_is_both_wanted_and_not(is_enabled: bool, option: str) -> None:  # noqa: FBT001
    """What the agents would do at the end is what Slurm is told."""
    error = _refuse({"requeue.enabled": is_enabled, "resources.sbatch": {option: True}})
    assert error.what == "two keys say whether the job may be requeued, and contradict each other"
    assert error.found.endswith(f"resources.sbatch asks for --{option.replace('_', '-')}")


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
@pytest.mark.parametrize("values", [{"name": "my-{}-1"}, {"run_root": "/a/{}/b"}, {"resources.constraint": "{}"}])
def test_refuses_sbatchs_word_for_a_border(values: dict[str, str], word: str) -> None:
    """In a directive the word hetjob begins the next part of a heterogeneous job."""
    error = _refuse({key: text.format(word) for key, text in values.items()})
    assert f"holds the word {word}, by which some versions of sbatch cut a job in parts" in error.what


def test_a_run_on_this_machine_may_be_named_so() -> None:
    """Without sbatch there is no directive."""
    assert _plan({"name": "hetjob"}, HERE).name == "hetjob"


@pytest.mark.parametrize("name", ["x\nrm -rf y", "a b", "", "--comment", "N", "a=b"])
def test_refuses_an_option_name_that_is_none(name: str) -> None:
    """Options have long names: letters, digits and dashes."""
    _refuse({"resources.sbatch": {name: "v"}})


@pytest.mark.parametrize("value", [[1], {"a": 1}])
def test_refuses_an_option_value_that_is_no_text(value: object) -> None:
    """A list or mapping is no value of an option."""
    _refuse({"resources.sbatch": {"comment": value}})


@pytest.mark.parametrize("value", [True, [1], {"a": 1}, "", -1, 1.5, "10 min", "x", "0"])
def test_refuses_a_time_that_is_none(value: object) -> None:
    """A time limit is minutes or a text in Slurm's form."""
    _refuse({"resources.time": value})


def test_refuses_a_variable_whose_name_is_a_number() -> None:
    """A YAML key may be a number, a variable's name may not."""
    _refuse({"env": {1: "x"}})


# -- scripts, purity, JSON -------------------------------------------------------------------------------------------


def test_a_scripts_arguments_are_texts() -> None:
    """A command line is words."""
    assert _plan({"strategy.is_script": True, "work.args": ["--lr", 0.1]}).work.args == ("--lr", "0.1")


def test_refuses_keywords_for_a_script() -> None:
    """A script is not called."""
    error = _refuse({"strategy.is_script": True, "work.kwargs": {"a": 1}})
    assert (error.what, error.found) == ("a script takes no keyword arguments", "work.kwargs={'a': 1}")
    assert error.fix == "give its own command line after --: strategy=script work.target=train.py -- --lr 0.1"


@pytest.mark.parametrize("is_script", [False, True])
def test_making_a_plan_changes_nothing(is_script: bool) -> None:  # noqa: FBT001
    """The configuration is the same afterwards."""
    config = _set(Config(), {"work.args": [1], "strategy.is_script": is_script, "env": {"A": 1}})
    before = copy.deepcopy(config)
    make_plan(config, facts=FACTS, target=TARGET)
    assert config == before


def test_the_same_input_gives_the_same_plan() -> None:
    """A plan depends on configuration and facts alone."""
    assert _plan({"nodes": 2}) == _plan({"nodes": 2})


_JSON: Callable[..., Any] = st.recursive
_VALUES = _JSON(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(_VALUES, max_size=3),
    st.dictionaries(st.text(), _VALUES, max_size=3),
    st.lists(st.text(), max_size=3),
    st.booleans(),
)
def test_a_plan_survives_json(args: list[Any], kwargs: dict[str, Any], lines: list[str], is_local: bool) -> None:  # noqa: FBT001
    """What the nodes read back equals what was written."""
    values = {"work.args": args, "work.kwargs": kwargs, "cluster.teardown": lines}
    plan = _plan(
        {**values, "resources.srun_args": [f"--comment={line}" for line in lines]}, HERE if is_local else FACTS
    )
    assert LaunchPlan.from_json(plan.to_json()) == plan


def test_a_plan_survives_json_with_numbers_as_keys() -> None:
    """A mapping with numbers as keys, which JSON cannot carry, is refused."""
    assert _refuse({"work.kwargs": {"m": {1: "a"}}}).what == (
        "a mapping in work.kwargs or work.args has keys that are no texts"
    )
