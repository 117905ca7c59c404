"""The formulas of benchmarks/wire_bytes.py: those of all presets, near what the plan predicts, and the table's rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.method_names import PRESETS
from bwbench.experiment.plan.cell import build_plan
from bwbench.experiment.plan.sending import traffic_of

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import wire_bytes
from wire_bytes_parts import formulas
from wire_bytes_parts.comparison import FULL_FRAMES, compared, shown

CNN = [(16, 1, 3, 3), *[(16,)] * 3, (32, 16, 3, 3), *[(32,)] * 3, (128, 1568), (128,), (10, 128), (10,)]


def test_there_is_a_formula_for_every_preset_that_sends():
    assert set(formulas.METHODS) == set(PRESETS) - {"single", "no-communication"}
    assert formulas.ELEMENTS == 207_018


def test_the_plan_predicts_what_the_formulas_say(tmp_path):
    file = tmp_path / "wire_bytes.yaml"
    file.write_text(wire_bytes.experiment_of(list(formulas.METHODS)))
    cells = build_plan(load_experiment(file)).cells
    for (name, method), cell in zip(formulas.METHODS.items(), cells, strict=True):
        steps = cell.config.limit.samples / cell.config.global_batch
        assert steps == method.steps
        planned = traffic_of(cell.config, CNN).total_bytes * (steps - method.warm_up)
        rounds = method.exchanges if method.exchanges is not None else steps * 0.1 / 0.5  # 100 ms a step, 2 a second
        assert planned == pytest.approx(rounds * method.exchange.payload_bytes, rel=0.02), name


def test_a_message_is_wrapped_by_gloo_and_by_tcp():
    small = formulas.Exchange(1000, 1)
    assert small.wire_bytes == 1000 + 3 * 48 + 3 * 66
    large = formulas.Exchange(1448 * 10_000, 1)
    assert large.wire_bytes == pytest.approx(FULL_FRAMES * large.payload_bytes, rel=1e-4)


def test_places_take_some_more_than_their_entropy():
    assert 1.01 * 2070 < formulas.index_bytes(2070, 207_000) < 1.08 * 2070


def test_each_phase_is_compared_with_its_own_formula(tmp_path):
    method = formulas.Method(
        formulas.Exchange(1000.0, 4), 6, 4, warm_up=2, warm_up_exchange=formulas.Exchange(8000.0, 4)
    )
    folder = cell_folder(tmp_path, [2000] * 2 + [250] * 4)
    row = compared("local-sgd", method, folder, planned_bytes_per_step=1000)
    assert [part["phase"] for part in row["phases"]] == ["warm-up", "after warm-up"]
    assert [part["deviation"] for part in row["phases"]] == [0, 0]
    assert row["plan_deviation"] == 0 and row["ok"]
    assert "NOT" not in shown(row)


def test_what_misses_is_said(tmp_path):
    method = formulas.Method(formulas.Exchange(1000.0, 4), 6, 6)
    row = compared("ring", method, cell_folder(tmp_path, [265] * 6), planned_bytes_per_step=1060)
    assert row["deviation"] == pytest.approx(0.06) and not row["ok"]
    assert "NOT" in shown(row)


def cell_folder(folder: Path, sent_by_each: list[int]) -> Path:
    """A cell of four ranks that sent so much in each step, in messages of a quarter of that."""
    attempt = folder / "attempt-1"
    attempt.mkdir()
    for rank in range(4):
        events = [{"event": "step", "step": i + 1, "payload_bytes": sent} for i, sent in enumerate(sent_by_each)]
        (attempt / f"rank{rank}.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    payload = 4 * sum(sent_by_each)
    wire = sum(formulas.Exchange(4.0 * sent, 4).wire_bytes for sent in sent_by_each)
    frames = (wire - payload - 48 * 3 * 4 * len(sent_by_each)) // 66
    status = {"attempt": 1, "payload_bytes": payload, "steps": len(sent_by_each), "training_clock_s": 1.0}
    (folder / "status.json").write_text(json.dumps(status))
    link = {"bytes": wire + 660, "ack_bytes": 660, "frames": frames + 10, "ack_frames": 10, "drops": 0}
    (attempt / "link.json").write_text(json.dumps({"wire": link}))
    return folder
