"""status.json's numbers from the events of the ranks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from bwbench.records.schema import CurvePoint, Event, Step, Wire, event_of
from bwbench.results.analysis.targets import target_of
from bwbench.results.analysis.trial import curve_of, summarise

CELL: dict[str, Any] = {"target": {"metric": "accuracy", "value": 0.9}}


def step(number: int, clock_s: float, payload: int = 100) -> Step:
    ledger = {"compute_s": 0.4, "codec_s": 0.1, "exposed_s": 0.3, "optimizer_s": 0.1, "pad_s": 0.0, "other_s": 0.1}
    return event_of({"event": "step", "step": number, "samples": 10 * number, "clock_s": clock_s, "mono_s": clock_s,
            "ready_mono_s": clock_s, "duration_s": 1.0, "loss": 1.0, "lr": 0.1, "payload_bytes": payload,
            "ledger": ledger})  # fmt: skip


def evaluation(number: int, clock_s: float, accuracy: float, split: str = "validation") -> Event:
    return event_of({"event": "eval", "split": split, "step": number, "samples": 10 * number, "clock_s": clock_s,
            "local": {"accuracy": 0.0}, "mean": {"accuracy": accuracy}, "target_met": accuracy >= 0.9,
            "duration_s": 0.5})  # fmt: skip


def end(clock_s: float, payload: int, digest: str = "aa", status: str = "done") -> Event:
    return event_of({"event": "end", "status": status, "reason": "target", "step": 4, "samples": 40, "clock_s": clock_s,
            "payload_bytes": payload, "replica_sha256": digest, "evaluation_s": 1.5})  # fmt: skip


def two_ranks(accuracies: tuple[float, ...] = (0.1, 0.5, 0.95, 0.97)) -> dict[int, list[Event]]:
    """Four steps, an evaluation after each; rank 1 is a tenth of a second behind."""
    events: dict[int, list[Event]] = {}
    for rank, late_s in ((0, 0.0), (1, 0.1)):
        events[rank] = [evaluation(0, 0.0, 0.1)]
        for number, accuracy in enumerate(accuracies, 1):
            events[rank] += [step(number, number + late_s), evaluation(number, number + late_s, accuracy)]
        events[rank] += [evaluation(4, 4.0 + late_s, 0.93, "test"), end(4.0 + late_s, 420)]
    return events


def test_the_curve_has_the_test_split_where_it_was_looked_at() -> None:
    events = two_ranks()
    assert [point.test for point in curve_of(events)] == [{"accuracy": None}] * 4 + [{"accuracy": 0.93}]
    last = curve_of(events)[-1]
    assert last.to_json() == {
        "step": 4, "accuracy": 0.97, "test_accuracy": 0.93, "samples": 40, "clock_s": 4.1, "target_met": True,
        "payload_bytes": 800,
    }  # fmt: skip
    assert CurvePoint.model_validate(last.to_json()) == last
    untested = {
        rank: [event for event in found if getattr(event, "split", "") != "test"] for rank, found in events.items()
    }
    assert all(point.test == {} and "test_accuracy" not in point.to_json() for point in curve_of(untested))


def test_of_a_run_that_broke_off_nothing_is_known_of_the_test_split_at_its_end() -> None:
    events = two_ranks()
    looked_at = {rank: [*found[:5], evaluation(2, 2.0, 0.6, "test"), *found[5:-2]] for rank, found in events.items()}
    assert summarise(events, CELL, LINK).test_metric == 0.93
    assert summarise(looked_at, CELL, LINK).test_metric is None


LINK = Wire(bytes=1100, ack_bytes=100)


def test_time_to_target_is_the_slowest_ranks_clock_at_the_first_evaluation_that_meets_it() -> None:
    summary = summarise(two_ranks(), CELL, LINK)
    assert summary.time_to_target_s == pytest.approx(3.1)
    assert summary.samples_to_target == 30
    assert summary.censored_at_s is None


def test_bytes_to_target_are_the_payload_until_then_and_the_wire_in_proportion() -> None:
    summary = summarise(two_ranks(), CELL, LINK)
    assert summary.payload_bytes == 840  # the ends also know what left after the last step
    assert summary.payload_bytes_to_target == 2 * 3 * 100
    assert summary.wire_bytes == 1000  # without acknowledgements
    assert summary.wire_bytes_to_target == round(1000 * 600 / 840)


def test_metrics_clock_and_replicas() -> None:
    summary = summarise(two_ranks(), CELL, LINK)
    assert (summary.metric, summary.final_metric, summary.test_metric) == ("accuracy", 0.97, 0.93)
    assert (summary.steps, summary.samples) == (4, 40)
    assert (summary.training_clock_s, summary.evaluation_s) == (pytest.approx(4.1), 1.5)
    assert summary.replicas_identical is True
    assert summary.ledger_error == pytest.approx(0.0, abs=1e-9)
    assert (summary.compute_median_s, summary.step_median_s) == (0.4, 1.0)


def test_a_target_not_reached_is_censored_at_the_end_of_training() -> None:
    summary = summarise(two_ranks((0.1, 0.2, 0.3, 0.4)), CELL, LINK)
    assert summary.time_to_target_s is None
    assert summary.censored_at_s == pytest.approx(4.1)
    assert summary.samples_to_target is None and summary.wire_bytes_to_target is None


def test_a_run_cut_short_is_not_censored() -> None:
    events = two_ranks((0.1, 0.2, 0.3, 0.4))
    events[1] = events[1][:4]
    summary = summarise(events, CELL, LINK)
    assert summary.censored_at_s is None
    assert summary.replicas_identical is None
    assert summary.training_clock_s == pytest.approx(4.0)


def test_a_diverged_run_is_not_censored_either() -> None:
    events = two_ranks((0.1, 0.2, 0.3, 0.4))
    events[0][-1] = end(4.0, 420, status="diverged")
    assert summarise(events, CELL, LINK).censored_at_s is None


def test_without_target_there_is_no_time_to_it() -> None:
    for target in (None, {}):
        summary = summarise(two_ranks(), {"target": target}, LINK)
        assert summary.time_to_target_s is None and summary.censored_at_s is None
        assert summary.metric == "accuracy"


def test_replicas_that_differ_are_said() -> None:
    events = two_ranks()
    events[1][-1] = end(4.1, 420, digest="bb")
    assert summarise(events, CELL, LINK).replicas_identical is False


def test_nothing_recorded_gives_an_empty_summary() -> None:
    for events in ({}, {0: [], 1: []}):
        summary = summarise(events, CELL, None)
        assert summary.steps == 0 and summary.time_to_target_s is None and summary.wire_bytes is None
        assert summary.censored_at_s is None and summary.ledger_error is None


def test_an_arm_that_sends_nothing() -> None:
    events = {0: [evaluation(0, 0.0, 0.1), step(1, 1.0, payload=0), evaluation(1, 1.0, 0.95), end(1.0, 0)]}
    summary = summarise(events, CELL, Wire(bytes=0, ack_bytes=0))
    assert (summary.payload_bytes_to_target, summary.wire_bytes_to_target) == (0, 0)


def test_both_spellings_of_a_target() -> None:
    assert target_of({"target": {"accuracy": 0.95}}) == ("accuracy", 0.95)
    assert target_of({"target": {"metric": "loss", "value": 1.5}}) == ("loss", 1.5)
    assert target_of({}) is None


def test_curve_has_one_point_an_evaluation_with_the_slowest_clock() -> None:
    curve = curve_of(two_ranks())
    assert [point.step for point in curve] == [0, 1, 2, 3, 4]
    assert curve[3].clock_s == pytest.approx(3.1) and curve[3].target_met is True
    assert curve[0].metrics["accuracy"] == 0.1
    assert [point.payload_bytes for point in curve] == [0, 200, 400, 600, 800]


def test_the_runner_gets_it_without_pandas_and_torch() -> None:
    code = (
        "import sys, bwbench.results.analysis.trial\n"
        "import bwbench.results.analysis.cells, bwbench.results.analysis.statistics\n"
        "heavy = {'pandas', 'numpy', 'matplotlib', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_steps_that_wait_for_nobody_end_before_what_is_under_way() -> None:
    def steps_clock_s(**start: Any) -> float | None:
        events = {
            rank: [event_of({"event": "start", **start}), step(4, 4.0 + 0.1 * rank), end(9.0, 100)] for rank in (0, 1)
        }
        return summarise(events, CELL, None).steps_clock_s

    assert steps_clock_s() is None
    assert steps_clock_s(waits=False) == 4.1
