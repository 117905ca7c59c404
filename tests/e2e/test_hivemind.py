"""hivemind averages on the shaped link, and its processes end with the worker, however that ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import TINY, family, run, start, status_of, wait_for_message

pytest.importorskip("hivemind", reason="the extra [hivemind] is not installed")
pytestmark = [pytest.mark.netns]

LONG = TINY.replace("samples: 1280", "samples: 2000000").replace("nodes: 2", "nodes: 3")
HIVEMIND = "algorithm: {hivemind: {period: 4}}\n"


def test_it_averages_over_the_shaped_link(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY.replace("nodes: 2", "nodes: 3") + HIVEMIND)
    result = run("run", "tiny.yaml", cwd=tmp_path, timeout_s=300)
    assert result.returncode == 0, result.stderr
    (link,) = [json.loads(file.read_text()) for file in tmp_path.rglob("link.json")]
    assert link["wire"]["payload_bytes"] > 0
    assert link["wire"]["bytes"] > link["wire"]["payload_bytes"]
    assert not family(tmp_path)


def test_a_killed_rank_takes_its_processes_along(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(LONG + HIVEMIND)
    process = start("run", "tiny.yaml", cwd=tmp_path)
    wait_for_message(" of training", 300, process, tmp_path)
    workers = [p for p in family(tmp_path) if "bwbench.training.loop.worker" in p.cmdline()]
    worker = min(workers, key=lambda p: p.create_time())
    worker.kill()
    assert process.wait(15) == 1
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "failed" and "was killed by SIGKILL" in status["reason"]
    assert not family(tmp_path)
