"""The command line: which verb, which options, and errors as exit codes."""

from hpc_multinode.cli.main import run

__all__ = ["run"]
