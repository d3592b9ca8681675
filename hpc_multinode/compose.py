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
    defaults = _read_defaults(config_dirs)
    chosen = [f"{group}={defaults.pop(group)}" for group in GROUPS if isinstance(defaults.get(group), str)]
    words = [*chosen, *(_prepare_override(word) for word in overrides)]
    _register(defaults, config_dirs)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(find_asset("conf")), version_base="1.3", job_name="hpc_multinode"):
            composed = compose("config", overrides=words)
        if not issubclass(OmegaConf.get_type(composed) or dict, Config):
            raise _shadowed(config_dirs)
        return cast("Config", OmegaConf.to_object(composed))
    except (HydraException, OmegaConfBaseException) as error:
        raise _explain(error, overrides) from None
    except yaml.YAMLError as error:
        raise _malformed_yaml(error) from None


def find_config_dirs(given: Sequence[str], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """List the person's configuration folders, the strongest first.

    Args:
        given: Values of ``--config-dir``.
        environ: Normally ``os.environ``: ``HPC_MULTINODE_CONFIG_DIR``, ``XDG_CONFIG_HOME``, ``HOME``.

    Raises:
        ConfigError: A folder that was named does not exist.
    """
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
    store.store(name="schema", node=Config)
    store.store(name="person_defaults", node=defaults, package="_global_")
    if not OmegaConf.has_resolver("asset"):
        OmegaConf.register_new_resolver("asset", lambda name: str(find_asset(name)))


def _read_defaults(config_dirs: Sequence[Path]) -> dict[str, Any]:
    merged = OmegaConf.create()
    for folder in reversed(config_dirs):
        file = folder / DEFAULTS_FILE
        if not file.is_file():
            continue
        try:
            values = OmegaConf.load(file)
        except yaml.YAMLError as error:
            raise _malformed_yaml(error) from None
        if not isinstance(values, DictConfig):
            raise ConfigError(
                what=f"{DEFAULTS_FILE} is not a mapping", found=str(file), fix="write keys and values, as in nodes: 2"
            )
        _check_keys(cast("dict[str, Any]", OmegaConf.to_container(values)), where=str(file))
        merged = cast("DictConfig", OmegaConf.merge(merged, values))
    return cast("dict[str, Any]", OmegaConf.to_container(merged))


def _check_keys(values: Mapping[str, Any], *, where: str, prefix: str = "") -> None:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if prefix == "" and name == "experiment":
            continue
        _require_key(key, found=f"{key} in {where}")
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
    if key in GROUPS or match["package"] or key.startswith("hydra.") or "/" in key:
        return word
    _require_key(key, found=word)
    is_own = any(key.startswith(f"{open_key}.") for open_key in OPEN_KEYS)
    if is_own and sign != "~":
        sign = "++"
    return f"{sign}{key}={_quote(value) if _is_text(key, value) else value}"


def _is_text(key: str, value: str) -> bool:
    """Say whether a value is text to be taken letter by letter, so that Hydra's grammar must not read it."""
    if "${" in value or "\\" in value or _AS_HYDRA_READS.match(value):
        return False
    if key.startswith("env."):
        return True
    if key.startswith("resources.sbatch."):
        return value.lower() not in ("true", "false")
    return _text_keys().get(key, False)


def _quote(value: str) -> str:
    return "'" + value.replace("'", "\\'") + "'"


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


def _explain(error: Exception, overrides: Sequence[str]) -> ConfigError:
    cause = error.__cause__
    while cause is not None and not isinstance(cause, OmegaConfBaseException) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    inner = cause if isinstance(cause, OmegaConfBaseException) else error
    text = str(inner).splitlines()[0]
    if isinstance(inner, ConfigKeyError) and inner.full_key:
        return ConfigError(
            what=f"unknown key {inner.full_key!r}",
            found=f"in a file of {_groups_in(overrides)}",
            fix=_suggest_key(str(inner.full_key), _text_keys()),
        )
    if isinstance(inner, ValidationError):
        return ConfigError(what="a value has the wrong type", found=_found(error, inner), fix=f"{text}")
    if "Ambiguous value" in text:
        return ConfigError(
            what="an override has several values",
            found=text.partition("'")[2].partition("'")[0],
            fix="""give one; a list is written [a,b], and a text with a comma in quotes of its own: 'key="a,b"'""",
        )
    if isinstance(error, ConfigCompositionException) or not isinstance(error, HydraException):
        return ConfigError(what="the configuration cannot be composed", found=_found(error, inner), fix=text)
    return ConfigError(
        what="an override cannot be read",
        found=str(error).splitlines()[0],
        fix="""put the value into quotes of its own, and the word into the shell's: 'key="value"'""",
    )


def _found(error: Exception, inner: Exception) -> str:
    text = str(error).splitlines()[0].removeprefix("Error merging override ")
    full_key = getattr(inner, "full_key", None)
    return f"{full_key}: {text}" if full_key and str(full_key) not in text else text


def _groups_in(overrides: Sequence[str]) -> str:
    chosen = [word for word in overrides if word.partition("=")[0] in GROUPS]
    return ", ".join(chosen) if chosen else "the configuration"


def _missing_option(error: MissingConfigException) -> ConfigError:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = tuple(option for option in error.options or ())
    close = difflib.get_close_matches(name, options, n=1)
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


def _shadowed(config_dirs: Sequence[Path]) -> ConfigError:
    files = [str(folder / "config.yaml") for folder in config_dirs if (folder / "config.yaml").is_file()]
    return ConfigError(
        what="a config.yaml of yours stands in the place of ours and lacks the schema",
        found=", ".join(files),
        fix=f"name it {DEFAULTS_FILE} to have its values merged, or give it the defaults list of ours",
    )


def render_config(config: Config) -> str:
    """Return a configuration as YAML text, every value resolved."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))
