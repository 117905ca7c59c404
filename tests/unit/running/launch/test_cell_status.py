"""How a cell ended is recorded whatever its events look like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.experiment.config import CellConfig
from bwbench.experiment.config.resolve import resolve
from bwbench.experiment.plan.cell import Cell
from bwbench.records.schema import Event, LedgerParts, LinkRecord, Step, Wire
from bwbench.running.launch.attempt import (
    MOST_CONTROL_BYTES_A_STEP,
    MOST_CONTROL_BYTES_BESIDE,
    LaunchOutcome,
    Resumption,
    cell_status,
    longer_than_asked,
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


def config_of(compute: dict[str, object]) -> CellConfig:
    content = {"nodes": 2, "link": "unshaped", "model": "logistic", "dataset": "digits", "algorithm": "ring"}
    config = resolve({**content, "optimizer": {"sgd": {"lr": 0.1}}, "compute": compute}, (), Path("/")).config
    assert config is not None
    return config


def events_of(*computed_s: float) -> dict[int, list[Event]]:
    """A hundred steps of each rank, which compute for so long."""
    steps = range(1, 101)
    return {
        rank: [Step(step=n, samples=n, clock_s=n, duration_s=0.1, ledger=LedgerParts(compute_s=seconds)) for n in steps]
        for rank, seconds in enumerate(computed_s)
    }


DRAWN = {"mean": "60 ms", "spread": "30 %"}
SLOW = {"1": {"step_time": "120 ms"}}


@pytest.mark.parametrize(
    ("compute", "computed_s", "said"),
    [
        ({}, (9.0, 9.0), None),
        ({"step_time": "60 ms"}, (0.05, 0.05), None),
        ({"step_time": "60 ms"}, (0.07, 0.07), "a step computes for 0.07 s, longer than the declared step_time"),
        ({"step_time": "60 ms"}, (0.05, 0.07), "0.07 s on node 1, longer than the declared step_time"),
        ({"step_time": "60 ms", "overrides": SLOW}, (0.05, 0.11), None),
        ({"step_time": "60 ms", "overrides": SLOW}, (0.07, 0.11), "on node 0, longer than"),
        ({"step_time": "60 ms", "overrides": SLOW}, (0.05, 0.13), "on node 1, longer than"),
        ({"step_time": DRAWN}, (0.03, 0.03), None),
        ({"step_time": DRAWN}, (0.05, 0.05), "% of the steps compute for longer than their step_time, 60 ms ± 30 %"),
        ({"step_time": "1 s", "overrides": {"1": {"step_time": DRAWN}}}, (0.05, 0.05), "on node 1, 60 ms ± 30 %"),
    ],
)
def test_steps_are_judged_by_what_was_asked_of_their_node(
    compute: dict[str, object], computed_s: tuple[float, float], said: str | None
) -> None:
    found = longer_than_asked(config_of(compute), events_of(*computed_s))
    assert found is None if said is None else found is not None and said in found


def test_a_trace_is_judged_at_the_second_in_which_a_step_begins(tmp_path: Path) -> None:
    file = tmp_path / "hot.csv"
    file.write_text("time_s,step_time_ms\n0,40\n89.95,100\n")  # the last eleven of a hundred steps begin in the heat
    config = config_of({"step_time": {"trace": str(file)}})
    assert longer_than_asked(config, events_of(0.03, 0.03)) is None
    found = longer_than_asked(config, events_of(0.05, 0.05))
    assert found is not None and found.startswith("90 % of the steps")


def test_a_trace_that_has_gone_meanwhile_leaves_a_cell_that_is_no_result(tmp_path: Path) -> None:
    file, attempt = tmp_path / "hot.csv", tmp_path / "attempt-1"
    file.write_text("time_s,step_time_ms\n0,40\n")
    cell = Cell("0123456789", "slug", "study", "ring", 0, config_of({"step_time": {"trace": str(file)}}))
    attempt.mkdir()
    lines = [json.dumps(step.to_json()) for step in events_of(0.03)[0]]
    (attempt / "rank0.jsonl").write_text("\n".join(lines) + "\n")
    file.unlink()
    status = cell_status(cell, attempt, LaunchOutcome("done", "samples"), LinkRecord(), Resumption())
    assert status.status == "invalid" and status.steps == 100
    assert status.reason is not None and "hot.csv" in status.reason
