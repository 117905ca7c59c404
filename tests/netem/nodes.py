"""Running things inside the nodes of a network, and looking at what is left of it outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bwbench.network.network import Network

REPOSITORY = Path(__file__).parents[2]


def output_of(network: Network, node: int, *arguments: str, limit_s: float = 60.0) -> str:
    """What ``arguments`` prints in a node; ``python`` stands for this interpreter. Fails where it does."""
    words = [sys.executable if word == "python" else word for word in arguments]
    read, write = os.pipe()
    try:
        process = network.spawn(node, words, cwd=REPOSITORY, stdout=write, stderr=write)
    finally:
        os.close(write)
    with open(read, encoding="utf-8") as stream:
        text = stream.read()
    assert process.wait(limit_s) == 0, text
    return text


def outside() -> dict[str, list[str]]:
    """Interfaces and qdiscs of this namespace, network namespaces of the machine: to be the same afterwards."""
    namespaces = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            namespaces.add(os.readlink(process / "ns/net"))
        except OSError:
            continue
    qdiscs = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
    return {
        "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "namespaces": sorted(namespaces),
        "qdiscs": sorted(qdiscs.splitlines()),
    }
