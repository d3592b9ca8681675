"""A module whose import fails on the nodes, which the login side cannot see."""

import os

if "RANK" in os.environ:
    import module_that_nobody_has  # noqa: F401


def run():
    print("never")
