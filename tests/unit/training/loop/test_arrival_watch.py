"""The test split is looked at around the arrival at each target, the same after a checkpoint as before."""

from __future__ import annotations

from bwbench.experiment.config.cell_config import TargetConfig
from bwbench.training.loop.arrival_watch import ArrivalWatch

EASY, HARD = TargetConfig(metric="accuracy", value=0.5), TargetConfig(metric="accuracy", value=0.8)


def due(watch: ArrivalWatch, values: list[float], *targets: TargetConfig) -> list[int]:
    """Numbers of the evaluations, from 0, at which the test split is due."""
    return [number for number, value in enumerate(values) if watch.is_due(targets, {"accuracy": value})]


def test_from_the_first_that_meets_a_target_until_the_mean_of_three_does() -> None:
    flicker = [0.1, 0.3, 0.55, 0.4, 0.52, 0.48, 0.6, 0.7, 0.7]
    assert due(ArrivalWatch(), flicker, EASY) == [2, 3, 4, 5, 6]
    assert due(ArrivalWatch(), [0.1, 0.45, 0.49, 0.6, 0.7], EASY) == [3]
    assert due(ArrivalWatch(), [0.1, 0.2, 0.3], EASY) == due(ArrivalWatch(), [0.9, 0.9]) == []


def test_each_target_has_its_own_arrival_and_losses_fall() -> None:
    rising = [0.1, 0.3, 0.49, 0.58, 0.65, 0.75, 0.79, 0.88, 0.9]
    assert due(ArrivalWatch(), rising, EASY, HARD) == [3, 4, 7]
    watch, loss = ArrivalWatch(), TargetConfig(metric="loss", value=1.0)
    assert [watch.is_due((loss,), {"loss": value}) for value in (2.0, 1.1, 0.9, 0.5, 0.4)] == [False] * 2 + [
        True, True, False
    ]  # fmt: skip
    assert not ArrivalWatch().is_due((loss,), {"loss": None})


def test_a_checkpoint_changes_nothing() -> None:
    values = [0.1, 0.3, 0.55, 0.4, 0.52, 0.48, 0.6, 0.7]
    whole = due(ArrivalWatch(), values, EASY)
    for cut in range(len(values)):
        watch = ArrivalWatch()
        before = due(watch, values[:cut], EASY)
        after = due(ArrivalWatch(**watch.state_dict()), values[cut:], EASY)
        assert [*before, *(cut + number for number in after)] == whole
