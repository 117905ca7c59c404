"""What is recorded of sixteen nodes, beside what Bagua's authors published."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import bagua

BERT = Path(bagua.__file__).parent / "records" / "real-size-bert-large"


def test_rows_are_in_order_and_over_the_ring_of_their_link() -> None:
    found = bagua.rows(BERT)
    assert {row["bandwidth_bps"] for row in found} == {1e9, 4e9, 8e9, 100e9}
    for bandwidth_bps in {row["bandwidth_bps"] for row in found}:
        of_link = [row for row in found if row["bandwidth_bps"] == bandwidth_bps]
        assert [row["step_s"] for row in of_link] == sorted(row["step_s"] for row in of_link)
        (ring,) = (row for row in of_link if row["arm"] == "ring")
        assert ring["ratio"] == 1
        assert all(row["ratio"] == pytest.approx(row["step_s"] / ring["step_s"]) for row in of_link)


def test_published_epochs_stand_beside_their_method_and_link_alone() -> None:
    found = {(row["arm"], row["bandwidth_bps"] / 1e9): row for row in bagua.rows(BERT)}
    assert found["ring", 1]["published_s"] == pytest.approx(2590 / 115)
    assert found["bytegrad", 1]["published_ratio"] == pytest.approx(699 / 2590)
    assert found["qadam", 1]["published_s"] is None
    assert found["ring", 100]["published_s"] is None


def test_another_order_than_the_published_one_is_said() -> None:
    def row(arm: str, step_s: float, published_s: float) -> dict[str, object]:
        return {"arm": arm, "step_s": step_s, "published_s": published_s, "bandwidth_bps": 1e9}

    assert bagua.others([row("ring", 20.0, 22.5), row("bytegrad", 6.0, 6.1)]) == []
    assert bagua.others([row("ring", 5.0, 6.2), row("bytegrad", 6.0, 6.1)]) == []  # they are alike
    assert bagua.others([row("ring", 5.0, 22.5), row("bytegrad", 6.0, 6.1)]) == [
        "1 Gbit/s: bytegrad is published as faster than ring, and slower here"
    ]
