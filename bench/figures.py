"""Figures: what was measured, its spread, whether it meets its target. Pure."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

RATIO = "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing that was measured, some times.

    Attributes:
        what: What it is; unique within its part.
        unit: Of the values; ``x`` for the ratio of two things of one round.
        values: One for each round.
        most: The target is met where the median is at most this; None: no such target.
        least: The same for at least.
        in_table: It is one of the few that the README shows.
    """

    what: str
    unit: str
    values: tuple[float, ...]
    most: float | None = None
    least: float | None = None
    in_table: bool = False

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the median meets the target; None where there is none."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or self.median <= self.most) and (self.least is None or self.median >= self.least)

    def to_json(self) -> dict[str, Any]:
        """Return fields and spread as JSON values."""
        spread = {"median": self.median, "min": min(self.values), "max": max(self.values)}
        return {**asdict(self), **spread, "values": list(self.values)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Figure:
        """Read back what ``to_json`` made."""
        names = ("what", "unit", "most", "least", "in_table")
        return cls(**{name: data[name] for name in names}, values=tuple(data["values"]))


def make_ratio(
    what: str,
    over: Sequence[float],
    under: Sequence[float],
    *,
    most: float | None = None,
    least: float | None = None,
    in_table: bool = False,
) -> Figure:
    """Divide two things round by round: what one round's machine did to both drops out.

    Args:
        what: What the ratio is.
        over: Values by round.
        under: Values of the same rounds.
        most: Target, see ``Figure``.
        least: Target, see ``Figure``.
        in_table: See ``Figure``.
    """
    values = tuple(one / other for one, other in zip(over, under, strict=True))
    return Figure(what=what, unit=RATIO, values=values, most=most, least=least, in_table=in_table)


def render_number(value: float) -> str:
    """Write a value with three digits that count."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.1e}"  # noqa: PLR2004


def render_figure(figure: Figure) -> str:
    """Write a figure in one line: median, least to most, how often, the target and whether it is met."""
    spread = f"{render_number(min(figure.values))} to {render_number(max(figure.values))}"
    line = f"{figure.what}: {render_number(figure.median)} {figure.unit} ({spread}, n={len(figure.values)})"
    return f"{line}{render_target(figure)}"


def render_target(figure: Figure) -> str:
    """Write what was aimed at, and MISSED where it was."""
    if figure.is_met is None:
        return ""
    wanted = [f"at most {render_number(figure.most)}"] if figure.most is not None else []
    wanted += [f"at least {render_number(figure.least)}"] if figure.least is not None else []
    return f"; target {' and '.join(wanted)}: {'met' if figure.is_met else 'MISSED'}"
