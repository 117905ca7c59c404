"""Running things in the nodes of a network."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bwbench.network.network import Network, NodeProcess

REPOSITORY = Path(__file__).parents[2]
FIRST_PORT = 5001

# Sends argv[3] bytes to port argv[2] of argv[1]; received by the other, which tells how many came.
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(bytes(int(sys.argv[3])))
"""
RECEIVE = """
import socket, sys
with socket.create_server(("0.0.0.0", int(sys.argv[1]))) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    total = 0
    while data := connection.recv(1 << 16):
        total += len(data)
print(total, flush=True)
"""


def start(network: Network, node: int, code: str, *arguments: str) -> tuple[NodeProcess, int]:
    """Run Python code in a node; returns the process and the descriptor from which its output can be read."""
    read, write = os.pipe()
    try:
        process = network.spawn(
            node, [sys.executable, "-c", code, *arguments], cwd=REPOSITORY, stdout=write, stderr=write
        )
    finally:
        os.close(write)
    return process, read


def output_of(network: Network, node: int, code: str, *arguments: str, limit_s: float = 20.0) -> str:
    """What Python code prints in a node; fails where it does."""
    process, read = start(network, node, code, *arguments)
    with open(read) as stream:
        text = stream.read()
    assert process.wait(limit_s) == 0, text
    return text


def transfer(network: Network, pairs: Sequence[tuple[int, int]], num_bytes: int) -> None:
    """Send ``num_bytes`` over TCP from src to dst of every pair, at the same time."""
    receivers = []
    for number, (_, dst) in enumerate(pairs):
        process, read = start(network, dst, RECEIVE, str(FIRST_PORT + number))
        stream = os.fdopen(read)
        assert stream.readline() == "listening\n"
        receivers.append((process, stream))
    senders = [
        start(network, src, SEND, network.nodes[dst].data_address, str(FIRST_PORT + number), str(num_bytes))
        for number, (src, dst) in enumerate(pairs)
    ]
    for process, stream in receivers:
        with stream:
            assert stream.readline() == f"{num_bytes}\n"
        assert process.wait(10) == 0
    for process, read in senders:
        assert process.wait(10) == 0
        os.close(read)
