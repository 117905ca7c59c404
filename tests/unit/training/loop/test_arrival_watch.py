"""The test split is looked at on both sides of the arrival at each target, the same after a checkpoint as before."""

from __future__ import annotations

import pytest

from bwbench.experiment.config.cell_config import TargetConfig
from bwbench.records.schema import CurvePoint
from bwbench.results.analysis.arrival import FIT, Budget
from bwbench.results.analysis.targets import Ended, arrival_at
from bwbench.training.loop.arrival_watch import ArrivalWatch

EASY, HARD = TargetConfig(metric="accuracy", value=0.5), TargetConfig(metric="accuracy", value=0.8)
FLICKER = [0.1, 0.35, 0.55, 0.4, 0.52, 0.48, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7]  # the mean of nine: 0.489, then 0.556


def due(watch: ArrivalWatch, values: list[float], *targets: TargetConfig) -> list[int]:
    """Numbers of the evaluations, from 0, at which the test split is due."""
    return [number for number, value in enumerate(values) if watch.is_due(targets, {"accuracy": value})]


def test_from_before_a_target_may_be_met_until_the_mean_of_nine_meets_it() -> None:
    assert due(ArrivalWatch(), FLICKER, EASY) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert due(ArrivalWatch(), [0.1, 0.2, 0.3], EASY) == due(ArrivalWatch(), [0.9, 0.9]) == []


def test_a_leap_over_the_target_is_looked_at_where_it_lands() -> None:
    assert due(ArrivalWatch(), [0.1, 0.1, 0.1, 0.9], EASY) == [3]
    assert due(ArrivalWatch(), [0.9] * 10, EASY) == list(range(8))


def test_a_curve_that_falls_back_to_its_target_is_looked_at_again() -> None:
    values = [0.1, *[0.6] * 10, *[0.44, 0.48] * 8]  # the mean of nine is below 0.5 once seven of them are
    assert due(ArrivalWatch(), values, EASY) == [*range(1, 8), 18, 20, 22, 24, 26]


def test_each_target_has_its_own_arrival_and_losses_fall() -> None:
    rising = [0.1, *[0.5 + 0.02 * number for number in range(25)]]
    either = {*due(ArrivalWatch(), rising, EASY), *due(ArrivalWatch(), rising, HARD)}
    assert due(ArrivalWatch(), rising, EASY, HARD) == sorted(either)
    watch, loss = ArrivalWatch(), TargetConfig(metric="loss", value=1.0)
    assert [watch.is_due((loss,), {"loss": value}) for value in (3.0, 2.5, 1.4, 0.9, 0.8)] == [False] * 2 + [True] * 3
    assert not ArrivalWatch().is_due((loss,), {"loss": None})


def test_a_checkpoint_changes_nothing() -> None:
    whole = due(ArrivalWatch(), FLICKER, EASY)
    for cut in range(len(FLICKER)):
        watch = ArrivalWatch()
        before = due(watch, FLICKER[:cut], EASY)
        after = due(ArrivalWatch.saved(watch.state_dict()), FLICKER[cut:], EASY)
        assert [*before, *(cut + number for number in after)] == whole


@pytest.mark.parametrize("target", [0.62, 0.75, 0.84, 0.9])
def test_a_smooth_curve_is_known_on_both_sides_of_its_arrival(target: float) -> None:
    values = [1 - 0.9 * 0.8**number for number in range(40)]
    watch = ArrivalWatch()
    looked_at = due(watch, values, TargetConfig(metric="accuracy", value=target))
    curve = [
        CurvePoint(
            step=number,
            metrics={"accuracy": value},
            test={"accuracy": value - 0.01 if number in looked_at else None},
            samples=100 * number,
            clock_s=float(number),
        )
        for number, value in enumerate(values)
    ]
    arrival = arrival_at(curve, ("accuracy", target), Ended(Budget(), went_on=True))
    assert arrival.kind == FIT and arrival.samples is not None and arrival.samples % 100
    assert arrival.test_metric == pytest.approx(target - 0.01, abs=0.002)  # the fit is straight over log samples
    assert len(looked_at) <= 14
