"""What strategy ``base`` gives: one worker a node, told where global rank 0 is found. Demo of ``strategy=base``."""

import socket


def run(main_address: str, main_port: int, num_nodes: int, node_rank: int) -> None:
    """Say who we are."""
    print(f"node {node_rank} of {num_nodes} on {socket.gethostname()}, main address {main_address}:{main_port}")
