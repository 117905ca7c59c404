"""Cells with ``compute: {device: cuda}``: workers with a link between them, and virtual nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.program import run

CELLS = """
name: gpu
nodes: 4
link: {link}
model: mlp
dataset: digits
batch_size: 32
optimizer: {{sgd: {{lr: 0.05, momentum: 0.9}}}}
evaluate: {{every: 1280 samples}}
target: {{accuracy: 0.999}}
limit: {{samples: 5120}}
matrix:
  algorithm: [{arms}]
  compute.device: [cpu, cuda]
{more}
"""


def trained(folder: Path, arms: str, link: str, more: str = "") -> dict[tuple[str, str], tuple[dict[str, Any], Path]]:
    """status.json and attempt folder by arm and device."""
    (folder / "gpu.yaml").write_text(CELLS.format(arms=arms, link=link, more=more))
    result = run("run", "gpu.yaml", cwd=folder, timeout_s=150)
    found = {}
    for status in (folder / "results").glob("*/*/status.json"):
        cell = json.loads((status.parent / "cell.json").read_text())
        device = cell["config"]["compute"].get("device", "cpu")
        name = f"{cell['config']['algorithm']['name']} {cell['config']['collective']['name']}"
        found[name, device] = json.loads(status.read_text()), status.parent / "attempt-1"
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return found


def check(found: dict[tuple[str, str], tuple[dict[str, Any], Path]], *, timed: bool) -> None:
    assert {device for _, device in found} == {"cpu", "cuda"}
    for (name, device), (status, attempt) in found.items():
        assert status["status"] == "done", status
        start = json.loads((attempt / "rank0.jsonl").read_text().splitlines()[0])
        assert start["event"] == "start"
        if device == "cpu":
            assert "device" not in start or start["device"] is None
            continue
        assert start["device"] == torch.cuda.get_device_name(0)
        assert not timed or status["ledger_error"] <= 0.02
        if kept := os.environ.get("BWBENCH_GPU_CELLS"):  # what a machine has shown, for docs/gpus.md
            said = {key: start[key] for key in ("device", "backend", "plain_backward_s") if key in start}
            shown = {"name": name, **said, "step_median_s": status.get("step_median_s"), "loss": last_loss(attempt)}
            with open(kept, "a") as file:
                file.write(json.dumps(shown | {"loss_on_cpu": last_loss(found[name, "cpu"][1])}) + "\n")
        own, other = last_loss(attempt), last_loss(found[name, "cpu"][1])
        assert own == pytest.approx(other, abs=0.1), f"{name}: loss {own} on the GPU, {other} on the processor"


def last_loss(attempt: Path) -> float:
    events = [json.loads(line) for line in (attempt / "rank0.jsonl").read_text().splitlines()]
    return float([event for event in events if event["event"] == "eval"][-1]["mean"]["loss"])


def test_virtual_nodes_share_the_gpu(tmp_path: Path) -> None:
    check(trained(tmp_path, "ddp, ring, {diloco: {period: 8}}", "unshaped", "compute: {virtual: true}"), timed=False)


@pytest.mark.netns
def test_workers_with_a_link_share_the_gpu(tmp_path: Path) -> None:
    check(trained(tmp_path, "ddp, ring-fp16", "{bandwidth: 100 Mbit/s, latency: 1 ms}"), timed=True)
