"""Predictions of whole cells, and what finished cells change about them; by records that were made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.experiment.plan import PlannedCell, assess, foresee
from bwbench.experiment.plan.calibration import Calibration, Fit, Forecast, MeasuredSteps, Prediction, fitted
from bwbench.records.schema import ComposedFrom
from tests.unit.experiment.plan.records import STUDY, finished, of, planned_cells


@pytest.fixture
def study(tmp_path, monkeypatch):
    def make(*overrides: str, arms: str = "ring, local-sgd"):
        text = STUDY.replace("ring, local-sgd", arms)
        return planned_cells(tmp_path, monkeypatch, *overrides, text=text)

    return make


def test_before_any_cell_has_finished_the_estimate_stands(study) -> None:
    cells, estimates = study()
    cell = of(cells, "ring", "10 Mbit/s")
    estimate, found = estimates[cell.id], Calibration(estimates).predict(cell)
    assert found.training_s == pytest.approx(estimate.predicted_s) and found.steps == estimate.steps == 200
    # Every ten steps, at the begin, and on the test split; two nodes on two processors share the samples.
    assert found.evaluation_s == pytest.approx(21 * 0.05 + 0.1)
    assert found.overhead_s == estimate.overhead_s and 4 < found.overhead_s < 12
    assert found.total_s == pytest.approx(found.overhead_s + found.training_s + found.evaluation_s)
    assert found.num_cells == 0 and not found.to_target and found.may_end_sooner
    assert Calibration({}).predict(cell) == Prediction()


def test_a_machine_of_another_speed_is_learnt_from_one_cell(study) -> None:
    cells, estimates = study()
    known = Calibration(estimates)
    seen = of(cells, "ring", "10 Mbit/s")
    twice = {"computing": 2.0, "evaluating": 2.0, "starting": 2.0}
    status = finished(seen, estimates[seen.id], **twice)
    known.note(seen, status)
    assert known.predict(seen).total_s == pytest.approx(status.wall_s)
    for arm in ("ring", "local-sgd"):
        for bandwidth in ("1 Mbit/s", "100 Mbit/s"):
            cell = of(cells, arm, bandwidth, repeat=1)
            expected = finished(cell, estimates[cell.id], **twice)
            found = known.predict(cell)
            assert found.total_s == pytest.approx(expected.wall_s, rel=0.01) and found.num_cells == 1
            assert found.evaluation_s == pytest.approx(expected.evaluation_s)


def test_what_sending_costs_an_arm_holds_on_other_links_and_for_it_alone(study) -> None:
    cells, estimates = study()
    known = Calibration(estimates)
    for arm, sending in (("ring", 1.5), ("local-sgd", 1.0)):
        for bandwidth in ("1 Mbit/s", "10 Mbit/s"):
            cell = of(cells, arm, bandwidth)
            known.note(cell, finished(cell, estimates[cell.id], sending=sending))
    for arm, sending in (("ring", 1.5), ("local-sgd", 1.0)):
        cell = of(cells, arm, "100 Mbit/s")
        expected = finished(cell, estimates[cell.id], sending=sending)
        assert known.predict(cell).training_s == pytest.approx(expected.training_clock_s, rel=0.03)


def test_on_a_link_that_it_has_run_on_an_arm_takes_what_it_took_there(study) -> None:
    cells, estimates = study()
    known = Calibration(estimates)
    for bandwidth, sending in (("1 Mbit/s", 1.0), ("10 Mbit/s", 1.1), ("100 Mbit/s", 4.0)):
        cell = of(cells, "ring", bandwidth)
        known.note(cell, finished(cell, estimates[cell.id], sending=sending))
    repeat = of(cells, "ring", "100 Mbit/s", repeat=1)
    expected = finished(repeat, estimates[repeat.id], sending=4.0)
    assert known.predict(repeat).training_s == pytest.approx(expected.training_clock_s)
    assert known.predict(repeat, steps=50).training_s == pytest.approx(expected.training_clock_s / 4)


def test_a_declared_step_time_hides_how_fast_the_machine_is(study) -> None:
    cells, estimates = study("compute.step_time=100 ms")
    known = Calibration(estimates)
    seen, other = of(cells, "ring", "100 Mbit/s"), of(cells, "local-sgd", "100 Mbit/s")
    known.note(seen, finished(seen, estimates[seen.id], computing=2.0))
    assert known.predict(other).training_s == pytest.approx(estimates[other.id].predicted_s, rel=0.01)


def test_one_disturbed_repeat_changes_little(study) -> None:
    cells, estimates = study("repeats=4")
    known = Calibration(estimates)
    for repeat, sending in ((0, 1.0), (1, 1.0), (2, 20.0)):
        cell = of(cells, "ring", "10 Mbit/s", repeat)
        known.note(cell, finished(cell, estimates[cell.id], sending=sending))
    last = of(cells, "ring", "10 Mbit/s", 3)
    assert known.predict(last).training_s == pytest.approx(estimates[last.id].predicted_s)


def test_steps_to_the_target_come_from_repeats_on_any_link(study) -> None:
    cells, estimates = study()
    known = Calibration(estimates)
    seen, repeat, other = (
        of(cells, *key) for key in (("ring", "1 Mbit/s"), ("ring", "10 Mbit/s", 1), ("local-sgd", "1 Mbit/s"))
    )
    known.note(seen, finished(seen, estimates[seen.id], steps=60, samples_to_target=60 * 64))
    found = known.predict(repeat)
    assert found.to_target and found.steps == 60 and not found.may_end_sooner
    assert found.training_s == pytest.approx(estimates[repeat.id].step_s * 60)
    assert known.predict(other).steps == 200 and not known.predict(other).to_target
    censored = of(cells, "ring", "10 Mbit/s")
    known.note(censored, finished(censored, estimates[censored.id]))
    assert known.predict(repeat).steps == 200  # half of them did not get there


def test_until_the_limit_where_training_goes_on_behind_the_target(study) -> None:
    cells, estimates = study("stop=limit")
    known = Calibration(estimates)
    seen = of(cells, "ring", "1 Mbit/s")
    known.note(seen, finished(seen, estimates[seen.id], samples_to_target=60 * 64))
    assert known.predict(of(cells, "ring", "10 Mbit/s")).steps == 200


@pytest.mark.parametrize("stop", ["limit", "target"])
def test_both_ways_to_end_are_predicted_whatever_is_asked(study, stop: str) -> None:
    cells, estimates = study(f"stop={stop}")
    forecast = Forecast(estimates)
    seen, other = of(cells, "ring", "1 Mbit/s"), of(cells, "ring", "10 Mbit/s")
    item = PlannedCell(other, Path("results/x"), "missing", runs=True, why="not run yet")
    ends = forecast.predict(item, "target"), forecast.predict(item, "limit")
    assert ends[0].total_s == ends[1].total_s  # nobody knows where the target is
    assert [one.may_end_sooner for one in ends] == [True, False]
    forecast.calibration.note(seen, finished(seen, estimates[seen.id], samples_to_target=60 * 64))
    assert (forecast.predict(item, "target").steps, forecast.predict(item, "limit").steps) == (60, 200)
    assert forecast.predict(item) == forecast.predict(item, stop)


def test_a_limit_of_time_holds_whatever_was_measured(study) -> None:
    cells, estimates = study("limit.time=3 s")
    known = Calibration(estimates)
    slow, seen = of(cells, "ring", "1 Mbit/s"), of(cells, "ring", "100 Mbit/s")
    before = known.predict(slow)
    assert before.training_s == 3.0 and before.steps == pytest.approx(3.0 / estimates[slow.id].step_s, abs=1.01)
    assert before.evaluation_s < known.predict(seen).evaluation_s  # fewer, as it does not get as far
    known.note(seen, finished(seen, estimates[seen.id], computing=3.0, steps=40))
    assert known.predict(slow).training_s == 3.0


@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed"},
        {"composed": ComposedFrom(convergence="a", timing="b")},
        {"training_clock_s": 0.0},
        {"steps": 0},
        {"wall_s": None},
    ],
)
def test_cells_that_say_nothing_are_left_out(study, change) -> None:
    cells, estimates = study()
    known = Calibration(estimates)
    known.note(cells[0], finished(cells[0], estimates[cells[0].id], sending=9.0, **change))
    assert known.num_cells == 0 and known.predict(cells[0]).total_s == Calibration(estimates).predict(cells[0]).total_s


def test_methods_that_send_in_the_background_wait_for_what_does_not_fit(study) -> None:
    cells, estimates = study(arms="{local-sgd: {period: 4, overlap: 2}}, ring")
    cell = next(cell for cell in cells if cell.arm != "ring" and "1 Mbit/s" in cell.config.link.describe())
    found = Calibration(estimates).predict(cell)
    assert estimates[cell.id].in_background and found.training_s == pytest.approx(estimates[cell.id].predicted_s)


def test_a_warm_up_that_sends_every_gradient_is_counted_with_what_it_sends(study) -> None:
    cells, estimates = study("limit.samples=6400", arms="{post-local-sgd: {warmup: 50, period: 10}}, ring")
    late, ring = (
        next(cell for cell in cells if (cell.arm == "ring") == every and cell.config.link.describe().startswith("1 M"))
        for every in (False, True)
    )
    whole, found = estimates[ring.id], estimates[late.id]
    assert found.warm_up_steps == 50 and found.warm_up_step_s == pytest.approx(whole.step_s, rel=0.02)
    assert found.predicted_s == pytest.approx(50 * found.warm_up_step_s + 50 * found.step_s)
    assert Calibration(estimates).predict(late).training_s == pytest.approx(found.predicted_s)


def test_a_fit_without_measurements_is_the_belief_before() -> None:
    assert fitted([], Fit(0.1, 1.2)) == Fit(0.1, 1.2)


def test_a_fit_finds_both_numbers_and_never_says_nothing_is_left() -> None:
    measured = [MeasuredSteps(0.1, sending_s, 1.2 * 0.1 + 0.8 * sending_s) for sending_s in (0.01, 0.1, 1.0)]
    found = fitted(measured, Fit())
    assert (found.extra, found.factor) == pytest.approx((0.2, 0.8), abs=0.02)
    assert Fit(-2.0, 0.0).step_s(1.0, 1.0) == pytest.approx(0.4)


def test_finished_cells_are_read_from_their_files(tmp_path, study) -> None:
    cells, estimates = study()
    first = of(cells, "ring", "10 Mbit/s")
    (item,) = assess([first], tmp_path)
    item.folder.mkdir(parents=True)
    status = finished(first, estimates[first.id], computing=2.0, attempt=1)
    (item.folder / "status.json").write_text(json.dumps(status.to_json()))
    items = assess(cells, tmp_path)
    found = foresee(items)
    assert found.num_cells == 1
    (done,) = [item for item in items if item.status == "done"]
    assert found.predict(done).total_s == pytest.approx(status.wall_s)
