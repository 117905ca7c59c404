"""Whether what ranks find of their network is what the link asks."""

from __future__ import annotations

import pytest

from bwbench.network.probe.verification import PairMeasurement
from bwbench.training.loop.network_probe import FIRST_BYTES, LONG_ENOUGH_S, MOST_BYTES, next_bytes, unlike


@pytest.mark.parametrize(
    "goodput_bps, rtt_s, said",
    [
        (9.4e6, 0.041, []),
        (7.2e6, 0.045, []),
        (10.4e6, 0.040, ["+8.7%"]),
        (6.0e6, 0.040, ["-37.3%"]),
        (9.4e6, 0.020, ["20.00 ms instead of 40.00 ms"]),
        (90e6, 0.001, ["TCP carries 90.000 Mbit/s", "1.00 ms instead"]),
    ],
)
def test_tcp_may_be_slower_than_the_link_but_not_faster(goodput_bps: float, rtt_s: float, said: list[str]) -> None:
    pair = PairMeasurement(0, 1, 10e6, 9.565e6, goodput_bps, 0.040, rtt_s)
    found = list(unlike(pair))
    assert len(found) == len(said) and all(text in line for text, line in zip(said, found, strict=True))


def test_nothing_is_asked_of_the_rate_of_a_link_that_loses() -> None:
    assert not list(unlike(PairMeasurement(0, 1, 10e6, None, 1e6, 0.040, 0.041)))


@pytest.mark.parametrize("rate_bps", [1e5, 1e6, 5e7, 1e9, 1e11])
def test_a_transfer_is_long_enough_and_not_much_longer(rate_bps: float) -> None:
    """A round trip of 40 ms stands before every transfer."""
    num_bytes = FIRST_BYTES
    while (taken_s := 0.04 + 8 * num_bytes / rate_bps) < LONG_ENOUGH_S and num_bytes < MOST_BYTES:
        num_bytes = next_bytes(num_bytes, taken_s)
    assert taken_s < 2 or num_bytes == FIRST_BYTES, "it was eight times as long as needed"
