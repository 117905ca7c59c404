"""``distribute(..., link=...)`` between two nodes: the kernel limits the connections to the other one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.netns, pytest.mark.timeout(200)]
SCRIPT = """
import logging, socket, sys
import torch
from bwbench import distribute
from bwbench.methods.collectives.pacing import _connections

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
torch.set_num_threads(1)
model = torch.nn.Linear(400, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def paces():
    found = [int.from_bytes(c.getsockopt(socket.SOL_SOCKET, 47, 8), "little") for _, c in _connections()]
    return sorted(8 * rate for rate in found if rate < 2**40)

with distribute(model, optimizer, "ring", link=sys.argv[1]):
    print("paced", *paces(), flush=True)
    model(torch.randn(8, 400)).pow(2).mean().backward()
    optimizer.step()
print("left", *paces(), flush=True)
"""


# What is measured is less where the machine is busy; more than the link carries it never is.
@pytest.mark.parametrize(("link", "least", "most"), [("20 Mbit/s", 18.7e6, 19.0e6), ("measured", 0.0, 20e6)])
def test_ranks_send_no_faster_than_their_link(link: str, least: float, most: float, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "bwbench.cli.main", "link", "run", "--torch-env", "--nodes", "2"]
    command += ["--bandwidth", "20 Mbit/s", "--latency", "2 ms", "--", sys.executable, "script.py", link]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    words = [line.split("] ", 1)[-1].split() for line in done.stdout.splitlines()]
    paced = [list(map(float, line[1:])) for line in words if line[:1] == ["paced"]]
    assert len(paced) == 2 and all(rates and least < rates[0] <= rates[-1] < most for rates in paced), done.stdout
    assert [line for line in words if line[:1] == ["left"]] == [["left"], ["left"]]
