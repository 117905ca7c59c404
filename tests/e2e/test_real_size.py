"""A model of shapes as a user meets it: cells that learn nothing, their times, whole and shrunk, and their pictures."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from bwbench.base.model_shapes import Layer, ModelShapes, to_json
from tests.e2e.program import run, status_of

STEP_S = 0.06
SIDE = 512
MODEL = ModelShapes("mine", tuple(Layer(f"fc{number}", ((SIDE, SIDE),), 1.0) for number in range(4)))
EXPERIMENT = """\
name: sizes
nodes: 2
link: {latency: 1 ms}
model: {shapes: mine.json}
batch_size: 16
compute: {step_time: 60 ms}
limit: {steps: 12}
"""


def cells(folder: Path, text: str, experiment: str = EXPERIMENT) -> dict[str, dict[str, Any]]:
    (folder / "mine.json").write_text(json.dumps(to_json(MODEL)))
    (folder / "sizes.yaml").write_text(experiment + text)
    done = run("run", "sizes.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run("verify", "results", cwd=folder).returncode == 0
    return {json.loads((cell / "cell.json").read_text())["slug"]: _record(cell) for cell in _folders(folder)}


def _folders(folder: Path) -> list[Path]:
    return sorted((folder / "results" / "sizes").glob("*-*/"))


def _record(cell: Path) -> dict[str, Any]:
    events = [json.loads(line) for line in (cell / "attempt-1" / "rank0.jsonl").read_text().splitlines()]
    steps = [event["duration_s"] for event in events if event["event"] == "step"]
    link = json.loads((cell / "attempt-1" / "link.json").read_text())
    return {"start": events[0], "steps": steps, "link": link, "step_s": statistics.median(steps)}


def test_a_shrunk_cell_takes_as_long_as_the_whole_one(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("{latency: 1 ms}", "{bandwidth: 100 Mbit/s, latency: 1 ms}")
    found = cells(tmp_path, "algorithm: ring\nmatrix:\n  shrink: [1, 4]\n", text)
    whole, shrunk = (found[f"ring-shrink{factor}-s0"] for factor in (1, 4))
    assert whole["start"]["num_parameters"] == 4 * SIDE**2 == 4 * shrunk["start"]["num_parameters"]
    assert whole["start"]["shrink"] is None and shrunk["start"]["shrink"] == shrunk["link"]["shrink"] == 4
    assert shrunk["link"]["requested"]["bandwidth"] == "100 Mbit/s"
    assert shrunk["link"]["applied"]["bandwidth_bps"] == pytest.approx(25e6)
    link_s = 4 * SIDE**2 * 4 * 8 / 100e6  # of a ring of two nodes
    assert link_s < whole["step_s"] < STEP_S + 1.15 * link_s
    assert shrunk["step_s"] == pytest.approx(whole["step_s"], rel=0.03)
    (folder,) = (tmp_path / "results" / "sizes").glob("ring-shrink4-*/")
    assert "shrunk    rates and payloads divided by 4" in run("show", str(folder), cwd=tmp_path).stdout


def test_throughput_against_bandwidth_is_drawn_and_no_accuracy_is_there(tmp_path: Path) -> None:
    text = "matrix:\n  link.bandwidth: [20 Mbit/s, 200 Mbit/s]\n  algorithm: [ddp, ring, local-sgd]\n"
    found = cells(tmp_path, text)
    assert found["ring-20Mbit-s0"]["step_s"] > 2 * found["ring-200Mbit-s0"]["step_s"]
    for status in status_of(tmp_path / "results").values():
        assert status["status"] == "done" and status["samples"] == 12 * 16 * 2
        assert status["metric"] is None and status["final_metric"] is None and status["replicas_identical"] is None
    drawn = run("plot", "results/sizes", "--figure", "throughput", "--out", "pictures", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stdout + drawn.stderr
    assert list((tmp_path / "pictures").glob("throughput*.png"))
    planned = json.loads(run("plan", "sizes.yaml", "--json", cwd=tmp_path).stdout)["cells"]
    assert all(cell["memory_bytes"] > 1e8 and cell["shrink"] == 1 for cell in planned)


def test_what_is_under_way_behind_the_last_step_counts_in_no_step(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("{latency: 1 ms}", "{bandwidth: 20 Mbit/s, latency: 1 ms}")
    matrix = "matrix: {algorithm: [single, {async: {sync_interval: 50 ms}}]}\n"
    cells(tmp_path, matrix, text)
    status = next(one for arm, one in status_of(tmp_path / "results").items() if arm.startswith("async"))
    assert status["steps_clock_s"] < 1.3 * 12 * STEP_S < 1.6 < status["training_clock_s"]  # a round takes 1.7 s
    table = json.loads(run("compare", "results/sizes", "--baseline", "single", "--json", cwd=tmp_path).stdout)
    (step_s,) = (row["step_s"] for row in table["rates"] if row["algorithm"].startswith("async"))
    assert step_s == pytest.approx(status["steps_clock_s"] / 12)


def test_steps_of_qadam_send_momenta_from_the_first_one_on(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("{latency: 1 ms}", "{bandwidth: 100 Mbit/s, latency: 1 ms}")
    cells(tmp_path, "algorithm: qadam\noptimizer: adam\n", text)  # its warm-up is 100 steps by default
    (cell,) = _folders(tmp_path)
    events = [json.loads(line) for line in (cell / "attempt-1" / "rank0.jsonl").read_text().splitlines()]
    sent = {event["payload_bytes"] for event in events if event["event"] == "step"}
    assert len(sent) == 1
    assert max(sent) < 0.3 * 4 * 4 * SIDE**2  # of a ring's bytes of two nodes, S
    starts = [event for event in events if event["event"] == "start"]
    assert [event["waits"] for event in starts] == [None]
