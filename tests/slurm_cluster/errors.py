"""The one error of the test cluster: what happened, what was found, how to fix it.

Pure. The cluster does not import the launcher, so it has an error class of its own.
"""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster cannot do what was asked.

    Args:
        what: What is wrong, one line without a full stop.
        found: What was seen, such as a command's output or the tail of a log.
        fix: What to do instead.
    """

    def __init__(self, *, what: str, found: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        found = self.found.strip().replace("\n", "\n         ")
        return f"{self.what}\n  found: {found}\n  fix:   {self.fix}"
