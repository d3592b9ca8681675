"""Start of a node agent: ``python -m hpc_multinode.node RUN_DIR``.

The agent's working directory is the run folder, which holds no modules, so nothing of the person's shadows ours.
"""

from hpc_multinode.node.agent import main

main()
