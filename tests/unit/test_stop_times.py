"""When a run is told to stop, and how long it has."""

from __future__ import annotations

from typing import Any

import pytest

from hpc_multinode.config import Config
from hpc_multinode.errors import ConfigError
from hpc_multinode.stop_times import StopTimes, choose_stop_times, make_stop_options


def make_config(*, time: Any = None, grace_s: float | None = None, warn_s: float | None = None) -> Config:
    """Return a configuration with a time limit."""
    config = Config()
    config.resources.time = time
    config.stop.grace_s, config.stop.warn_s = grace_s, warn_s
    return config


@pytest.mark.parametrize(
    ("given", "grace_s", "warn_s"),
    [
        ({}, 60, None),
        ({"time": "unlimited"}, 60, None),
        ({"time": 120}, 60, 180),
        ({"time": 12}, 60, 180),
        ({"time": 4}, 60, 60),
        ({"time": 1}, 15, 15),
        ({"time": 120, "grace_s": 600}, 600, 600),
        ({"time": 1, "grace_s": 20}, 20, 20),
        ({"time": 120, "warn_s": 20}, 20, 20),
        ({"time": 120, "warn_s": 900}, 60, 900),
        ({"grace_s": 5}, 5, None),
        ({"warn_s": 20}, 20, 20),
        ({"time": "unlimited", "warn_s": 90}, 60, 90),
    ],
)
def test_times_fit_under_the_limit(given: dict[str, Any], grace_s: float, warn_s: float | None) -> None:
    """Short limits are no special case: both shrink."""
    assert choose_stop_times(make_config(**given)) == StopTimes(grace_s=grace_s, warn_s=warn_s)


@pytest.mark.parametrize(
    "given", [{"time": 1, "warn_s": 60}, {"time": 10, "grace_s": 200, "warn_s": 100}, {"time": 1, "grace_s": 50}]
)
def test_times_that_do_not_fit_are_refused(given: dict[str, Any]) -> None:
    """What was given by hand is not changed in silence."""
    with pytest.raises(ConfigError):
        choose_stop_times(make_config(**given))


@pytest.mark.parametrize(
    ("enabled", "given", "options"),
    [
        (None, {}, {"signal": "USR2@180"}),
        (True, {}, {"signal": "USR2@180", "requeue": True}),
        (False, {}, {"signal": "USR2@180", "no-requeue": True}),
        (True, {"signal": "USR2@30", "requeue": True}, {}),
    ],
)
def test_what_sbatch_is_asked_for(*, enabled: bool | None, given: dict[str, Any], options: dict[str, Any]) -> None:
    """Without a wish there is no line on requeues; what the person gives by hand stands."""
    config = make_config(time=60)
    config.requeue.enabled = enabled
    assert make_stop_options(config, choose_stop_times(config), given=given) == options


def test_no_limit_brings_no_warning() -> None:
    """The partition's own limit is not ours to know."""
    config = make_config()
    assert make_stop_options(config, choose_stop_times(config), given={}) == {}
