"""``LightningLite`` for code that was written for it: a Fabric that launches itself.

For new code use ``lightning.fabric.Fabric`` and call ``launch()``.
"""

from __future__ import annotations

from typing import Any

from lightning.fabric import Fabric

# The short names of old, which Fabric takes with a warning or not at all.
_PRECISIONS = {"bf16": "bf16-mixed", "16": "16-mixed", "32": "32-true", "64": "64-true"}


class LightningLite(Fabric):
    """A Fabric built with LightningLite's arguments and launched as soon as it is made.

    Args:
        args: As of ``Fabric``.
        precision: As of ``Fabric``, or one of the old short names ``bf16``, 16, 32, 64.
        kwargs: As of ``Fabric``.
    """

    def __init__(self, *args: Any, precision: str | int | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - Fabric's
        if precision is not None:
            kwargs["precision"] = _PRECISIONS.get(str(precision), precision)
        super().__init__(*args, **kwargs)
        self.launch()
