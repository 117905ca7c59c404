"""benchmarks/timing_runs.py: its matrix, and what it sums up."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import timing_runs


@dataclass(frozen=True)
class Interval:
    interval_s: tuple[float, float] | None


def timed(
    times_s: list[float], whole_s: float | None, intervals: list[tuple[float, float] | None], repeat: int = 0
) -> object:
    return timing_runs.Timed(SimpleNamespace(repeat=repeat), times_s, [Interval(ends) for ends in intervals], whole_s)


def test_the_experiment_has_24_cells_whose_first_repeats_all_run_whole_as_well(tmp_path: Path) -> None:
    items = timing_runs.cells_of(timing_runs.STUDY, tmp_path)
    first = [item for item in items if item.cell.repeat == 0]
    assert len(first) == 24 and {item.way for item in first} == {"checked"}
    assert {item.timing_runs for item in items} == {5}


def test_the_deviation_of_a_run_is_pooled_over_cells() -> None:
    drawn = random.Random(1)
    logs = [[level + drawn.gauss(0, 0.03) for _ in range(5)] for level in range(200)]
    assert timing_runs.pooled_sd(logs) == pytest.approx(0.03, rel=0.05)
    assert timing_runs.pooled_sd([[1.0]]) is None


def test_what_is_counted_inside() -> None:
    cells = [
        timed([10.0, 11.0], 10.9, [(9.9, 10.1), (9.0, 12.0)]),
        timed([10.0, 10.0], 10.0, [(9.9, 10.1), None]),
        timed([10.0, 10.0], None, [(9.9, 10.1), (9.9, 10.1)]),
        timed([10.0, 11.0], 12.5, [(9.9, 10.1), (9.0, 12.0)], repeat=1),
    ]
    found = timing_runs.summary_of(cells, 2)
    assert found["inside"] == {1: {"inside": 1, "of": 3}, 2: {"inside": 1, "of": 2}}
    assert found["sd_of_neighbouring_rounds"] == found["sd_of_first_and_last"] == found["sd_of_a_run"]
    assert found["sd_of_a_run"] == pytest.approx(math.log(1.1) / math.sqrt(2) / math.sqrt(3))
