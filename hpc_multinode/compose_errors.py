"""Hydra's errors in our words: what, found, fix. Pure."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, cast

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException, ValidationError

from hpc_multinode.errors import ConfigError
from hpc_multinode.keys import GROUPS, suggest_key, text_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import yaml

DEFAULTS_FILE = "defaults.yaml"
# The node of conf/config.yaml that stands for it.
DEFAULTS = "_hpc_multinode_defaults"
SECTIONS = "write keys and values below it, one a line, as in gpus_per_node: 2"
_FIXES = {
    "could not be converted to Integer": "give a whole number, as in nodes=2",
    "could not be converted to Float": "give a number, as in stop.grace_s=30",
    "is not a valid bool": "give true or false",
    "str to Dict": "it holds names with values: a word for each, as in env.NAME=VALUE",
    "is not a ListConfig": "give a list, as in cluster.setup=['module load cuda']",
    "to string": "give a text, in quotes of its own where it begins with a bracket",
    "is not Optional": "leave it out for its default",
}
_TYPED_GPUS = re.compile(r"'([^':=]+)[:=](\d+)'")
_MEMBERS = re.compile(r"expected one of \[(.+)\]")
_IN_FILE = re.compile(r"In '(.+?)': \w+ raised while composing config")


def explain(error: Exception, words: Sequence[str]) -> ConfigError:
    """Return our error for one of Hydra or OmegaConf.

    Args:
        error: What was raised while composing.
        words: What was typed.
    """
    if isinstance(error, MissingConfigException):
        return _missing_option(error, words)
    inner = error
    while not isinstance(inner, OmegaConfBaseException) and (inner.__cause__ or inner.__context__):
        inner = cast("Exception", inner.__cause__ or inner.__context__)
    lines = str(error).splitlines() or str(inner).splitlines() or [type(inner).__name__]
    in_file = _IN_FILE.match(lines[0])
    found = _name_file(in_file[1]) if in_file else lines[0].removeprefix("Error merging override ")
    # As typed, where we have put signs of Hydra's before it.
    found = next((word for word in words if word.lstrip("+") == found.lstrip("+")), found)
    key = str(getattr(inner, "full_key", None) or "")
    text = (str(inner).splitlines() or lines)[0]
    if isinstance(inner, ConfigKeyError) and key:
        return ConfigError(what=f"unknown key {key!r}", found=f"in {found}", fix=_suggest_for_file(key))
    if "Merge error" in text or "Cannot merge" in text:
        return _explain_merge(text, found)
    if "Ambiguous value" in text or "Sweep parameters" in text:
        return ConfigError(
            what="an override has several values",
            found=text.partition("'")[2].partition("'")[0],
            fix="""give one; a list is written [a,b], and a text with a comma in quotes of its own: 'key="a,b"'""",
        )
    if isinstance(error, HydraException) and not isinstance(error, ConfigCompositionException):
        word = str(getattr(error, "override", None) or "")
        return ConfigError(
            what="an override cannot be read",
            found=f"{word}: {lines[0]}" if word else lines[0],
            fix=f"put the value into quotes of its own, and the word into the shell's: {_quote_word(word)}",
        )
    members = _MEMBERS.search(text)
    fix = f"one of {members[1]}" if members else next((fix for sign, fix in _FIXES.items() if sign in text), text)
    typed = _TYPED_GPUS.search(text) if key == "resources.gpus_per_node" else None
    if typed is not None:
        fix = f"resources.gpus_per_node={typed[2]} resources.gpu_type={typed[1]}"
    what = (
        "a value has the wrong type" if isinstance(inner, ValidationError) else "the configuration cannot be composed"
    )
    if in_file:
        found = f"{key} in {found}: {text}"
    elif key and key not in found:
        found = f"{key}: {found}"
    return ConfigError(what=what, found=found, fix=fix)


def _quote_word(word: str) -> str:
    """Write an override as a shell takes it and Hydra reads it as text; in general where that needs more thought."""
    key, equals, value = word.partition("=")
    if not equals or set(value) & {"'", '"', "\\", "$"}:
        return """'key="value"'"""
    return f"""'{key}="{value}"'"""


def _explain_merge(text: str, found: str) -> ConfigError:
    if "str is not a subclass" in text:
        fix = "in a file's defaults list: - override /resources: NAME"
        return ConfigError(what="a group is not chosen by a key", found=f"{found}: {text}", fix=fix)
    return ConfigError(what="a section is not a mapping", found=f"{found}: {text}", fix=SECTIONS)


def _name_file(config: str) -> str:
    return DEFAULTS_FILE if config == DEFAULTS else f"{config}.yaml"


def _suggest_for_file(key: str) -> str:
    group, _, name = key.partition(".")
    if key in GROUPS:  # Hydra reads a file without that line as one that sets keys of its own group
        return f"a file of {key}/ begins with the line: # @package _global_"
    if group in GROUPS and name in text_keys():
        return f"a file of {group}/ that sets {name} too begins with the line: # @package _global_"
    return suggest_key(key, text_keys())


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


def explain_yaml(error: yaml.YAMLError) -> ConfigError:
    """Return our error for a file that does not parse."""
    mark = getattr(error, "problem_mark", None)
    place = f"{mark.name}, line {mark.line + 1}" if mark is not None else str(error)
    problem = getattr(error, "problem", None) or "it does not parse"
    fix = "mend that line: key: value, with a blank behind the colon and blanks, not tabs, in front"
    return ConfigError(what="a configuration file is not YAML", found=f"{place}: {problem}", fix=fix)
