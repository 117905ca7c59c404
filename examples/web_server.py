"""How long does a page take over DSL, and what happens to it when the line is dead for a second?

A web server in one node, a client in another, nothing beside the standard library. Needs no root.

    python examples/web_server.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bwbench import Link, emulate
from bwbench.network.emulate import Node

PAGE_BYTES = 200_000
PORT = 8000
SERVE = f"import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port={PORT})"
FETCH = """
import sys, time, urllib.request
started = time.monotonic()
size = len(urllib.request.urlopen(sys.argv[1], timeout=30).read())
print(f"{size} bytes in {time.monotonic() - started:.2f} s")
"""


def fetch(client: Node, server: Node) -> str:
    """Get the page once; what the client says of it."""
    url = f"http://{server.address}:{PORT}/page"
    return client.run([sys.executable, "-c", FETCH, url], capture_output=True, text=True, check=True, timeout=60).stdout


def main() -> None:
    """Fetch a page, then the same during an outage."""
    # Node 0 is the server, in a data centre: fast both ways. Node 1 is at home.
    link = Link(
        up="1 Mbit/s",
        down="16 Mbit/s",
        latency="20 ms",
        overrides={0: {"bandwidth": "1 Gbit/s", "latency": "1 ms"}},
        outages=[{"at": "0 s", "duration": "1 s", "every": "1 h"}],
    )
    with tempfile.TemporaryDirectory() as folder, emulate(link, num_nodes=2) as nodes:
        (Path(folder) / "page").write_bytes(bytes(PAGE_BYTES))
        words = [sys.executable, "-u", "-c", SERVE]
        server = nodes[0].popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with server:
            assert server.stdout is not None
            server.stdout.readline()  # it says when it serves
            print(f"{link.describe()}, carried by {nodes.network.backend}")
            print(f"a page:             {fetch(nodes[1], nodes[0])}", end="")
            nodes.play()  # outages count from here
            print(f"through an outage:  {fetch(nodes[1], nodes[0])}", end="")
            server.terminate()


if __name__ == "__main__":
    main()
