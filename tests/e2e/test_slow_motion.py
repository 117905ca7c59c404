"""Slow motion as a user meets it: a cell whose time is stretched has records in that time, and the machine's beside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.program import TINY, run, status_of

STEP_S = 0.04


def experiment(folder: Path, dilation: str) -> None:
    link = "link: {bandwidth: 20 Mbit/s, latency: 2 ms, outages: [{at: 0.3 s, duration: 0.2 s}]}"
    text = TINY.replace("link: {bandwidth: 100 Mbit/s, latency: 1 ms}", link)
    assert link in text
    (folder / "tiny.yaml").write_text(f"{text}algorithm: ring\ncompute: {{step_time: 40 ms}}\ndilation: {dilation}\n")


@pytest.mark.parametrize("dilation", [0.5, 3.0])
def test_a_stretched_cell_has_the_times_that_were_asked(tmp_path: Path, dilation: float) -> None:
    experiment(tmp_path, str(dilation))
    done = run("run", "tiny.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (status,) = status_of(tmp_path / "results").values()
    assert status["status"] == "done"
    (cell,) = (tmp_path / "results" / "tiny").glob("*-*/")
    assert json.loads((cell / "cell.json").read_text())["config"]["dilation"] == dilation

    link = json.loads((cell / "attempt-1" / "link.json").read_text())
    assert link["dilation"] == dilation
    assert link["requested"]["bandwidth"] == "20 Mbit/s"
    assert link["applied"]["bandwidth_bps"] == pytest.approx(20e6 / dilation)
    assert link["applied"]["latency_s"] == pytest.approx(0.002 * dilation)
    (pair, *_) = link["achieved_before"]["pairs"]
    assert pair["achieved_goodput_bps"] == pytest.approx(pair["asked_goodput_bps"], rel=0.05)
    assert pair["asked_goodput_bps"] < 20e6 / dilation

    events = [json.loads(line) for line in (cell / "attempt-1" / "rank0.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert all(step["duration_s"] > 0.9 * STEP_S for step in steps)
    longest_s = max(step["duration_s"] for step in steps)
    assert longest_s > 0.15  # the outage, in the training's time
    clock_s = status["training_clock_s"]
    assert clock_s >= STEP_S * len(steps)
    spent_s = clock_s * dilation + status["evaluation_s"] + status["overhead_s"]
    assert status["wall_s"] == pytest.approx(spent_s, abs=1e-3)
    assert run("verify", "results", cwd=tmp_path).returncode == 0


def test_a_plan_says_what_auto_is_and_what_it_costs(tmp_path: Path) -> None:
    experiment(tmp_path, "auto")
    text = (tmp_path / "tiny.yaml").read_text().replace("nodes: 2", "nodes: 32")
    (tmp_path / "tiny.yaml").write_text(text)
    plan = run("plan", "tiny.yaml", cwd=tmp_path)
    assert plan.returncode == 0 and "dilation: auto is " in plan.stdout + plan.stderr
    (slow,) = json.loads(run("plan", "tiny.yaml", "--json", cwd=tmp_path).stdout)["cells"]
    (tmp_path / "tiny.yaml").write_text(text.replace("dilation: auto", "dilation: 1"))
    (plain,) = json.loads(run("plan", "tiny.yaml", "--json", cwd=tmp_path).stdout)["cells"]
    assert slow["id"] != plain["id"]
    assert slow["predicted_training_s"] > 2 * plain["predicted_training_s"]
