"""A sweep over a Ray cluster: two nodes in processes of their own, one of which is killed on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import TINY, family, start, wait_for

pytest.importorskip("ray", reason="the extra [ray] is not installed")

from tests.e2e.ray_nodes import Nodes, ray_nodes  # noqa: E402 (Ray has to be there)

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(180)]

ON = ("--on", "ray", "--cells-per-machine", "2")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes(1, 1) as started:
        yield started


def test_twelve_cells_and_a_node_that_dies_halfway(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + "repeats: 3\nalgorithm: ring\n")
    (tmp_path / "alone.yaml").write_text(TINY.replace("name: tiny", "name: alone") + "repeats: 9\nalgorithm: single\n")
    sweep = start("sweep", "tiny.yaml", "alone.yaml", *ON, cwd=tmp_path, RAY_ADDRESS=nodes.address)
    messages, results = tmp_path / "messages", tmp_path / "results"
    five = wait_for(lambda: sweep.poll() or len(list(results.glob("*/*/status.json"))) >= 5, 90, "five cells")
    assert five is True, messages.read_text()
    nodes.kill(2)
    assert sweep.wait(90) == 0, messages.read_text()
    statuses = [json.loads(file.read_text()) for file in results.glob("*/*/status.json")]
    assert [status["status"] for status in statuses] == ["done"] * 12
    assert "was lost on" in messages.read_text() and "Traceback" not in messages.read_text()
    assert not list(results.rglob("*.part")) and not list(results.glob(".seen-from-*"))
    assert not list(results.rglob(".claim"))
    assert not family(tmp_path)
    assert not [p.cmdline() for p in family(nodes.folder) if "bwbench" in " ".join(p.cmdline())]
