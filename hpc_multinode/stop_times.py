"""When a run that has to stop is told, how long it has, and what sbatch is asked for that. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpc_multinode.errors import ConfigError
from hpc_multinode.slurm.amounts import parse_time_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpc_multinode.config import Config

_GRACE_S, _WARN_S = 60.0, 180.0
# Under a short limit the warning comes when so much of it is left.
_WARN_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTimes:
    """When workers are told to stop, and how long they have.

    Attributes:
        grace_s: From being told to SIGKILL, in seconds.
        warn_s: From being told to the time limit, in seconds; None where neither it nor a limit is given.
    """

    grace_s: float
    warn_s: float | None


def choose_stop_times(config: Config) -> StopTimes:
    """Choose the times that fit under the time limit.

    Args:
        config: The configuration, every value in its range.

    Raises:
        ConfigError: A time given by hand does not fit.
    """
    grace_s, warn_s, limit_s = config.stop.grace_s, config.stop.warn_s, _find_limit(config)
    if limit_s is None:
        # The partition's own limit is not ours to know; Slurm reckons a warning given by hand from that.
        least_s = _GRACE_S if warn_s is None else min(_GRACE_S, warn_s)
        return StopTimes(grace_s=least_s if grace_s is None else grace_s, warn_s=warn_s)
    if warn_s is not None and warn_s >= limit_s:
        raise ConfigError(
            what="the warning would come before the job begins",
            found=f"stop.warn_s={warn_s:g}, resources.time={config.resources.time} ({limit_s} s)",
            fix="a smaller stop.warn_s, or leave it out",
        )
    if warn_s is None:
        # A grace given by hand is what the warning is for.
        warn_s = max(min(_WARN_S, limit_s * _WARN_SHARE), min(grace_s or 0.0, limit_s / 2))
    if grace_s is not None and grace_s > warn_s:
        raise ConfigError(
            what="the grace does not fit between the warning and the time limit",
            found=f"stop.grace_s={grace_s:g}, stop.warn_s={warn_s:g}, resources.time={config.resources.time}",
            fix="a smaller stop.grace_s, or a larger stop.warn_s or resources.time",
        )
    return StopTimes(grace_s=min(_GRACE_S, warn_s) if grace_s is None else grace_s, warn_s=warn_s)


_REQUEUE = {True: "requeue", False: "no-requeue"}


def make_stop_options(config: Config, stop: StopTimes, *, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of sbatch that bring the warning, and allow or forbid the requeue.

    Args:
        config: The configuration.
        stop: The times.
        given: Options that stand already; what the person asks for by hand is left to them.

    Source:
        sbatch(1), --signal (without B: it goes to the steps), --requeue, --no-requeue.
    """
    options: dict[str, Any] = {}
    if stop.warn_s is not None and "signal" not in given:
        options["signal"] = f"USR2@{max(1, math.ceil(stop.warn_s))}"
    by_hand = [option for option in _REQUEUE.values() if option in given]
    if config.requeue.enabled is None:
        return options
    wanted = _REQUEUE[config.requeue.enabled]
    if any(option != wanted for option in by_hand):
        raise ConfigError(
            what="two keys say whether the job may be requeued, and contradict each other",
            found=f"requeue.enabled={str(config.requeue.enabled).lower()}, resources.sbatch asks for --{by_hand[0]}",
            fix=f"remove the option from resources.sbatch: requeue.enabled makes --{wanted}",
        )
    return {**options, wanted: True} if not by_hand else options


def _find_limit(config: Config) -> int | None:
    if config.resources.time is None:
        return None
    minutes = parse_time_limit(str(config.resources.time), key="resources.time")
    return None if minutes is None else minutes * 60
