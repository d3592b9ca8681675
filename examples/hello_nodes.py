"""What strategy ``base`` gives: one worker a node, told where global rank 0 is found. Demo of ``strategy=base``.

As a sweep, a run for each number of nodes: python -m hpc_multinode -m strategy=base nodes=1,2
"""

import socket


def run(main_address: str, main_port: int, num_nodes: int, node_rank: int) -> None:
    """Say who we are."""
    print(f"node {node_rank} of {num_nodes} on {socket.gethostname()}, main address {main_address}:{main_port}")
