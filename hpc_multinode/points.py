"""The points of a sweep, composed: hundreds of configurations in a second.

Hydra composes once for each choice of files; the values that differ are then set in copies of that. Reads files; writes
nothing.
"""

from __future__ import annotations

import copy
import functools
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from hpc_multinode.compose import compose_words, explained, prepared_hydra, render_config, to_config
from hpc_multinode.keys import GROUPS
from hpc_multinode.overrides import prepare_override
from hpc_multinode.sweep_words import expand_word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

    from hpc_multinode.config import Config
    from hpc_multinode.sweep_words import Choice

# Words that change which files are read, or where the values of a file go.
_REACHES_FILES = re.compile(r"[@/]|^hydra\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a sweep.

    Attributes:
        words: What tells it from the other points: the words that have several values, each with its own.
        config: Its configuration.
        text: The same as YAML, every value resolved.
    """

    words: tuple[str, ...]
    config: Config
    text: str


def compose_points(
    overrides: Sequence[str], *, config_dirs: Sequence[Path], script_argv: Sequence[str] = ()
) -> list[Point]:
    """Compose the configuration of every point: each value with every other one, the last word's first, as Hydra does.

    Args:
        overrides: Words of the command line; a word may have several values, see ``sweep_words``.
        config_dirs: The person's folders, the first wins; ours comes after them.
        script_argv: More positional arguments, for a work that is a script.

    Raises:
        ConfigError: A key, option, type or file is wrong.
    """
    with explained(overrides, config_dirs), prepared_hydra(config_dirs) as chosen:
        loader = GlobalHydra.instance().config_loader()
        choices = _drop_overridden([expand_word(word, loader=loader) for word in overrides])
        composer = _Composer(chosen, choices)
        typed = itertools.product(*(choice.words for choice in choices))
        prepared = itertools.product(*([prepare_override(word) for word in choice.words] for choice in choices))
        return [
            composer.compose(words, typed=point, script_argv=script_argv)
            for point, words in zip(typed, prepared, strict=True)
        ]


class _Composer:
    def __init__(self, chosen: Sequence[str], choices: Sequence[Choice]) -> None:
        self._chosen = tuple(chosen)
        self._is_swept = [choice.is_swept for choice in choices]
        self._is_late = _find_late(choices)
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def compose(self, words: Sequence[str], *, typed: Sequence[str], script_argv: Sequence[str]) -> Point:
        late = list(itertools.compress(words, self._is_late))
        base = self._find_base(words)
        # Each point sets the same keys, so that nothing of the one before stays; but a mapping is merged with what is
        # there.
        composed = copy.deepcopy(base) if any(isinstance(_parse(word).value(), dict) for word in late) else base
        for word in late:
            _apply(word, composed)
        config = to_config(composed)
        if script_argv and config.strategy.is_script:
            config.work.args = [*config.work.args, *script_argv]
        return Point(words=tuple(itertools.compress(typed, self._is_swept)), config=config, text=render_config(config))

    def _find_base(self, words: Sequence[str]) -> DictConfig:
        early = tuple(itertools.compress(words, (not is_late for is_late in self._is_late)))
        if early not in self._bases:
            # The whole of it as well, for Hydra's own word on what is wrong with it.
            compose_words([*self._chosen, *words])
            self._bases[early] = compose_words([*self._chosen, *early])
        return self._bases[early]


def _drop_overridden(choices: Sequence[Choice]) -> list[Choice]:
    """Leave out what a later word of the same key replaces: else points would be equal."""
    last = {choice.key: place for place, choice in enumerate(choices)}
    return [choice for place, choice in enumerate(choices) if place == last[choice.key]]


def _find_late(choices: Sequence[Choice]) -> list[bool]:
    """Say of each word whether its values may be set in a composed configuration, as the last thing of all.

    That holds for a swept value, unless another word sets the same key, one above it or one below it: then the order
    counts, and Hydra is to apply all.
    """
    keys = [choice.key for choice in choices]

    def is_alone(index: int) -> bool:
        own = f"{keys[index]}."
        others = [f"{key}." for place, key in enumerate(keys) if place != index]
        return not any(own.startswith(other) or other.startswith(own) for other in others)

    return [
        choice.is_swept and key not in GROUPS and not _REACHES_FILES.search(key) and is_alone(index)
        for index, (choice, key) in enumerate(zip(choices, keys, strict=True))
    ]


def _apply(word: str, config: DictConfig) -> None:
    """Set a value in a composed configuration, as Hydra does with a word of the command line."""
    override = _parse(word)
    try:
        OmegaConf.update(
            config,
            override.key_or_group,
            override.value(),
            merge=True,
            force_add=override.is_add() or override.is_force_add(),
        )
    except OmegaConfBaseException as error:
        raise ConfigCompositionException(f"Error merging override {word}") from error


@functools.cache
def _parse(word: str) -> Override:
    return OverridesParser.create().parse_override(word)
