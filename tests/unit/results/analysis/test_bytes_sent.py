"""Bytes at an evaluation: in proportion to the payload where that is recorded, else to the steps."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from bwbench.results.analysis.results import OF_PAYLOAD, OF_STEPS, with_wire_bytes

CELLS = pd.DataFrame(
    {"id": ["a", "b", "c"], "wire_bytes": [1100, 1100, None], "payload_bytes": [1000, 1000, 0], "steps": [10, 10, 10]}
)


def curves(**payload: list[float | None]) -> pd.DataFrame:
    rows = [
        {"id": name, "step": step, "payload_bytes": sent}
        for name, points in payload.items()
        for step, sent in zip((0, 5, 10), points, strict=True)
    ]
    return pd.DataFrame(rows)


def test_payload_that_is_not_sent_evenly_is_followed() -> None:
    sent = with_wire_bytes(curves(a=[0, 900, 1000]), CELLS)
    assert list(sent["wire_bytes"]) == pytest.approx([0, 990, 1100])
    assert set(sent["bytes_from"]) == {OF_PAYLOAD}


def test_without_it_every_step_sends_the_same() -> None:
    older = curves(b=[None, None, None])
    for given in (older, older.drop(columns="payload_bytes")):
        sent = with_wire_bytes(given, CELLS)
        assert list(sent["wire_bytes"]) == pytest.approx([0, 550, 1100])
        assert set(sent["bytes_from"]) == {OF_STEPS}


def test_what_was_not_counted_is_not_known() -> None:
    assert all(math.isnan(value) for value in with_wire_bytes(curves(c=[0, 0, 0]), CELLS)["wire_bytes"])
