"""Student's t as in the tables, between them, and for several intervals at once."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.results.analysis.student import student_t, together, within


@pytest.mark.parametrize(
    ("freedom", "confidence", "value"),
    [
        (1, 0.95, 12.7062), (2, 0.95, 4.3027), (3, 0.95, 3.1824), (4, 0.95, 2.7764), (9, 0.95, 2.2622),
        (30, 0.95, 2.0423), (math.inf, 0.95, 1.95996), (2, 0.99, 9.9248), (5, 0.90, 2.0150), (10, 0.999, 4.5869),
    ],
)  # fmt: skip
def test_as_in_the_tables(freedom: float, confidence: float, value: float) -> None:
    assert student_t(freedom, confidence) == pytest.approx(value, abs=6e-5)


@given(st.floats(0.6, 300.0), st.floats(0.5, 0.9999))
def test_it_is_the_inverse_of_its_distribution(freedom: float, confidence: float) -> None:
    assert within(student_t(freedom, confidence), freedom) == pytest.approx(confidence, abs=1e-9)


@given(st.floats(1.0, 100.0), st.floats(0.01, 10.0))
def test_more_degrees_of_freedom_make_it_smaller(freedom: float, more: float) -> None:
    assert student_t(freedom + more) < student_t(freedom)


def test_several_at_once_ask_more_of_each() -> None:
    assert together(1) == pytest.approx(0.95)
    assert together(5) == pytest.approx(0.99)
    assert together(0) == pytest.approx(0.95)
