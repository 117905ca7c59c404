"""When a run reached each of its targets, as status.json and tables say it alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base.plain_data import JsonObject
from bwbench.cli.cell_text import cell_text, shown
from bwbench.records import iter_cells
from bwbench.records.cell_identity import recorded_identity
from bwbench.records.schema import CurvePoint, Status, TargetArrival
from bwbench.results.analysis.arrival import CENSORED, FIRST_CROSSING, FIT, UNKNOWN, Budget
from bwbench.results.analysis.cell_arrival import CURVE, arrival_of_cell, at_target
from bwbench.results.analysis.export import export_cells
from bwbench.results.analysis.targets import Ended, arrival_at, arrivals_on, meets_all, target_of, targets_of
from bwbench.results.analysis.trial import curve_of, summarise

TARGETS: JsonObject = {
    "target": {"metric": "accuracy", "value": 0.8},
    "targets": [{"metric": "accuracy", "value": 0.5}, {"metric": "accuracy", "value": 0.8}],
    "limit": {"samples": 20_000, "time": None},
}


def rising(num: int) -> list[CurvePoint]:
    """Accuracy 0.1 at 1000 samples, 0.2 at 2000, …, at 100 samples a second."""
    return [
        CurvePoint(step=at, metrics={"accuracy": at / 10, "loss": 2.0 / at}, samples=1000 * at, clock_s=10.0 * at)
        for at in range(1, num + 1)
    ]


def test_one_target_is_a_list_of_one() -> None:
    assert targets_of({"target": {"accuracy": 0.9}}) == (("accuracy", 0.9),)
    assert targets_of({}) == () and target_of({}) is None
    assert (target_of(TARGETS), targets_of(TARGETS)) == (("accuracy", 0.8), (("accuracy", 0.5), ("accuracy", 0.8)))


def test_a_run_to_its_budget_has_an_arrival_at_each_target_it_crossed() -> None:
    easy, hard = arrivals_on(rising(10), TARGETS, went_on=True)
    assert (easy.kind, easy.value, easy.censored_at_s) == (FIT, 0.5, None)
    assert easy.samples == pytest.approx(5000) and easy.time_s == pytest.approx(50.0)
    assert (easy.first_crossing_samples, easy.first_crossing_s) == (5000, 50.0)
    assert hard.kind == FIT and hard.samples == pytest.approx(8000)
    assert [one.kind for one in arrivals_on(rising(7), TARGETS, went_on=True)] == [FIT, CENSORED]


def test_a_run_that_ended_at_the_hardest_keeps_its_first_crossing_and_fits_the_others() -> None:
    easy, hard = arrivals_on(rising(8), TARGETS, went_on=False)
    assert easy.kind == FIT and easy.samples == pytest.approx(5000)
    assert hard == TargetArrival(
        metric="accuracy",
        value=0.8,
        kind=FIRST_CROSSING,
        time_s=80.0,
        samples=8000,
        first_crossing_s=80.0,
        first_crossing_samples=8000,
    )
    assert [one.kind for one in arrivals_on(rising(6), TARGETS, went_on=False)] == [FIRST_CROSSING, UNKNOWN]


def test_an_arrival_too_late_in_its_budget_is_censored_there() -> None:
    found = arrival_at(rising(10), ("accuracy", 0.8), Ended(Budget(samples=10_500), went_on=True))
    assert (found.kind, found.time_s, found.censored_at_s) == (CENSORED, None, pytest.approx(70.0))
    assert found.first_crossing_samples == 8000


def test_the_test_split_at_an_arrival_is_read_between_its_neighbours() -> None:
    half = {**TARGETS, "targets": [{"accuracy": 0.55}, {"accuracy": 0.8}]}

    def tested(*steps: int) -> list[float | None]:
        curve = [
            point.model_copy(update={"test": {"accuracy": point.step / 20 if point.step in steps else None}})
            for point in rising(10)
        ]
        return [one.test_metric for one in arrivals_on(curve, half, went_on=True)]

    between, at = tested(*range(1, 11))
    easy = arrivals_on(rising(10), half, went_on=True)[0].samples or 0
    assert between == pytest.approx(easy / 20_000) and at == pytest.approx(0.4)
    assert tested(5, 6) == [between, None]
    assert tested(6, 10) == [None, None]  # behind it alone: nobody knows what it was before; and nowhere near
    assert tested(8) == [None, at] and tested() == [None, None]


def test_several_metrics_are_met_when_all_are() -> None:
    both: JsonObject = {"targets": [{"accuracy": 0.5}, {"loss": 0.3}]}
    met = [meets_all(both, point.metrics) for point in rising(8)]
    assert met == [False] * 6 + [True] * 2
    assert meets_all(both, {"accuracy": 0.9}) is None and meets_all({}, {"accuracy": 0.9}) is False


def test_status_and_tables_say_the_same_of_every_declared_target(tmp_path: Path) -> None:
    (path,) = write_study(tmp_path, Study(arms=("ring",), repeats=1, bandwidths_mbps=(10.0,)))
    cell = json.loads((path / "cell.json").read_text())
    own = target_of(cell["config"])
    assert own is not None
    easier = {"metric": own[0], "value": own[1] - 0.1}
    cell["config"]["targets"] = [easier, cell["config"]["target"]]
    cell_id = recorded_identity(cell["config"])
    for name, content in (("cell.json", cell), ("status.json", json.loads((path / "status.json").read_text()))):
        (path / name).write_text(json.dumps({**content, "id": cell_id}))
    path.rename(path.with_name(path.name.replace(cell["id"], cell_id)))
    (folder,) = iter_cells(tmp_path)
    told = summarise(folder.events(), cell["config"], None).arrivals
    assert [one.kind for one in told] == [FIT, FIRST_CROSSING]
    for one in told:
        (asked,) = at_target([folder], (one.metric, one.value))
        found = arrival_of_cell(asked)
        assert (found.arrival_kind, found.time_to_target_s, found.samples_to_target) == (
            one.kind, one.time_s, one.samples
        )  # fmt: skip
    assert folder.status is not None
    status = folder.status.model_copy(update={"arrivals": told})
    assert Status.model_validate(json.loads(json.dumps(status.to_json()))).arrivals == told
    (path.with_name(folder.path.name) / "status.json").write_text(json.dumps(status.to_json()))
    (again,) = iter_cells(tmp_path)
    text = "\n".join(cell_text(shown(again.path)))
    assert f"to {own[0]} {own[1] - 0.1:g}" in text and "(fit)" in text and "(first crossing)" in text
    (row,) = export_cells([again])
    assert row["test_metric_at_arrival"] == told[1].test_metric == status.test_metric
    (row,) = export_cells(at_target([again], (own[0], own[1] - 0.1)))
    assert row["test_metric_at_arrival"] is None  # the split was looked at at the end alone


def test_the_test_split_at_any_target_is_read_off_the_curve(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring",), repeats=1, bandwidths_mbps=(10.0,)))
    (folder,) = iter_cells(tmp_path)
    folder.made[CURVE] = [
        point.model_copy(update={"test": {"accuracy": (point.metrics["accuracy"] or 0.0) - 0.02}})
        for point in curve_of(folder.events())
    ]
    for value in (0.6, 0.7):
        (asked,) = at_target([folder], ("accuracy", value))
        assert arrival_of_cell(asked).test_metric_at_arrival == pytest.approx(value - 0.02, abs=0.02)
