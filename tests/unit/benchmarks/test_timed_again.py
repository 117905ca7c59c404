"""benchmarks/timed_again.py: what pairs of timing runs add up to."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import timed_again


def pair(log: float, role: str = "method") -> timed_again.Pair:
    return timed_again.Pair("study", "ring", "10 Mbit/s", 4, role, 100.0, 100.0 * math.exp(log))


def test_the_deviation_of_one_run_is_that_of_pairs_over_the_root_of_two() -> None:
    drawn = random.Random(1)
    pairs = [pair(drawn.gauss(0, 0.03) - drawn.gauss(0, 0.03)) for _ in range(2000)]
    found = timed_again.summary_of([*pairs, pair(0.5, "reference")])
    assert found["pairs"] == 2000 and found["sd_of_a_run"] == pytest.approx(0.03, rel=0.05)
    assert found["within_what_is_assumed"] == pytest.approx(0.95 * 2000, rel=0.02)
    assert found["most"] < 0.3 and found["most_where_nothing_is_sent"] == pytest.approx(0.5)


def test_nothing_that_was_timed_again_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "never-published").mkdir()
    assert list(timed_again.pairs_of(tmp_path, tmp_path / "published")) == []
    assert timed_again.summary_of([])["sd_of_a_run"] is None
