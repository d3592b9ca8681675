"""Where the files that travel with the package lie: ``conf``, ``sbatch_templates`` and ``examples``.

In a wheel they are inside the package; in a checkout they stand beside it, where people edit them.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# In the run folder of a run in a container: a link to the package, without what else lies beside it on this machine.
AGENT_FOLDER = "agent"


def find_asset(name: str) -> Path:
    """Return the folder or file ``name`` of the installed package or of the checkout.

    Args:
        name: A path relative to the package (wheel) or to the checkout, such as ``conf``.

    Raises:
        FileNotFoundError: The installation lacks it.
    """
    for root in (PACKAGE, PACKAGE.parent):
        if (root / name).exists():
            return root / name
    msg = f"this installation of hpc_multinode lacks {name!r}: looked in {PACKAGE} and beside it; install it anew"
    raise FileNotFoundError(msg)
