"""Options of sbatch, from what a configuration asks for. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import ConfigError
from hpc_multinode.slurm.amounts import (
    count_gres_gpus,
    parse_memory,
    parse_time_limit,
    render_memory,
    render_time_limit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.config import ResourcesConfig

_OPTION = re.compile(r"[a-z][a-z0-9]+(-[a-z0-9]+)*")
_SIGNAL = re.compile(r"(?:(?P<flags>[RB]+):)?(?P<name>\w+)(?:@(?P<seconds>[0-9]+))?", re.ASCII | re.IGNORECASE)
# The signal that agents take for the warning, by name and number.
_HEARD = ("USR2", "12")
# When sbatch sends a signal whose time is not given, in seconds before the end.
_SIGNAL_S = 60
_GPU_TYPE = re.compile(r"[A-Za-z0-9_.-]+")
_GRES, _PER_NODE = "gres", "gpus-per-node"
_GRES_OPTIONS = (_GRES, "tres-per-node", "tres-per-task", "tres-per-job")
_GPU_NAMES = ("gpu", "gres/gpu", "gres:gpu")
# The key that sets an option, for errors.
_KEY_OF = {
    "job-name": "name",
    "nodes": "nodes",
    "ntasks-per-node": "the launcher, one agent a node",
    "cpus-per-task": "resources.cpus_per_node",
    "gpus-per-node": "resources.gpus_per_node",
    "mem": "resources.mem_gb",
    "mem-per-gpu": "resources.mem_per_gpu",
    "mem-per-cpu": "resources.mem_per_cpu",
}
_TEXTS = ("account", "qos", "constraint", "reservation")
_LISTS = ("partition", "nodelist", "exclude")
_MEMORY = {"mem": "mem_gb", "mem-per-gpu": "mem_per_gpu", "mem-per-cpu": "mem_per_cpu"}
# Options that would change what the script is, or how many agents and workers there are, and what to write instead.
_NOT_BY_HAND = {
    "gpus": "resources.gpus_per_node=N",
    "gpus-per-node": "resources.gpus_per_node=N, with resources.gpu_type=TYPE",
    "gpus-per-task": "resources.gpus_per_node=N",
    "gpus-per-socket": "resources.gpus_per_node=N",
    "ntasks": "nodes=N; there is one agent on each",
    "tasks-per-node": "resources.workers_per_node=N; there is one agent on each node",
    "array": "-m with several values makes job arrays",
    "wrap": "cluster.setup for commands before the agents",
    "wait": "leave it out, or wait=true once there",
    "quiet": "leave it out: the job's id is read from what sbatch says",
    "parsable": "leave it out: the job's id is understood without it",
    "test-only": "leave it out: render --check asks that",
}
# Some versions of sbatch read a directive with one of these words as the border between parts of a heterogeneous job.
# Tried: 22.05 and 24.11 do not; the script is to mean the same everywhere.
_BORDERS = ("hetjob", "packjob")


def make_sbatch_options(
    resources: ResourcesConfig, *, name: str, num_nodes: int, gpu_option: str = _PER_NODE
) -> dict[str, Any]:
    """List the options of sbatch: only what was asked for, each by its long name; True for a flag.

    Args:
        resources: What is asked for.
        name: The job's name.
        num_nodes: Nodes. Count, at least 1.
        gpu_option: How GPUs are asked for, ``gpus-per-node`` or ``gres``.

    Raises:
        ConfigError: A value is none that sbatch takes, or an option is given twice.
    """
    options: dict[str, Any] = {
        "job-name": name,
        "nodes": num_nodes,
        "ntasks-per-node": 1,
        **_make_gpu_options(resources, _require_gpu_option(gpu_option)),
        "cpus-per-task": resources.cpus_per_node,
        **_make_memory_options(resources),
        "time": _make_time(resources.time),
        "exclusive": resources.exclusive or None,
    }
    for key in _TEXTS:
        options[key] = getattr(resources, key)
    for key in _LISTS:
        options[key] = _join_list(getattr(resources, key), key=f"resources.{key}")
    # An option that the launcher adds by itself stands above, and the key that it comes from in _KEY_OF.
    given = {option: value for option, value in options.items() if value is not None}
    _add_others(given, resources)
    _check_signal(given)
    return given


def count_gpus_asked(resources: ResourcesConfig) -> int | None:
    """Return the GPUs a node that the resources ask for, by whatever key; None where they say nothing.

    Raises:
        ConfigError: Two keys disagree.
    """
    asked = resources.gpus_per_node
    by_gres = count_gres_gpus(resources.gres) if resources.gres else None
    if asked is not None and by_gres is not None and asked != by_gres:
        raise ConfigError(
            what="two keys ask for different numbers of GPUs",
            found=f"resources.gpus_per_node={asked}, resources.gres={resources.gres}",
            fix="give one of them; resources.gpu_type=TYPE names the kind of GPU",
        )
    return by_gres if asked is None else asked


def check_directives(options: Mapping[str, Any]) -> None:
    """Check that values can stand in directives of sbatch.

    Args:
        options: Values by long option.

    Raises:
        ConfigError: One would end its line, or cut the job in two.
    """
    for option, value in options.items():
        text = str(value)
        if not text.isprintable():
            raise ConfigError(
                what=f"--{option} holds a line break or another character that cannot be printed",
                found=repr(text),
                fix="a directive of sbatch is one line",
            )
        border = next((word for word in _BORDERS if word in text), None)
        if border is not None:
            raise ConfigError(
                what=f"--{option} holds the word {border}, by which some versions of sbatch cut a job in parts",
                found=text,
                fix="use another word",
            )


def _require_gpu_option(text: str) -> str:
    option = text.strip().removeprefix("--").replace("_", "-")
    if option not in (_GRES, _PER_NODE):
        raise ConfigError(
            what="cluster.gpu_option is no way to ask for GPUs",
            found=f"cluster.gpu_option={text}",
            fix=f"{_PER_NODE}, or {_GRES} where the site wants --gres=gpu:TYPE:N",
        )
    return option


def _make_gpu_options(resources: ResourcesConfig, gpu_option: str) -> dict[str, str | None]:
    count = count_gpus_asked(resources)
    kind = resources.gpu_type
    if kind is not None and not (_GPU_TYPE.fullmatch(kind) and not kind.isdigit()):
        raise ConfigError(
            what="resources.gpu_type is no type of GPU", found=f"resources.gpu_type={kind}", fix="a name, as in a100"
        )
    if kind is not None and resources.gpus_per_node is None:
        raise ConfigError(
            what="a type of GPU without a number",
            found=f"resources.gpu_type={kind}, resources.gpus_per_node is not set",
            fix=f"resources.gpus_per_node=1 resources.gpu_type={kind}",
        )
    typed = f"{kind}:{count}" if kind else f"{count}"
    # A gres that names GPUs says all that there is to say.
    if not count or (resources.gres and count_gres_gpus(resources.gres)):
        if kind and resources.gres and count:
            raise ConfigError(
                what="the type of GPU is given twice",
                found=f"resources.gpu_type={kind}, resources.gres={resources.gres}",
                fix="give one of them",
            )
        return {_PER_NODE: None, _GRES: resources.gres}
    if gpu_option == _GRES:
        return {_GRES: ",".join(part for part in (resources.gres, f"gpu:{typed}") if part)}
    return {_PER_NODE: typed, _GRES: resources.gres}


def _make_memory_options(resources: ResourcesConfig) -> dict[str, str | None]:
    given = {option: getattr(resources, key) for option, key in _MEMORY.items() if getattr(resources, key) is not None}
    if len(given) > 1:
        keys = [f"resources.{_MEMORY[option]}={value}" for option, value in given.items()]
        unset = " ".join(f"resources.{_MEMORY[option]}=null" for option in list(given)[:-1])
        raise ConfigError(
            what="two kinds of memory are asked for at once, of which Slurm takes one",
            found=", ".join(keys),
            fix=f"leave one out, or take it back: {unset}",
        )
    if "mem-per-gpu" in given and not count_gpus_asked(resources):
        raise ConfigError(
            what="memory for each GPU, and no GPU is asked for",
            found=f"resources.mem_per_gpu={resources.mem_per_gpu}",
            fix="resources.gpus_per_node=N, or resources.mem_gb=GIB for the node",
        )
    return {
        option: render_memory(parse_memory(str(value), key=f"resources.{_MEMORY[option]}", is_zero_all=option == "mem"))
        for option, value in given.items()
    }


def _make_time(time: str | None) -> str | None:
    if time is None:
        return None
    return render_time_limit(parse_time_limit(str(time), key="resources.time"))


def _join_list(value: object, *, key: str) -> str | None:
    """Join a list with commas, as Slurm writes it; a text stays."""
    items: list[Any] = value if isinstance(value, list) else [value]
    wrong = [item for item in items if not isinstance(item, str)]
    if value is None or value == []:
        return None
    if wrong or "" in items:
        raise ConfigError(
            what=f"{key} is not made of texts",
            found=f"{key}={value!r}",
            fix=f"""a text, or a list of texts; what looks like a number in quotes: '{key}=["123"]'""",
        )
    return ",".join(items)


def _add_others(given: dict[str, Any], resources: ResourcesConfig) -> None:
    """Add ``resources.sbatch``, whose options are none of those that are there."""
    keys: dict[str, str] = {}
    for name, value in resources.sbatch.items():
        option, key = str(name).replace("_", "-"), f"resources.sbatch.{name}"
        _check_option(option, value, key=key)
        if option in given or option in keys:
            first = keys.get(option) or _KEY_OF.get(option) or f"resources.{option}"
            raise ConfigError(
                what=f"--{option} is given twice",
                found=f"{_show(given, option, first)}, {key}={value}",
                fix=f"remove {key}",
            )
        keys[option] = key
        if value is None or value is False:
            continue
        if option in _NOT_BY_HAND:
            raise ConfigError(
                what=f"--{option} is not to be given by hand", found=f"{key}={value}", fix=_NOT_BY_HAND[option]
            )
        _refuse_second_memory(given, option, key=key, value=value)
        _refuse_gpus(option, key=key, value=value)
        given[option] = value


def _check_signal(given: Mapping[str, Any]) -> None:
    """Refuse a signal that would not reach the agents, or would come at once."""
    text = str(given.get("signal", ""))
    match = _SIGNAL.fullmatch(text)
    if not text or match is None:  # what is no signal sbatch says best
        return
    if "B" in (match["flags"] or "").upper():
        raise ConfigError(
            what="--signal with B: goes to the batch script alone, and no agent hears of it",
            found=f"resources.sbatch.signal={text}",
            fix=f"resources.sbatch.signal={text.partition(':')[2]}",
        )
    if match["name"].upper().removeprefix("SIG") not in _HEARD:
        raise ConfigError(
            what="--signal names a signal by which no agent knows that the time limit is near",
            found=f"resources.sbatch.signal={text}",
            fix="stop.warn_s=SECONDS, which sends USR2",
        )
    minutes = parse_time_limit(str(given["time"]), key="--time") if "time" in given else None
    if minutes is not None and int(match["seconds"] or _SIGNAL_S) >= minutes * 60:
        raise ConfigError(
            what="--signal comes earlier before the end than the job is long",
            found=f"resources.sbatch.signal={text}, --time={given['time']}",
            fix="fewer seconds after the @, or a longer resources.time",
        )


def _refuse_second_memory(given: Mapping[str, Any], option: str, *, key: str, value: object) -> None:
    other = next((name for name in _MEMORY if name in given), None) if option in _MEMORY else None
    if other is not None:
        raise ConfigError(
            what="two kinds of memory are asked for at once, of which Slurm takes one",
            found=f"{_show(given, other, _KEY_OF[other])}, {key}={value}",
            fix=f"remove {key}",
        )


def _refuse_gpus(option: str, *, key: str, value: object) -> None:
    """Refuse GPUs of which the launcher would not know, so that it would start too few workers."""
    if option in _GRES_OPTIONS and any(item.strip().startswith(_GPU_NAMES) for item in str(value).split(",")):
        raise ConfigError(
            what=f"--{option} with GPUs is not to be given by hand",
            found=f"{key}={value}",
            fix="resources.gres=gpu:TYPE:N, or resources.gpus_per_node=N with resources.gpu_type=TYPE",
        )


def _show(given: Mapping[str, Any], option: str, key: str) -> str:
    return f"{key}={given[option]}" if "." in key or key in ("name", "nodes") else f"--{option} by {key}"


def _check_option(option: str, value: object, *, key: str) -> None:
    if not _OPTION.fullmatch(option):
        raise ConfigError(
            what="resources.sbatch holds a name that is no long option of sbatch",
            found=f"{key}={value}",
            fix="its long name without the two dashes, as in resources.sbatch.mail_type=END",
        )
    if isinstance(value, (list, dict)) or value == "":
        raise ConfigError(what=f"--{option} has no single value", found=f"{key}={value!r}", fix="give one, as text")
