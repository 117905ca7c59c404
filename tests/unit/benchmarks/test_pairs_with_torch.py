"""benchmarks/pairs_with_torch.py: which arms stand beside one another, and what a pair comes to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import pairs_with_torch


def test_on_a_link_each_of_torchs_ways_stands_beside_ours_with_and_without_a_pace() -> None:
    assert pairs_with_torch.arms(None) == list(pairs_with_torch.PAIRS)
    on_link = pairs_with_torch.arms("1 Gbit/s")
    assert on_link[:2] == [("ddp", "ring"), ("ddp", "ring, paced")] and len(on_link) == 6


def test_the_slowest_rank_counts_and_ratios_are_of_turns() -> None:
    ranks = [{"ring: ddp": [1.0, 4.0], "ring: ring": [2.0, 1.0]}, {"ring: ddp": [2.0, 3.0], "ring: ring": [1.0, 2.0]}]
    row = pairs_with_torch.row_of("ddp", "ring", [{"step_s": each, "steps": {"ring": 7}} for each in ranks])
    assert row["ratios"] == [1.0, 0.5] and row["ratio"] == pytest.approx(0.5**0.5)
    assert (row["torch_ms"], row["ours_ms"], row["steps"]) == (3000.0, 2000.0, 7)
