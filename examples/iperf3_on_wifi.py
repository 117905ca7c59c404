"""How fast is TCP between two stations of a WiFi, and what do two that send at once leave each other?

Runs iperf3 in the nodes of a preset ('bwbench link presets' lists them). Needs no root.

    python examples/iperf3_on_wifi.py [PRESET] [SECONDS]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

from bwbench import emulate
from bwbench.network.emulate import Node, NodePopen

START_S = 0.5  # for a server to listen


def start_server(node: Node, port: int) -> NodePopen:
    """An iperf3 server that ends with its first client."""
    return node.popen(["iperf3", "--server", "--one-off", "--port", str(port)], stdout=subprocess.DEVNULL)


def start_client(node: Node, server: Node, port: int, seconds: int) -> NodePopen:
    """A client that fills the link towards ``server``."""
    words = ["iperf3", "--json", "--client", server.address, "--port", str(port), "--time", str(seconds)]
    return node.popen(words, stdout=subprocess.PIPE, text=True)


def goodput_mbps(client: NodePopen, seconds: int) -> float:
    """What arrived, once the client is done."""
    output, _ = client.communicate(timeout=seconds + 30)
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 1e6


def main(preset: str = "wifi-802.11n-good", seconds: str = "5") -> None:
    """Measure one pair alone, then two at once."""
    if shutil.which("iperf3") is None:
        print("iperf3 is not installed; 'apt install iperf3' brings it")
        return
    duration_s = int(seconds)
    with emulate(preset, num_nodes=4) as nodes:
        print(f"{preset}: {nodes.link.describe()}, carried by {nodes.network.backend}")
        servers = [start_server(nodes[0], 5201), start_server(nodes[0], 5202), start_server(nodes[2], 5203)]
        time.sleep(START_S)
        alone = goodput_mbps(start_client(nodes[1], nodes[0], 5201, duration_s), duration_s)
        print(f"node 1 > node 0 alone:  {alone:.2f} Mbit/s")
        clients = {
            "node 1 > node 0": start_client(nodes[1], nodes[0], 5202, duration_s),
            "node 3 > node 2": start_client(nodes[3], nodes[2], 5203, duration_s),
        }
        for name, client in clients.items():
            print(f"{name} together: {goodput_mbps(client, duration_s):.2f} Mbit/s")
        for server in servers:
            server.wait(timeout=10)
        print(f"{nodes.counters().total().bytes / 1e6:.1f} MB crossed the link")


if __name__ == "__main__":
    main(*sys.argv[1:])
