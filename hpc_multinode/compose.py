"""From files and the command line to one resolved configuration.

Hydra does the composing; here are the folders it looks in, the person's ``defaults.yaml``, the reading of values as
they were typed, and the wording of its errors. Reads files; writes nothing.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException, ValidationError

from hpc_multinode.assets import find_asset
from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hydra.core.config_search_path import ConfigSearchPath

GROUPS = ("strategy", "resources", "cluster", "experiment")
# Keys under these are the person's own, so they need no + in front.
OPEN_KEYS = ("work.kwargs", "env", "resources.sbatch")
DEFAULTS_FILE = "defaults.yaml"
# Names of nodes in conf/config.yaml that no file of a person's is likely to bear.
_SCHEMA, _DEFAULTS = "_hpc_multinode_schema", "_hpc_multinode_defaults"

_IN_FILE = re.compile(r"In '(.+?)': \w+ raised while composing config")
_SECTIONS = "write keys and values below it, one a line, as in gpus_per_node: 2"
_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[^=@]+)(?P<package>@[^=]*)?=(?P<value>.*)", re.DOTALL)
_AS_HYDRA_READS = re.compile(r"""['"\[{]|null$|$""")


class _Folders(SearchPathPlugin):
    """Puts the person's folders before ours: by itself Hydra lets ours win over ``--config-dir``."""

    folders: typing.ClassVar[tuple[Path, ...]] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in reversed(self.folders):
            search_path.prepend("hpc_multinode", f"file://{folder}")


def compose_config(overrides: Sequence[str], *, config_dirs: Sequence[Path]) -> Config:
    """Compose the configuration and resolve every value in it.

    Args:
        overrides: Words of the command line in Hydra's form, such as ``strategy=lite``.
        config_dirs: The person's folders, the first wins; ours comes after them.

    Raises:
        ConfigError: A key, option, type or file is wrong.
    """
    _refuse_shadow(config_dirs)
    defaults = _read_defaults(config_dirs)
    chosen = [f"{group}={defaults.pop(group)}" for group in GROUPS if isinstance(defaults.get(group), str)]
    words = [*chosen, *(_prepare_override(word) for word in overrides)]
    if "experiment=null" in words:  # Hydra cannot take a choice back
        words = [word for word in words if not word.startswith("experiment=")]
    _register(defaults, config_dirs)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(find_asset("conf")), version_base="1.3", job_name="hpc_multinode"):
            composed = compose("config", overrides=words)
        return cast("Config", OmegaConf.to_object(composed))
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error, overrides) from None
    except yaml.YAMLError as error:
        raise _malformed_yaml(error) from None
    except UnicodeDecodeError as error:
        found = _find_bad_file(config_dirs) or str(error)
        raise ConfigError(what="a configuration file is not UTF-8", found=found, fix="write it in UTF-8") from None


def find_config_dirs(given: Sequence[str], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """List the person's configuration folders, the strongest first.

    Args:
        given: Values of ``--config-dir``.
        environ: Normally ``os.environ``: ``HPC_MULTINODE_CONFIG_DIR``, ``XDG_CONFIG_HOME``, ``HOME``.

    Raises:
        ConfigError: A folder that was named does not exist.
    """
    if "" in given:
        raise ConfigError(what="--config-dir names no folder", found="it is empty", fix="--config-dir FOLDER")
    named = [(f"--config-dir {folder}", Path(folder).expanduser().absolute()) for folder in given]
    from_env = environ.get("HPC_MULTINODE_CONFIG_DIR")
    if from_env:
        named.append((f"HPC_MULTINODE_CONFIG_DIR={from_env}", Path(from_env).expanduser().absolute()))
    for source, folder in named:
        if not folder.is_dir():
            raise ConfigError(
                what="the configuration folder does not exist", found=source, fix="name a folder that is there"
            )
    config_home = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".config")
    own = config_home / "hpc_multinode"
    return (*(folder for _, folder in named), *([own] if own.is_dir() else []))


def list_options(group: str, config_dirs: Sequence[Path]) -> tuple[str, ...]:
    """List the names that a group knows, from the person's folders and ours, sorted."""
    folders = [*config_dirs, find_asset("conf")]
    return tuple(sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")}))


def _register(defaults: dict[str, Any], config_dirs: Sequence[Path]) -> None:
    _Folders.folders = tuple(config_dirs)
    if _Folders not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(_Folders)
    store = ConfigStore.instance()
    store.store(name=_SCHEMA, node=Config)
    store.store(name=_DEFAULTS, node=defaults, package="_global_")
    if not OmegaConf.has_resolver("asset"):
        OmegaConf.register_new_resolver("asset", lambda name: str(find_asset(name)))


def _read_defaults(config_dirs: Sequence[Path]) -> dict[str, Any]:
    merged = OmegaConf.create()
    for folder in reversed(config_dirs):
        file = folder / DEFAULTS_FILE
        if not file.is_file():
            continue
        values = _load(file)
        if not isinstance(values, DictConfig):
            raise ConfigError(
                what=f"{DEFAULTS_FILE} is not a mapping", found=str(file), fix="write keys and values, as in nodes: 2"
            )
        keys = cast("dict[str, Any]", OmegaConf.to_container(values))
        if not isinstance(keys.pop("experiment", ""), str):
            del values["experiment"]  # null, which is what we say ourselves
        _check_keys(keys, where=str(file))
        merged = cast("DictConfig", OmegaConf.merge(merged, values))
    return cast("dict[str, Any]", OmegaConf.to_container(merged))


def _load(file: Path) -> object:
    try:
        with file.open(encoding="utf-8") as stream:
            is_scalar = isinstance(yaml.compose(stream, Loader=yaml.SafeLoader), yaml.ScalarNode)
        return None if is_scalar else OmegaConf.load(file)
    except yaml.YAMLError as error:
        raise _malformed_yaml(error) from None
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            what=f"{file.name} cannot be read", found=f"{file}: {error}", fix="write YAML in UTF-8"
        ) from None


def _check_keys(values: Mapping[str, Any], *, where: str, prefix: str = "") -> None:
    for name, value in values.items():
        key = f"{prefix}{name}"
        _require_key(key, found=f"{key} in {where}")
        is_section = key in OPEN_KEYS or any(known.startswith(f"{key}.") for known in _text_keys())
        if is_section and not isinstance(value, dict) and not (key in GROUPS and isinstance(value, str)):
            raise ConfigError(what="a section is not a mapping", found=f"{key} in {where}", fix=_SECTIONS)
        if isinstance(value, dict) and key not in OPEN_KEYS:
            _check_keys(value, where=where, prefix=f"{key}.")


# -- keys and values as they were typed ------------------------------------------------------------------------------


def _prepare_override(word: str) -> str:
    """Bring one word of the command line into the form in which Hydra reads it as it was meant."""
    match = _OVERRIDE.fullmatch(word)
    if match is None:
        if word.startswith("~"):
            return word
        raise ConfigError(
            what="an override has no =",
            found=word,
            fix="write key=value; a script's own arguments come after --",
        )
    sign, key, value = match["sign"] or "", match["key"].strip(), match["value"]
    if key in GROUPS and (value.startswith("[") or (value == "null" and key != "experiment")):
        raise ConfigError(what=f"{key} is one name", found=word, fix=f"{key}=NAME, one of those that --help lists")
    if key in GROUPS or match["package"] or key.startswith("hydra.") or "/" in key:
        return word
    _require_key(key, found=word)
    is_own = key in OPEN_KEYS or any(key.startswith(f"{open_key}.") for open_key in OPEN_KEYS)
    if is_own and sign != "~":
        sign = "++"
    if _is_text(key, value) or (key.startswith("work.kwargs.") and not _is_readable(f"{key}={value}")):
        value = _quote(value)
    return f"{sign}{key}={value}"


def _is_readable(word: str) -> bool:
    """Say whether Hydra's grammar takes a word; what it does not take is text."""
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True


def _is_text(key: str, value: str) -> bool:
    """Say whether a value is text to be taken letter by letter, so that Hydra's grammar must not read it."""
    if "${" in value or value == "???" or _AS_HYDRA_READS.match(value):
        return False
    if key.startswith("env."):
        return True
    if key.startswith("resources.sbatch."):
        return value.lower() not in ("true", "false")
    return _text_keys().get(key, False)


def _quote(value: str) -> str:
    # A backslash stands for itself unless quotes follow it, those at the end included.
    escaped = re.sub(r"(\\*)'", lambda match: match[1] * 2 + "\\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - trailing :]}'"


@functools.cache
def _text_keys() -> dict[str, bool]:
    """Map every key of the schema to whether its value is a text."""
    found: dict[str, bool] = {}

    def walk(cls: type, prefix: str) -> None:
        hints = typing.get_type_hints(cls)
        for item in dataclasses.fields(cls):
            hint = hints[item.name]
            key = f"{prefix}{item.name}"
            if dataclasses.is_dataclass(hint):
                found[key] = False
                walk(cast("type", hint), f"{key}.")
            else:
                options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
                found[key] = str in options

    walk(Config, "")
    return found


def _require_key(key: str, *, found: str) -> None:
    known = _text_keys()
    if key in known or any(key.startswith(f"{open_key}.") for open_key in OPEN_KEYS):
        return
    raise ConfigError(what=f"unknown key {key!r}", found=found, fix=_suggest_key(key, known))


def _suggest_key(key: str, known: Mapping[str, bool]) -> str:
    last = key.rpartition(".")[2]
    close = [k for k in known if k.startswith(f"{key}_") or k.rpartition(".")[2] == last]  # cut short, or misplaced
    close = close or difflib.get_close_matches(key, [*known, *GROUPS], n=1)
    close = close or [k for k in known if difflib.get_close_matches(last, [k.rpartition(".")[2]])]
    return f"did you mean {close[0]}?" if close else "python -m hpc_multinode --help lists the keys"


# -- Hydra's errors in our words -------------------------------------------------------------------------------------


def _explain(error: Exception, words: Sequence[str]) -> ConfigError:
    if isinstance(error, MissingConfigException):
        return _missing_option(error, words)
    inner = error
    while not isinstance(inner, OmegaConfBaseException) and (inner.__cause__ or inner.__context__):
        inner = cast("Exception", inner.__cause__ or inner.__context__)
    lines = str(error).splitlines()
    in_file = _IN_FILE.match(lines[0])
    found = _name_file(in_file[1]) if in_file else lines[0].removeprefix("Error merging override ")
    key = str(getattr(inner, "full_key", None) or "")
    text = str(inner).splitlines()[0]
    if isinstance(inner, ConfigKeyError) and key:
        return ConfigError(what=f"unknown key {key!r}", found=f"in {found}", fix=_suggest_for_file(key))
    if "Merge error" in text or "Cannot merge" in text:
        return ConfigError(what="a section is not a mapping", found=f"{found}: {text}", fix=_SECTIONS)
    if "Ambiguous value" in text or "Sweep parameters" in text:
        return ConfigError(
            what="an override has several values",
            found=text.partition("'")[2].partition("'")[0],
            fix="""give one; a list is written [a,b], and a text with a comma in quotes of its own: 'key="a,b"'""",
        )
    if isinstance(error, HydraException) and not isinstance(error, ConfigCompositionException):
        return ConfigError(
            what="an override cannot be read",
            found=lines[0],
            fix="""put the value into quotes of its own, and the word into the shell's: 'key="value"'""",
        )
    what = (
        "a value has the wrong type" if isinstance(inner, ValidationError) else "the configuration cannot be composed"
    )
    return ConfigError(what=what, found=f"{key}: {found}" if key and key not in found else found, fix=text)


def _name_file(config: str) -> str:
    return DEFAULTS_FILE if config == _DEFAULTS else f"{config}.yaml"


def _suggest_for_file(key: str) -> str:
    group, _, name = key.partition(".")
    if group in GROUPS and name in _text_keys():
        return f"a file of {group}/ that sets {name} too begins with the line: # @package _global_"
    return _suggest_key(key, _text_keys())


def _missing_option(error: MissingConfigException, words: Sequence[str]) -> ConfigError:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = tuple(option for option in error.options or ())
    close = difflib.get_close_matches(name, options, n=1)
    outside = [word for word in words if word.partition("=")[0] in GROUPS and "/" in word]
    if outside:
        key = outside[0].partition("=")[0]
        return ConfigError(
            what=f"{key} is a name, not a path", found=outside[0], fix=f"{key}=NAME and --config-dir FOLDER"
        )
    listed = ", ".join(options) if options else "no file"
    if not group:
        return ConfigError(what="a configuration file is missing", found=str(error).splitlines()[0], fix=listed)
    return ConfigError(
        what=f"unknown {group} {name!r}",
        found=f"{group}={name}; there are: {listed}",
        fix=f"did you mean {group}={close[0]}?"
        if close
        else f"choose one of them, or add {group}/{name}.yaml to a folder of your own (--config-dir)",
    )


def _malformed_yaml(error: yaml.YAMLError) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    place = f"{mark.name}, line {mark.line + 1}" if mark is not None else str(error)
    problem = getattr(error, "problem", None) or "it does not parse"
    return ConfigError(what="a configuration file is not YAML", found=place, fix=f"mend it: {problem}")


def _find_bad_file(config_dirs: Sequence[Path]) -> str | None:
    for file in (file for folder in config_dirs for file in folder.rglob("*.yaml")):
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            return f"{file}: {error}"
    return None


def _refuse_shadow(config_dirs: Sequence[Path]) -> None:
    """Refuse a config.yaml that would take the place of ours, such as that of a person's own Hydra app."""
    file = next((folder / "config.yaml" for folder in config_dirs if (folder / "config.yaml").is_file()), None)
    if file is None or _SCHEMA in file.read_text(errors="replace"):
        return
    raise ConfigError(
        what="a config.yaml of yours stands in the place of ours and lacks the schema",
        found=str(file),
        fix=f"name it {DEFAULTS_FILE} to have its values merged, or give it the defaults list of ours",
    )


def render_config(config: Config) -> str:
    """Return a configuration as YAML text, every value resolved."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))
