"""Metric at equal samples, at equal time and at the end, on both splits: of runs that went on, up to where all came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.records import CellFolder, iter_cells
from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.cell_arrival import CURVE, at_target
from bwbench.results.analysis.equal_footing import equal_footing
from tests.fixtures_records import Study, write_study


def arms(folder: Path, **changes: object) -> dict[str, list[CellFolder]]:
    """Three repeats of two arms; statuses as ``changes`` say."""
    found: dict[str, list[CellFolder]] = {}
    for path in write_study(folder, Study(arms=("ring", "threshold"), limit_s=3.0)):
        status = json.loads((path / "status.json").read_text())
        (path / "status.json").write_text(json.dumps({**status, **changes}))
    for cell in iter_cells(folder):
        found.setdefault(str(cell.cell.arm), []).append(cell)
    return found


def test_all_arms_stand_at_what_the_shortest_run_came_to(tmp_path: Path) -> None:
    found = equal_footing(arms(tmp_path, reason="time", test_metric=0.5))
    ring, threshold = found["ring"], found["threshold"]
    assert ring.samples == threshold.samples and ring.clock_s == threshold.clock_s and ring.metric == "accuracy"
    slower = min(found.values(), key=lambda one: one.at_end.value)
    for one in found.values():
        assert 0.0 < one.at_samples.value <= one.at_end.value <= 1.0 and one.at_end.n == 3
        assert one.at_time.low is not None and one.at_time.low <= one.at_time.value
        assert one.test is not None and (one.test.value, one.test.low) == (0.5, 0.5)
    assert slower.at_time.value <= max(one.at_time.value for one in found.values())


def test_no_interval_goes_beyond_what_a_metric_can_be(tmp_path: Path) -> None:
    """Student's t of two repeats that lie apart reaches far: an accuracy of 0.76 (0.44 to 1.09) cannot be."""
    two = {name: cells[:2] for name, cells in arms(tmp_path, reason="time").items()}
    for cells in two.values():
        for cell, value in zip(cells, (0.7, 0.99), strict=True):
            status = json.loads((cell.path / "status.json").read_text())
            (cell.path / "status.json").write_text(json.dumps({**status, "test_metric": value}))
    two = {name: [CellFolder(cell.path) for cell in cells] for name, cells in two.items()}
    for one in equal_footing(two).values():
        assert one.test is not None and one.test.value == pytest.approx(0.845)
        assert (one.test.low, one.test.high) == (0.0, 1.0)


def test_what_ended_at_its_target_says_nothing_of_later(tmp_path: Path) -> None:
    assert equal_footing(arms(tmp_path, reason="target")) == {}


def test_one_arm_alone_is_compared_with_nobody(tmp_path: Path) -> None:
    only = arms(tmp_path, reason="time")
    assert equal_footing({"ring": only["ring"]}) == {}


@pytest.mark.parametrize("test_metric", [None, 0.9])
def test_test_is_known_of_all_repeats_or_not_said(tmp_path: Path, test_metric: float | None) -> None:
    found = equal_footing(arms(tmp_path, reason="time", test_metric=test_metric))
    assert (found["ring"].test is None) == (test_metric is None)


def curve(*points: tuple[int, float, float, float | None]) -> list[CurvePoint]:
    """Of (samples, seconds, accuracy, accuracy on the test split)."""
    return [
        CurvePoint(
            step=samples // 100,
            metrics={"accuracy": accuracy, "loss": 1 - accuracy},
            test={"accuracy": test, "loss": None if test is None else 2 - test},
            samples=samples,
            clock_s=clock_s,
        )
        for samples, clock_s, accuracy, test in points
    ]


FAST = [(0, 0.0, 0.1, 0.1), (1000, 10.0, 0.5, 0.4), (2000, 20.0, 0.7, 0.6), (3000, 30.0, 0.8, 0.7)]
SLOW = [(0, 0.0, 0.1, 0.1), (1000, 20.0, 0.4, 0.3), (2500, 50.0, 0.7, 0.5)]


def hand_made(folder: Path, *slow: tuple[int, float, float, float | None]) -> dict[str, list[CellFolder]]:
    """Ring has the fast curve in all repeats, threshold ``slow`` in the last one, else the slow one."""
    found = arms(folder, reason="time", test_metric=None)
    for name, cells in found.items():
        for cell in cells:
            cell.made[CURVE] = curve(*(FAST if name == "ring" else SLOW))
    found["threshold"][-1].made[CURVE] = curve(*(slow or SLOW))
    return found


def test_both_splits_stand_at_the_same_places_by_hand(tmp_path: Path) -> None:
    """All came to 2500 samples, which threshold ends at, and to 30 s, which ring does."""
    found = equal_footing(hand_made(tmp_path))
    ring, threshold = found["ring"], found["threshold"]
    assert (ring.samples, ring.clock_s) == (threshold.samples, threshold.clock_s) == (2500.0, 30.0)
    assert ring.test_at_samples is not None and ring.test_at_time is not None
    assert threshold.test_at_samples is not None and threshold.test_at_time is not None
    assert ring.at_samples.value == pytest.approx(0.75) and ring.test_at_samples.value == pytest.approx(0.65)
    assert ring.at_time.value == ring.at_end.value == pytest.approx(0.8) and ring.test_at_time.value == pytest.approx(
        0.7
    )
    assert threshold.at_samples.value == pytest.approx(0.7) and threshold.test_at_samples.value == pytest.approx(0.5)
    assert threshold.at_time.value == pytest.approx(0.5)  # a third of the way from 0.4 to 0.7
    assert threshold.test_at_time.value == pytest.approx(0.3 + 0.2 / 3)
    assert threshold.test_at_time.n == 3 and threshold.test_at_time.low is not None


def test_of_another_metric_than_the_recorded_one_the_curve_has_all(tmp_path: Path) -> None:
    cells = {name: at_target(of_arm, ("loss", 0.4)) for name, of_arm in hand_made(tmp_path).items()}
    ring = equal_footing(cells)["ring"]
    assert ring.metric == "loss" and ring.test is not None and ring.test_at_samples is not None
    assert ring.test.value == pytest.approx(1.3) and ring.test_at_samples.value == pytest.approx(1.35)


def test_what_one_run_does_not_know_of_the_test_split_is_not_made_up(tmp_path: Path) -> None:
    """At 30 s it lies between an evaluation that was looked at and one that was not; at its end it was."""
    gap = [*SLOW[:1], (1000, 20.0, 0.4, None), *SLOW[2:]]
    found = equal_footing(hand_made(tmp_path, *gap))
    threshold = found["threshold"]
    assert threshold.test_at_time is None and threshold.at_time.value == pytest.approx(0.5)
    assert threshold.test_at_samples is not None and threshold.test_at_samples.value == pytest.approx(0.5)
    assert found["ring"].test_at_time is not None
