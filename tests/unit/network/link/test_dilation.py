"""Slow motion: what a link in the machine's time has in common with the one that was asked, for any link."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.network.backend_choice import beyond_relay, super_packet_bytes
from bwbench.network.link import UNSHAPED, Link
from bwbench.network.link.chance import correlation_s
from bwbench.network.link.dilation import cannot_dilate
from bwbench.network.link.node_link import NodeLink
from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.link.trace_file import freeze_link, load_trace
from bwbench.network.relay.schedule import RelayModel
from bwbench.network.relay.shared_air import SharedSchedule
from bwbench.network.relay.switched import SwitchedSchedule

NODES = 4
FACTORS = st.floats(1 / 64, 64) | st.sampled_from([0.25, 0.5, 2.0, 3.0, 8.0, 10.0])
RATES = st.floats(1e4, 1e10)
DELAYS = st.floats(0, 0.5)
QUEUES = st.sampled_from(["50 ms", "1 ms", "64 kB", "9500 B", "100 packets", "2 bdp", "0.1 bdp"])


@st.composite
def links(draw: st.DrawFn, medium: str | None = None) -> Link:
    medium = medium or draw(st.sampled_from(["switched", "shared"]))
    both_ways = ("up", "down") if medium == "switched" else ()
    own = {
        "bandwidth": draw(RATES),
        **{way: draw(RATES) for way in both_ways},
        "latency": draw(DELAYS),
        "queue": draw(QUEUES),
    }
    keys: dict[str, Any] = {
        "bandwidth": draw(RATES),
        "latency": draw(DELAYS),
        "jitter": draw(DELAYS),
        "queue": draw(QUEUES),
        "medium": medium,
        "loss": draw(st.floats(0.001, 0.5)),
        "mtu": draw(st.sampled_from([576, 1500, 9000])),
        "tcp": {"rto_max": draw(st.none() | st.floats(1, 10))},
        "outages": [{"at": draw(DELAYS), "duration": 0.5, "every": draw(st.none() | st.floats(1, 5))}],
        "overrides": {2: own},
    }
    if medium == "shared":
        keys |= {"standard": draw(st.sampled_from([None, "802.11g", "802.11n", "802.11ax"]))}
    else:
        keys |= {way: draw(st.none() | RATES) for way in both_ways}
    return Link.model_validate({key: _written(key, value) for key, value in keys.items()})


def _written(key: str, value: Any) -> Any:
    """With its unit, as users have to write it."""
    if isinstance(value, dict):
        return {inner: _written(str(inner), own) for inner, own in value.items() if own is not None}
    if isinstance(value, list):
        return [_written(key, own) for own in value]
    if key in ("bandwidth", "up", "down"):
        return value and f"{value!r} bit/s"
    return f"{value!r} s" if key in ("latency", "jitter", "rto_max", "at", "duration", "every") else value


@given(links(), FACTORS)
def test_rates_are_divided_times_multiplied_and_bytes_frames_and_chances_stay(asked: Link, factor: float) -> None:
    made = asked.dilated(factor)
    for was, now in zip(asked.nodes(NODES), made.nodes(NODES), strict=True):
        assert now.up_bps == pytest.approx(was.up_bps / factor)
        assert now.down_bps == pytest.approx(was.down_bps / factor)
        assert now.latency_s == pytest.approx(was.latency_s * factor)
        assert now.jitter_s == pytest.approx(was.jitter_s * factor)
        kept = ("loss", "up_queue_bytes", "down_queue_bytes", "queue_packets")
        assert [getattr(now, name) for name in kept] == [getattr(was, name) for name in kept]
    before, after = asked.path(1, 2), made.path(1, 2)
    assert (after.latency_s, after.jitter_s) == pytest.approx((before.latency_s * factor, before.jitter_s * factor))
    assert after.loss == before.loss
    for outage, dilated in zip(asked.outages, made.outages, strict=True):
        assert dilated.at_s == pytest.approx(outage.at_s * factor)
        assert dilated.duration_s == pytest.approx(outage.duration_s * factor)
        assert (dilated.every_s or 0.0) == pytest.approx((outage.every_s or 0.0) * factor)
        assert dilated.nodes == outage.nodes
    assert (made.tcp.rto_max_s or 0.0) == pytest.approx((asked.tcp.rto_max_s or 0.0) * factor)
    assert (made.mtu, made.seed, made.burst_loss) == (asked.mtu, asked.seed, asked.burst_loss)


@given(links(), FACTORS)
def test_its_keys_say_the_same_as_its_nodes(asked: Link, factor: float) -> None:
    made = asked.dilated(factor)

    def rates_and_times(node: NodeLink) -> tuple[float, ...]:
        return node.up_bps, node.down_bps, node.latency_s, node.jitter_s

    again = made.model_copy()
    again._asked = None  # nothing but the keys
    for node in range(NODES):
        assert rates_and_times(again.node(node)) == pytest.approx(rates_and_times(made.node(node)))


@given(links(), FACTORS, FACTORS)
def test_slow_motion_of_slow_motion_and_back(asked: Link, factor: float, other: float) -> None:
    twice = asked.dilated(factor).dilated(other)
    assert twice.dilation == factor * other
    assert twice.asked is asked
    assert asked.dilated(1.0) is asked
    assert asked.dilated(4.0).dilated(0.25) is asked


@given(links("shared"), FACTORS)
def test_transmissions_on_the_air_hold_as_many_frames_and_take_as_much_longer(asked: Link, factor: float) -> None:
    made = asked.dilated(factor)
    before, after = asked.air, made.air
    assert before is not None and after is not None
    for was, now in zip(asked.nodes(NODES), made.nodes(NODES), strict=True):
        assert after.most_frames(now.up_bps) == before.most_frames(was.up_bps)
        assert after.full_s(now.up_bps) == pytest.approx(before.full_s(was.up_bps) * factor)
        assert after.longest_share(now.up_bps) == pytest.approx(before.longest_share(was.up_bps))
    assert after.capacity_bps(made.base.up_bps) == pytest.approx(before.capacity_bps(asked.base.up_bps) / factor)


@given(links(), FACTORS)
def test_a_link_has_super_packets_as_it_was_asked_and_the_relay_its_load_as_it_is_made(
    asked: Link, factor: float
) -> None:
    calm = asked.model_copy(update={"loss": 0.0, "jitter_s": 0.0})
    assert super_packet_bytes(calm.dilated(factor), NODES) == super_packet_bytes(calm, NODES)
    if factor >= 1 and beyond_relay(asked, NODES) is None:
        assert beyond_relay(asked.dilated(factor), NODES) is None


def test_what_the_relay_cannot_carry_it_carries_in_slow_motion() -> None:
    asked = Link.model_validate({"bandwidth": "10 Gbit/s", "latency": "0.1 ms", "backend": "relay"})
    assert beyond_relay(asked, 4, 2) is not None
    assert beyond_relay(asked.dilated(32), 4, 2) is None


@pytest.mark.parametrize("factor", [0.25, 4.0])  # which change no figure in its last place
@pytest.mark.parametrize("medium", ["switched", "shared"])
@pytest.mark.parametrize("rate", ["constant", "trace"])
def test_every_frame_leaves_as_much_later_or_is_lost_as_well(
    tmp_path: Path, factor: float, medium: str, rate: str
) -> None:
    # It collapses for 64 ms now and then: for less than what a transmission on the air is given up for.
    collapses = (f"{at_ms},12\n{at_ms + 13},0.01" for at_ms in range(0, 400, 77))
    (tmp_path / "rate.csv").write_text("\n".join(["time_ms,rate_mbit_s", *collapses]))
    trace = {"file": "rate.csv", "measures": "link"}
    asked = Link.model_validate(
        {
            **({"bandwidth": "10 Mbit/s"} if rate == "constant" else {"trace": trace}),
            "latency": "3 ms",
            "jitter": "1 ms",
            "loss": 0.05,
            "queue": "16 kB",
            "medium": medium,
            "outages": [{"at": "20 ms", "duration": "10 ms"}],
        }
    )
    asked = freeze_link(asked, tmp_path)
    frames = [(number * 1e-3, number % 3, (number + 1) % 3, 300 + 100 * (number % 12)) for number in range(200)]
    plain, slow = _due(asked, frames, 1.0), _due(asked.dilated(factor), frames, factor)
    assert 20 < len(plain) < len(frames)
    assert [number for number, _ in slow] == [number for number, _ in plain]
    assert [due_s / factor for _, due_s in slow] == pytest.approx([due_s for _, due_s in plain])


def _due(link: Link, frames: list[tuple[float, int, int, int]], factor: float) -> list[tuple[int, float]]:
    """Which frames leave, and when, where all come ``factor`` times as late."""
    model = RelayModel.of(link, 3, load_trace)
    kind = SwitchedSchedule[int] if model.air is None else SharedSchedule[int]
    schedule = kind(model, lambda src, dst, frame, *, entered: None)
    schedule.switch(0.0, 0.0)
    for number, (came_s, src, dst, num_bytes) in enumerate(frames):
        schedule.submit(came_s * factor, src, dst, num_bytes, number)
    schedule.advance(100.0 * factor)
    found = []
    while (leaving := schedule.pop_due(math.inf)) is not None:
        found.append((leaving[2], leaving[0]))
    return found


@given(st.lists(st.tuples(st.floats(0.01, 5), st.floats(0, 1e9)), min_size=1, max_size=8), FACTORS, st.floats(0, 20))
def test_a_trace_carries_the_same_bits_later(steps: list[tuple[float, float]], factor: float, at_s: float) -> None:
    edges_s = [0.0]
    for length_s, _ in steps:
        edges_s.append(edges_s[-1] + length_s)
    trace = RateTrace(edges_s, [max(rate_bps, 1.0) for _, rate_bps in steps])
    slow = trace.dilated(factor)
    assert slow.mean_bps == pytest.approx(trace.mean_bps / factor)
    assert slow.bits_between(0, at_s * factor) == pytest.approx(trace.bits_between(0, at_s), rel=1e-6, abs=1)


@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_a_trace_file_is_played_slower_from_the_same_place(tmp_path: Path, factor: float) -> None:
    (tmp_path / "office.csv").write_text("time_s,rate_mbit_s\n0,8\n1,4\n3,16\n")
    keys = {"latency": "1 ms", "trace": {"file": "office.csv", "measures": "link", "start": "1 s"}}
    asked = freeze_link(Link.model_validate(keys), tmp_path)
    made = asked.dilated(factor)
    was, now = asked.base.up_trace, made.base.up_trace
    assert was is not None and now is not None
    plain, slow = load_trace(was), load_trace(now)
    assert slow.rate_at(0.5 * factor) == plain.rate_at(0.5) / factor == 4e6 / factor
    assert slow.duration_s == plain.duration_s * factor
    assert slow.mean_bps == pytest.approx(made.base.up_bps)
    assert RelayModel.of(made, 2, load_trace).up[0].rate_bps == pytest.approx(asked.base.up_bps / factor)


@given(DELAYS.filter(bool), FACTORS)
def test_a_delay_wanders_as_much_slower(jitter_s: float, factor: float) -> None:
    assert correlation_s(jitter_s * factor) == pytest.approx(correlation_s(jitter_s) * factor)


def test_what_has_no_slow_motion_is_refused() -> None:
    asked = Link.model_validate({"bandwidth": "10 Mbit/s"})
    assert UNSHAPED.dilated(1.0) is UNSHAPED
    with pytest.raises(ValueError, match="unshaped"):
        UNSHAPED.dilated(2.0)
    for factor in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="more than 0"):
            asked.dilated(factor)


@pytest.mark.parametrize("name, fine", [("bbr", False), ("bbr2", False), ("cubic", True), ("reno", True), (None, True)])
def test_a_congestion_control_with_clocks_of_its_own_is_refused(name: str | None, fine: bool) -> None:
    assert (cannot_dilate(name) is None) is fine
