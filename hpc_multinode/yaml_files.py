"""YAML files in which texts keep their letters.

YAML 1.1 reads ``10:00`` as 600, ``0123`` as 83, ``on`` as true and ``1.10`` as 1.1. The same letters mean the same here
in a file and on the command line: what stands for a text key is text, and a number is decimal or none at all.
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf

from hpc_multinode.keys import holds_texts

if TYPE_CHECKING:
    from hydra.plugins.config_source import ConfigResult

SCHEME = "hpc-multinode"

_NULL, _TEXT, _MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
# Base 60 (1:30) and base 8 (0123): nobody's wish in a configuration.
_OTHER_BASE = re.compile(r"[-+]?(?:[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|0[0-9_]+)", re.ASCII)


# libyaml where PyYAML was built with it: a sweep writes hundreds of configurations.
_BaseDumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_WORDS = frozenset({"true", "false", "on", "off", "yes", "no", "y", "n", "null", "~"})


class _Dumper(_BaseDumper):  # type: ignore[misc, valid-type]
    """Writes enums by name, and texts so that no reader of YAML takes them for something else."""


def render_yaml(data: object) -> str:
    """Write mappings, lists and plain values as YAML."""
    return yaml.dump(data, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)


def _is_like_a_value(text: str) -> bool:
    if text.lower() in _WORDS:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(_TEXT, text, style="'" if _is_like_a_value(text) else None)


def _represent_enum(dumper: yaml.SafeDumper, value: Enum) -> yaml.ScalarNode:
    return _represent_text(dumper, value.name)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_multi_representer(Enum, _represent_enum)


class YamlFolder(FileConfigSource):
    """A folder of configuration files, for Hydra; ``_register`` in ``compose`` makes it known."""

    @staticmethod
    def scheme() -> str:
        """Return what stands before ``://`` in the search path."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a file; what is wrong with it is told by Hydra's own reading, with its line."""
        result = super().load_config(config_path)
        package = result.header.get("package")
        if package is None:
            package = config_path.rpartition("/")[0].replace("/", ".")
        file = Path(self.path, self._normalize_file_name(config_path))
        result.config = parse_yaml(
            file.read_text(encoding="utf-8"), package=package.removeprefix("_global_").strip(".")
        )
        return result


def parse_yaml(text: str, *, package: str = "") -> DictConfig | ListConfig:
    """Read YAML that is known to parse.

    Args:
        text: The document.
        package: Dotted key under which its keys stand, empty for the top.
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if node is None:
        return OmegaConf.create()
    return OmegaConf.create(yaml.serialize(_keep_letters(node, package), allow_unicode=True, width=sys.maxsize))


def _keep_letters(node: yaml.Node, key: str) -> yaml.Node:
    if isinstance(node, yaml.MappingNode):
        pairs = [
            (name, _keep_letters(value, key if name.tag == _MERGE else f"{key}.{name.value}".lstrip(".")))
            for name, value in node.value
        ]
        return yaml.MappingNode(node.tag, pairs, flow_style=node.flow_style)
    if isinstance(node, yaml.SequenceNode):
        return yaml.SequenceNode(node.tag, [_keep_letters(item, key) for item in node.value], flow_style=True)
    is_plain = isinstance(node, yaml.ScalarNode) and node.style is None and node.tag != _NULL
    if is_plain and (holds_texts(key, node.value) or _OTHER_BASE.fullmatch(node.value)):
        return yaml.ScalarNode(_TEXT, node.value, style="'")
    return node
