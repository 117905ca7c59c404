"""From a link to netem's parameters."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.errors import ConfigError
from bwbench.network.link import ETHERNET_FRAME_BYTES, UNSHAPED, Link
from bwbench.network.netem.shape import (
    DISTRIBUTION_SCALE,
    MAX_RATE_BYTES_PER_S,
    normal_distribution,
    queue_packets,
    shape,
)
from bwbench.units import BANDWIDTH, DURATION


def link(bandwidth: str = "10 Mbit/s", **asked: object) -> Link:
    return Link.model_validate({"bandwidth": bandwidth, **asked})


def test_a_link_becomes_a_rate_both_ways_and_a_delay_once() -> None:
    node = shape(link(latency="2.5 ms", loss=0.01))
    assert node.up == node.down
    assert node.up.rate_bytes_per_s == 1_250_000
    assert (node.up.delay_us, node.up.jitter_us, node.up.loss) == (0, 0, 0.0)
    assert node.line is not None
    assert (node.line.delay_us, node.line.loss) == (2500, 0.01)


def test_without_latency_jitter_and_loss_there_is_no_line() -> None:
    assert shape(link()).line is None


def test_jitter_comes_with_a_rate_that_keeps_the_order_of_packets_and_costs_no_time() -> None:
    line = shape(link(latency="5 ms", jitter="1 ms")).line
    assert line is not None and line.jitter_us == 1000
    assert ETHERNET_FRAME_BYTES / line.rate_bytes_per_s < 1e-6


def test_what_is_in_flight_is_no_part_of_the_queue() -> None:
    near, far = shape(link(queue="64 kB", latency="1 ms")), shape(link(queue="64 kB", latency="1 s"))
    assert near.up.limit_packets == far.up.limit_packets == near.down.limit_packets
    assert far.line is not None
    in_flight_packets = 10e6 / 8 * 1.0 / 60  # frames of the shortest kind
    assert far.line.limit_packets > in_flight_packets


@given(
    bandwidth_bps=st.floats(1e3, 30e9),
    latency_s=st.floats(0, 10),
    jitter_s=st.floats(0, 1),
    loss=st.floats(0, 1, exclude_max=True),
    queue_bytes=st.integers(1, 10**9),
)
def test_rounding_to_the_kernels_units_stays_small(
    bandwidth_bps: float, latency_s: float, jitter_s: float, loss: float, queue_bytes: int
) -> None:
    asked = link(
        BANDWIDTH.format(bandwidth_bps),
        latency=DURATION.format(latency_s),
        jitter=DURATION.format(jitter_s),
        loss=loss,
        queue=f"{queue_bytes} B",
    )
    node = shape(asked)
    assert node.up.rate_bytes_per_s * 8 == pytest.approx(bandwidth_bps, rel=4.1e-3, abs=4)
    assert (queue_packets(asked) - 1) * ETHERNET_FRAME_BYTES == pytest.approx(queue_bytes, abs=ETHERNET_FRAME_BYTES)
    delay_us, jitter_us, line_loss = (
        (node.line.delay_us, node.line.jitter_us, node.line.loss) if node.line else (0, 0, 0.0)
    )
    assert delay_us == pytest.approx(latency_s * 1e6, abs=0.51)
    assert jitter_us == pytest.approx(jitter_s * 1e6, abs=0.51)
    assert line_loss == loss
    for qdisc in (node.up, node.line, node.down):
        if qdisc is not None:
            assert all(isinstance(value, int) for name, value in qdisc.to_json().items() if name != "loss")
            assert 0 < qdisc.limit_packets < 2**32


def test_the_default_queue_is_one_bandwidth_delay_product_where_that_is_more_than_64_kb() -> None:
    assert queue_packets(link("10 Mbit/s", latency="2.5 ms")) == 44  # ceil(64 kB / 1514 B) + 1
    assert queue_packets(link("100 Mbit/s", latency="25 ms")) == 414  # ceil(625 kB / 1514 B) + 1


@pytest.mark.parametrize("bandwidth", ["3 bit/s", "40 Gbit/s"])
def test_a_rate_that_the_kernels_field_cannot_hold_is_refused_with_the_reason(bandwidth: str) -> None:
    with pytest.raises(ConfigError, match=rf"{bandwidth}.*8 bit/s to .*backend: relay"):
        shape(link(bandwidth))


def test_what_is_recorded_speaks_the_links_language() -> None:
    applied = shape(link("10 Mbit/s", latency="2.5 ms", loss=0.01)).to_json()
    assert (applied["bandwidth_bps"], applied["latency_s"], applied["jitter_s"], applied["loss"]) == (
        10e6,
        2.5e-3,
        0,
        0.01,
    )
    assert set(applied["qdiscs"]) == {"up", "line", "down"}


def test_the_largest_rate_is_taken() -> None:
    assert shape(link(BANDWIDTH.format(8 * MAX_RATE_BYTES_PER_S))).up.rate_bytes_per_s == MAX_RATE_BYTES_PER_S


@pytest.mark.parametrize("name", ["latency", "jitter"])
def test_a_delay_beyond_the_kernels_field_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"link.{name}.*5 min"):
        shape(link(**{name: "5 min"}))


@pytest.mark.parametrize("asked", [UNSHAPED, link(medium="shared")])
def test_links_that_are_not_netems_are_a_mistake_of_ours(asked: Link) -> None:
    with pytest.raises(ValueError):
        shape(asked)


def test_the_table_is_a_normal_distribution_in_the_kernels_units() -> None:
    table = normal_distribution()
    assert all(-(2**15) <= entry < 2**15 for entry in table)
    assert statistics.fmean(table) == pytest.approx(0, abs=1)
    assert statistics.pstdev(table) == pytest.approx(DISTRIBUTION_SCALE, rel=2e-3)
    within = sum(abs(entry) <= DISTRIBUTION_SCALE for entry in table) / len(table)
    assert within == pytest.approx(0.6827, abs=1e-3)
