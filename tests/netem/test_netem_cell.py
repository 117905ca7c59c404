"""One training cell on a real netem link, from YAML to ``done``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.netem.nodes import outside

# The user-mode kernel has one processor, and importing torch takes it a quarter of a minute, for each worker.
LIMIT_S = 360
# A machine that does other work at the same time can spoil the probe's measurement: the program says so (invalid).
TRIES = 2
pytestmark = [pytest.mark.netem, pytest.mark.netns, pytest.mark.timeout(LIMIT_S + 10)]

# A long link with a queue of 0.25 s asks little of a machine: a delay of the whole kernel hardly shows on it.
EXPERIMENT = """
name: netem
nodes: 2
link: {bandwidth: 8 Mbit/s, latency: 20 ms, queue: 256 kB, backend: netem}
model: mlp
dataset: digits
batch_size: 32
algorithm: ring
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
evaluate: {every: 640 samples}
target: {accuracy: 0.5}
limit: {samples: 2560}
"""


def test_a_cell_trains_over_netem_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "netem.yaml").write_text(EXPERIMENT)
    before = outside()
    for _ in range(TRIES):
        result = subprocess.run(
            [sys.executable, "-m", "bwbench.cli.main", "run", "netem.yaml", "--retry", "invalid"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=LIMIT_S / TRIES,
        )
        cells = [path.parent for path in tmp_path.glob("results/netem/*/status.json")]
        assert len(cells) == 1, result.stderr
        status = json.loads((cells[0] / "status.json").read_text())
        attempt = cells[0] / f"attempt-{status['attempt']}"
        if status["status"] != "invalid":
            break
    logs = {path.name: path.read_text()[-2000:] for path in attempt.glob("rank*.log")}
    assert result.returncode == 0, (result.stdout, result.stderr, logs)
    assert status["status"] == "done", status
    assert status["time_to_target_s"] is not None, status
    link = json.loads((attempt / "link.json").read_text())
    assert link["backend"] == "netem"
    assert link["applied"]["qdiscs"][0]["up"]["rate_bytes_per_s"] == 1_000_000
    assert link["achieved_before"]["verdict"] == link["achieved_after"]["verdict"] == "ok"
    for pair in link["achieved_before"]["pairs"]:
        assert pair["achieved_goodput_bps"] == pytest.approx(pair["asked_goodput_bps"], rel=0.05)
    # Payload, the headers of full frames (1514/1448), and what small messages add.
    assert 1.0 < link["wire"]["ratio"] < 1.15, link["wire"]
    assert outside() == before
