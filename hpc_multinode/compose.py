"""From files and the command line to one resolved configuration.

Hydra does the composing; here are the folders it looks in and the person's ``defaults.yaml``. Reads files; writes
nothing.
"""

from __future__ import annotations

import contextlib
import os
import typing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.completion_plugin import CompletionPlugin
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hpc_multinode.assets import find_asset
from hpc_multinode.compose_errors import DEFAULTS, DEFAULTS_FILE, SECTIONS, explain, explain_yaml
from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError
from hpc_multinode.keys import GROUPS, OPEN_KEYS, list_choices, require_key, text_keys
from hpc_multinode.overrides import prepare_override
from hpc_multinode.person import find_home
from hpc_multinode.yaml_files import SCHEME, YamlFolder, parse_yaml, render_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hydra.core.config_loader import ConfigLoader
    from hydra.core.config_search_path import ConfigSearchPath

# The node of conf/config.yaml that stands for our schema; a name that no file of a person's is likely to bear.
SCHEMA = "_hpc_multinode_schema"


class _Folders(SearchPathPlugin):
    """Puts the person's folders before ours: by itself Hydra lets ours win over ``--config-dir``."""

    folders: typing.ClassVar[tuple[Path, ...]] = ()

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in reversed(self.folders):
            search_path.prepend("hpc_multinode", f"{SCHEME}://{folder}")


def compose_config(overrides: Sequence[str], *, config_dirs: Sequence[Path]) -> Config:
    """Compose the configuration and resolve every value in it.

    Args:
        overrides: Words of the command line in Hydra's form, such as ``strategy=lite``.
        config_dirs: The person's folders, the first wins; ours comes after them.

    Raises:
        ConfigError: A key, option, type or file is wrong.
    """
    with explained(overrides, config_dirs), prepared_hydra(config_dirs) as chosen:
        return to_config(compose_words([*chosen, *(prepare_override(word) for word in overrides)]))


@contextlib.contextmanager
def explained(overrides: Sequence[str], config_dirs: Sequence[Path]) -> Iterator[None]:
    """Turn what goes wrong while composing into an error of ours."""
    try:
        yield
    except Exception as error:
        if _is_interrupted(error):
            raise KeyboardInterrupt from None
        explained_error = _explain(error, overrides, config_dirs)
        if explained_error is None:
            raise
        raise explained_error from None


def _explain(error: Exception, overrides: Sequence[str], config_dirs: Sequence[Path]) -> ConfigError | None:
    """Return what a person is told; None where the error says it already, or is no answer to what they wrote."""
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return explain(error, overrides)
    if isinstance(error, yaml.YAMLError):
        return explain_yaml(error)
    if isinstance(error, UnicodeDecodeError):
        found = _find_bad_file(config_dirs) or str(error)
        return ConfigError(what="a configuration file is not UTF-8", found=found, fix="write it in UTF-8")
    if isinstance(error, (ValueError, RecursionError)):
        # Hydra's answer to a defaults list that is none, or that leads back to itself.
        found = str(error).splitlines()[0]
        return ConfigError(
            what="the configuration cannot be composed", found=found, fix="look at the defaults list of your files"
        )
    return None


def _is_interrupted(error: BaseException | None) -> bool:
    """Say whether a Ctrl-C is what an error of Hydra's comes from."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextlib.contextmanager
def prepared_hydra(config_dirs: Sequence[Path]) -> Iterator[list[str]]:
    """Prepare Hydra for composing, and give the words by which a person's defaults choose groups."""
    _refuse_shadow(config_dirs)
    defaults = _read_defaults(config_dirs)
    chosen = [f"{group}={defaults.pop(group)}" for group in GROUPS if isinstance(defaults.get(group), str)]
    with _open_hydra(defaults, config_dirs):
        yield chosen


def compose_words(words: Sequence[str]) -> DictConfig:
    """Compose from words that are prepared; Hydra is prepared as well."""
    if "experiment=null" in words:  # Hydra cannot take a choice back
        words = [word for word in words if not word.startswith("experiment=")]
    return compose("config", overrides=list(words))


def to_config(composed: DictConfig) -> Config:
    """Resolve every value of a composed configuration."""
    return cast("Config", OmegaConf.to_object(composed))


def complete_override(word: str, others: Sequence[str], *, config_dirs: Sequence[Path]) -> list[str]:
    """Return the words of the configuration that begin so: Hydra's own completion, and the values of the schema.

    Args:
        word: What has been typed of it.
        others: The other words of the line.
        config_dirs: As of ``compose_config``.

    Raises:
        ConfigError: The person's own files are wrong.
    """
    key, equals, value = word.partition("=")
    choices = list_choices(key) if equals else ()
    if choices:
        return [f"{key}={choice}" for choice in choices if choice.startswith(value)]
    with _open_hydra(_read_defaults(config_dirs), config_dirs):
        found: list[str] = make_completion("bash")._query("config", " ".join([*others, word]))  # noqa: SLF001 - for plugins
    return [one for one in found if one.startswith(word)]


def make_completion(shell: str) -> CompletionPlugin:
    """Return Hydra's completion for a shell that it knows: ``bash``, ``zsh`` or ``fish``."""
    plugins = cast("list[type[CompletionPlugin]]", Plugins.instance().discover(CompletionPlugin))
    (kind,) = [plugin for plugin in plugins if plugin.provides() == shell]
    hydra = GlobalHydra.instance()
    # To install it needs no configuration.
    return kind(hydra.config_loader() if hydra.is_initialized() else cast("ConfigLoader", None))


@contextlib.contextmanager
def _open_hydra(defaults: dict[str, Any], config_dirs: Sequence[Path]) -> Iterator[None]:
    _register(defaults, config_dirs)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(find_asset("conf")), version_base="1.3", job_name="hpc_multinode"):
        yield


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
        if not os.path.isdir(folder):  # noqa: PTH112 - false, and no error, where a folder above it is closed to us
            raise ConfigError(
                what="the configuration folder does not exist", found=source, fix="name a folder that is there"
            )
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ConfigError(what="the configuration folder cannot be read", found=source, fix="make it readable")
    home = find_home(environ)
    config_home = environ.get("XDG_CONFIG_HOME") or (home / ".config" if home else None)
    own = [Path(config_home) / "hpc_multinode"] if config_home else []
    # Readable, because after su the home is still somebody else's.
    return (*(folder for _, folder in named), *(folder for folder in own if os.access(folder, os.R_OK | os.X_OK)))


def _register(defaults: dict[str, Any], config_dirs: Sequence[Path]) -> None:
    _Folders.folders = tuple(config_dirs)
    if _Folders not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(_Folders)
        Plugins.instance().register(YamlFolder)
    store = ConfigStore.instance()
    store.store(name=SCHEMA, node=Config)
    store.store(name=DEFAULTS, node=defaults, package="_global_")
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
        if is_scalar:
            return None
        OmegaConf.load(file)  # its errors name line and file
        return parse_yaml(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise explain_yaml(error) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            what=f"{file.name} cannot be read", found=f"{file}: {error}", fix="write it in UTF-8"
        ) from None
    except (OSError, RecursionError, OmegaConfBaseException) as error:
        text = str(error).splitlines()[0]
        fix = "mend the place that is named; the file holds keys and values, as in nodes: 2"
        raise ConfigError(what=f"{file.name} cannot be read", found=f"{file}: {text}", fix=fix) from None


def _check_keys(values: Mapping[str, Any], *, where: str, prefix: str = "") -> None:
    for name, value in values.items():
        key = f"{prefix}{name}"
        require_key(key, found=f"{key} in {where}")
        is_section = key in OPEN_KEYS or any(known.startswith(f"{key}.") for known in text_keys())
        if is_section and not isinstance(value, dict) and not (key in GROUPS and isinstance(value, str)):
            raise ConfigError(what="a section is not a mapping", found=f"{key} in {where}", fix=SECTIONS)
        if isinstance(value, dict) and key not in OPEN_KEYS:
            _check_keys(value, where=where, prefix=f"{key}.")


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
    if file is None or SCHEMA in file.read_text(errors="replace"):
        return
    raise ConfigError(
        what="a config.yaml of yours stands in the place of ours and lacks the schema",
        found=str(file),
        fix=f"name it {DEFAULTS_FILE} to have its values merged, or give it the defaults list of ours",
    )


def render_config(config: Config) -> str:
    """Return a configuration as YAML text, every value resolved."""
    return render_yaml(asdict(config))
