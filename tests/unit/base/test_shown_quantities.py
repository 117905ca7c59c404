"""Quantities as people read them."""

from __future__ import annotations

import pytest

from bwbench.base.units import BANDWIDTH, DURATION, MEMORY, SAMPLES, Dimension, rounded
from bwbench.cli.output import size


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (16.1e6, 3, "16.1 Mbit/s"),  # whose float is not 16.1 times 1e6
        (999.6e6, 3, "1 Gbit/s"),
        (1234e9, 3, "1230 Gbit/s"),
        (1500.0, 2, "1.5 kbit/s"),
        (0.0, 3, "0 bit/s"),
    ],
)
def test_a_rounded_rate_keeps_its_unit(value: float, digits: int, text: str) -> None:
    assert BANDWIDTH.show(value, digits) == text


@pytest.mark.parametrize(
    "text", [rounded(17_712.3, 4), rounded(1e7, 3), rounded(2e-6, 2), size(4.2e15), DURATION.show(1e-12, 3)]
)
def test_people_read_no_exponents(text: str) -> None:
    assert "e" not in text.lower()


@pytest.mark.parametrize(
    ("dimension", "text", "readings"),
    [
        (BANDWIDTH, 10e6, "'10 Mbit/s'"),
        (BANDWIDTH, 10, "'10 Mbit/s'"),
        (DURATION, 0.01, "'0.01 ms' or '10 ms'"),
        (DURATION, "3", "'3 ms' or '3 s'"),
        (MEMORY, 3, "'3 kB'"),
        (SAMPLES, 2000, "'2000 samples'"),
    ],
)
def test_a_bare_number_is_offered_what_it_may_have_meant(dimension: Dimension, text: object, readings: str) -> None:
    with pytest.raises(ValueError, match="has no unit") as refused:
        dimension.parse(text)
    assert str(refused.value).endswith(f"needs one: {readings}")


def test_bytes_a_second_are_offered_in_bits() -> None:
    with pytest.raises(ValueError, match="10 MB/s of bytes are '80 Mbit/s'"):
        BANDWIDTH.parse("10 MB/s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(63.93, "1.07 min"), (174.576, "2.91 min"), (59.96, "1 min"), (0.9997, "1 s"), (3599.0, "1 h"), (0.0, "0 us")],
)
def test_it_is_rounded_once_in_the_unit_in_which_it_is_read(seconds: float, text: str) -> None:
    """63.93 s are 63.9 s, and those 1.065 min; but 63.93 s are 1.0655 min."""
    assert DURATION.show(seconds, 3) == text
