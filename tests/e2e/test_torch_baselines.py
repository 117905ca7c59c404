"""Torch's own hooks and averager train on gloo, on the data network, and send what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import TINY, run, status_of

pytestmark = [pytest.mark.netns]


def test_hooks_and_averager_send_what_the_plan_says(tmp_path: Path) -> None:
    model = "model: {mlp: {hidden: [256]}}"
    text = TINY.replace("nodes: 2", "nodes: 3").replace("model: logistic", model).replace("every: 640", "every: 960")
    arms = "[ddp, ddp-fp16, {ddp-powersgd: {bucket: 1 kB}}, {ddp-post-local-sgd: {warmup: 5, period: 4}}]"
    (tmp_path / "tiny.yaml").write_text(text.replace("1280", "2400") + f"matrix: {{algorithm: {arms}}}\n")
    result = run("run", "tiny.yaml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    statuses = {arm.partition("(")[0]: status for arm, status in status_of(tmp_path / "results").items()}
    assert all(status["replicas_identical"] for arm, status in statuses.items() if arm != "ddp-post-local-sgd")
    wire = {}
    for file in tmp_path.rglob("link.json"):
        wire[json.loads((file.parents[1] / "cell.json").read_text())["arm"].partition("(")[0]] = json.loads(
            file.read_text()
        )["wire"]
    for arm in ("ddp", "ddp-fp16", "ddp-post-local-sgd"):
        assert 1.04 < wire[arm]["ratio"] < 1.2, (arm, wire[arm])
    size = 4 * (64 * 256 + 256 + 256 * 10 + 10)
    assert wire["ddp"]["payload_bytes"] / wire["ddp"]["steps"] == pytest.approx(3 * 4 / 3 * size, rel=0.01)
    assert wire["ddp-fp16"]["bytes"] == pytest.approx(wire["ddp"]["bytes"] / 2, rel=0.1)
    assert wire["ddp-powersgd"]["bytes"] < wire["ddp"]["bytes"] / 4
    # 25 steps: 5 of the warm-up, then the first and every fourth of the other 20
    post_local = wire["ddp-post-local-sgd"]
    assert post_local["payload_bytes"] == pytest.approx((5 + 5) * 3 * 4 / 3 * size, rel=0.01)
