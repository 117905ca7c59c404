"""A sweep over a Ray cluster: two nodes in processes of their own, one of which is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import BWBENCH, TINY, family, start, status_of, wait_for, wait_for_message

pytest.importorskip("ray", reason="the extra [ray] is not installed")

from tests.e2e.ray_nodes import Nodes, ray_nodes  # noqa: E402 (Ray has to be there)

pytestmark = [pytest.mark.netns, pytest.mark.timeout(400)]

ON = ("--on", "ray", "--cells-per-machine", "2")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes(1, 1) as started:
        yield started


def test_twelve_cells_and_a_node_that_dies_halfway(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + "repeats: 2\nalgorithm: ring\n")
    alone = TINY.replace("name: tiny", "name: alone").replace("nodes: 2", "nodes: 1")  # what takes the least time
    (tmp_path / "alone.yaml").write_text(alone.replace("link: {", "# {") + "repeats: 10\nalgorithm: single\n")
    sweep = start("sweep", "tiny.yaml", "alone.yaml", *ON, cwd=tmp_path, RAY_ADDRESS=nodes.address)
    messages, results = tmp_path / "messages", tmp_path / "results"
    five = wait_for(lambda: sweep.poll() or len(list(results.glob("*/*/status.json"))) >= 5, 150, "five cells")
    assert five is True, messages.read_text()
    wait_for(lambda: nodes.runs_a_cell(2), 60, "a cell on the second node")
    nodes.kill(2)
    assert sweep.wait(150) == 0, messages.read_text()
    statuses = [json.loads(file.read_text()) for file in results.glob("*/*/status.json")]
    assert [status["status"] for status in statuses] == ["done"] * 12
    assert "was lost on" in messages.read_text() and "Traceback" not in messages.read_text()
    assert not list(results.rglob("*.part")) and not list(results.glob(".seen-from-*"))
    assert not list(results.rglob(".claim"))
    assert not family(tmp_path)
    assert not [p.cmdline() for p in family(nodes.folder) if "bwbench" in " ".join(p.cmdline())]


def test_records_come_back_to_a_folder_that_the_machine_does_not_see(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + "algorithm: ring\n")
    (tmp_path / "results").mkdir()
    hidden = 'mount -t tmpfs none results && "$@" && cp -r results copied'
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", hidden, "sh", *BWBENCH, "sweep", "tiny.yaml", "--on", "ray"],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": nodes.address},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    (cell,) = (tmp_path / "copied" / "tiny").glob("ring-*")
    assert json.loads((cell / "status.json").read_text())["status"] == "done"
    assert {path.name for path in cell.glob("attempt-1/rank*.jsonl")} == {"rank0.jsonl", "rank1.jsonl"}
    assert (cell / "attempt-1" / "link.json").is_file() and not (cell / ".claim").exists()
    assert not list(Path("/tmp").glob(f"bwbench-cell-*/{cell.name}"))


def test_ctrl_c_ends_the_cells_everywhere(nodes: Nodes, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY.replace("samples: 1280", "samples: 2000000") + "algorithm: ring\n")
    sweep = start("sweep", "tiny.yaml", "--on", "ray", cwd=tmp_path, RAY_ADDRESS=nodes.address)
    messages = tmp_path / "messages"
    wait_for_message(" of training", 100, sweep, tmp_path)  # which line comes first depends on when Ray looked
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(60) == 130, messages.read_text()
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "interrupted"
    assert not [p.cmdline() for p in family(nodes.folder) if "bwbench" in " ".join(p.cmdline())]
    assert not list((tmp_path / "results").glob(".seen-from-*"))
