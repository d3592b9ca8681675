"""Print figures, one line each: ``python -m bench [NAME ...]``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bench import coordinator, soak, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BENCHES: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
    "coordinator": coordinator.measure,
    "start": start.measure,
    "soak": soak.measure,
}


def main() -> None:
    """Run the benches that are named, or all."""
    names = sys.argv[1:] or list(_BENCHES)
    unknown = [name for name in names if name not in _BENCHES]
    if unknown:
        sys.exit(f"no bench {unknown[0]}; there are {', '.join(_BENCHES)}")
    for name in names:
        print(f"{name}: medians (least to most)")
        for line in _BENCHES[name]():
            figures = ", ".join(f"{key} {value}" for key, value in line.items() if key != "what")
            print(f"  {line['what']}: {figures}")


main()
