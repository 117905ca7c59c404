"""How a cell ended is recorded whatever its events look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.plan.cell import Cell
from bwbench.records.schema import LinkRecord, Wire
from bwbench.running.launch.attempt import (
    MOST_CONTROL_BYTES_A_STEP,
    MOST_CONTROL_BYTES_BESIDE,
    LaunchOutcome,
    Resumption,
    cell_status,
    went_round,
)


@pytest.mark.parametrize("ended, recorded", [("done", "failed"), ("interrupted", "interrupted"), ("failed", "failed")])
def test_a_broken_line_among_the_events_ends_nothing_else(tmp_path: Path, ended: str, recorded: str) -> None:
    content = {"nodes": 2, "link": "unshaped", "model": "logistic", "dataset": "digits", "limit": {"samples": 640}}
    config = resolve({**content, "algorithm": "ring", "optimizer": {"sgd": {"lr": 0.1}}}, (), tmp_path).config
    assert config is not None
    attempt = tmp_path / "attempt-1"
    attempt.mkdir()
    (attempt / "rank0.jsonl").write_text('{"event": "st\n{"event": "end"}\n')
    cell = Cell("0123456789", "slug", "study", "ring", 0, config)
    status = cell_status(cell, attempt, LaunchOutcome(ended, "why"), LinkRecord(), Resumption())
    assert status.status == recorded
    unknown = (status.steps, status.samples, status.training_clock_s, status.overhead_s, status.payload_bytes)
    assert unknown == (None,) * 5, "a run of which nothing can be read is not one of nothing"
    assert status.reason is not None and status.reason.startswith("why; ") and "rank0.jsonl" in status.reason


def test_what_goes_round_the_link_is_allowed_by_node_and_step() -> None:
    most = 2 * (MOST_CONTROL_BYTES_BESIDE + 10 * MOST_CONTROL_BYTES_A_STEP)
    assert went_round(Wire(steps=10, control_bytes=most), 2) is None
    reason = went_round(Wire(steps=10, control_bytes=most + 1), 2)
    assert reason is not None and f"{most + 1} B" in reason and "control path" in reason


@pytest.mark.parametrize("wire", [None, Wire(steps=10), Wire()])
def test_what_was_not_counted_is_not_judged(wire: Wire | None) -> None:
    assert went_round(wire, 2) is None
