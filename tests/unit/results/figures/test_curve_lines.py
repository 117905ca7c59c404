"""An arm's mean line: across the runs at each level, up to the level that all have met."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bwbench.results.figures.accuracy_curves import mean_line


def run(costs: list[float], values: list[float], metric: str = "accuracy") -> pd.DataFrame:
    return pd.DataFrame({"clock_s": costs, metric: values})


def test_the_mean_of_times_is_geometric_and_ends_where_the_worst_run_ends() -> None:
    costs, levels = mean_line(
        [run([1, 2, 4], [0.2, 0.6, 0.9]), run([4, 8, 16], [0.2, 0.6, 0.8])], "accuracy", "clock_s"
    )
    assert levels[0] == 0.2 and levels[-1] == 0.8
    assert costs[0] == pytest.approx(2.0)
    assert costs[list(levels).index(0.6)] == pytest.approx(4.0)


def test_a_step_back_does_not_count() -> None:
    costs, levels = mean_line([run([1, 2, 3, 4], [0.2, 0.6, 0.5, 0.7])], "accuracy", "clock_s")
    assert list(levels) == [0.2, 0.6, 0.7] and list(costs) == [1, 2, 4]
    assert (np.diff(costs) > 0).all()


def test_losses_fall() -> None:
    costs, levels = mean_line([run([1, 2, 3], [4.0, 2.0, 1.0], "loss"), run([1, 2, 3], [4.0, 3.0, 2.0], "loss")],
                              "loss", "clock_s")  # fmt: skip
    assert levels[0] == 4.0 and levels[-1] == 2.0
    assert costs[-1] == pytest.approx((2 * 3) ** 0.5)


def test_one_evaluation_is_a_point() -> None:
    costs, levels = mean_line([run([3.0], [0.4])], "accuracy", "clock_s")
    assert list(costs) == pytest.approx([3.0]) and list(levels) == [0.4]
