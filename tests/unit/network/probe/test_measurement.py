"""When a link is what was asked for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bwbench.network.link import UNSHAPED, Link
from bwbench.network.probe import probe_plan
from bwbench.network.probe.node import Flow, StreamPacer, goodput_bps
from bwbench.network.probe.verification import PairMeasurement, judge, loss_interval

LINK = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "2.5 ms"})


def pair(**changes: float | int | None) -> PairMeasurement:
    good = PairMeasurement(0, 1, 10e6, 9.7e6, 9.7e6, 0.0052, 0.0054, asked_loss=0.0, achieved_loss=0.0, loss_frames=500)
    return replace(good, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"achieved_goodput_bps": 0.97e6}, "goodput"),
        ({"achieved_goodput_bps": 10.3e6}, "goodput"),
        ({"achieved_goodput_bps": 0.0}, "goodput"),
        ({"achieved_rtt_s": 0.05}, "round trip"),
        ({"achieved_rtt_s": 0.0001}, "round trip"),
        ({"achieved_rtt_s": None}, "no answer"),
        ({"achieved_loss": 0.05}, "loss"),
        ({"asked_loss": 0.5, "achieved_loss": 0.3}, "loss"),
    ],
)
def test_what_is_out_of_tolerance_is_said(changes: dict[str, float | None], word: str) -> None:
    measured = judge("relay", LINK, [pair(), pair(**changes)], 0.05)
    assert measured.verdict == "out-of-tolerance"
    assert len(measured.reasons) == 1 and word in measured.reasons[0]


def test_small_errors_are_fine() -> None:
    near = pair(achieved_goodput_bps=9.4e6, achieved_rtt_s=0.0060, achieved_loss=0.002)
    measured = judge("relay", LINK, [near], 0.05)
    assert (measured.verdict, measured.reasons) == ("ok", ())
    assert json.loads(json.dumps(measured.to_json()))["pairs"][0]["achieved_goodput_bps"] == 9.4e6


@pytest.mark.parametrize(
    "achieved_bps, verdict", [(4.8e6, "ok"), (0.48e6, "out-of-tolerance"), (9e6, "out-of-tolerance")]
)
def test_a_pair_alone_on_a_shared_air_is_judged_too(achieved_bps: float, verdict: str) -> None:
    assert judge("relay", LINK, [pair()], 0.05, alone=(4.86e6, achieved_bps)).verdict == verdict


def test_an_unshaped_link_is_always_fine() -> None:
    measured = pair(asked_goodput_bps=None, asked_rtt_s=None, achieved_loss=None)
    assert judge("unshaped", UNSHAPED, [measured], 0.05).verdict == "ok"
    assert judge("relay", LINK, [], 0.05).verdict == "ok"


def test_the_loss_interval_holds_the_truth_and_shrinks() -> None:
    low, high = loss_interval(0.02, 1000)
    assert 0 < low < 0.02 < high < 0.05
    assert loss_interval(0.02, 100_000)[1] < high
    assert loss_interval(0.0, 0) == (0.0, 1.0)


def test_the_asked_round_trip_includes_the_pings_own_serialisation() -> None:
    frame_s = (probe_plan.PING_PAYLOAD_BYTES + 42) * 8 / 10e6
    assert probe_plan.pairs_of(LINK, 2)[0].rtt_s == pytest.approx(0.005 + 4 * frame_s)


def test_the_shared_air_is_divided_among_all_crossings() -> None:
    shared = probe_plan.pairs_of(Link.model_validate({"bandwidth": "10 Mbit/s", "medium": "shared"}), 4)[0]
    # All send all the time: the access point has every fifth turn, and four stations to send to.
    assert shared.goodput_bps == pytest.approx(10e6 / 5 / 4 * 1472 / 1514)
    assert shared.alone_goodput_bps == pytest.approx(10e6 / 2 * 1472 / 1514)
    assert probe_plan.pairs_of(LINK, 4)[0].goodput_bps == pytest.approx(10e6 * 1472 / 1514)


def test_what_the_mac_takes_is_asked_of_nobody() -> None:
    wifi = {"bandwidth": "54 Mbit/s", "medium": "shared", "standard": "802.11g"}
    pair = probe_plan.pairs_of(Link.model_validate(wifi), 2)[0]
    assert pair.alone_bps == pytest.approx(27e6 / 2)
    frame_s = (probe_plan.PING_PAYLOAD_BYTES + 42) * 8 / 54e6
    overhead_s = 1514 * 8 / 54e6  # as long as a full frame: half of the rate is left
    assert pair.rtt_s == pytest.approx(4 * (frame_s + overhead_s))
    wired = probe_plan.pairs_of(Link.model_validate({**wifi, "wired": [1]}), 2)[0]
    assert wired.alone_bps == pytest.approx(27e6)


def test_each_pair_is_asked_for_what_its_own_ends_can_do() -> None:
    keys = {"up": "5 Mbit/s", "down": "10 Mbit/s", "latency": "2 ms", "loss": 0.01}
    override = {"2": {"bandwidth": "1 Mbit/s", "latency": "10 ms", "loss": 0.03}}
    pairs = probe_plan.pairs_of(Link.model_validate({**keys, "overrides": override}), 3)
    assert [pair.frames_bps for pair in pairs] == [5e6, 1e6, 1e6]
    assert [pair.latency_s for pair in pairs] == pytest.approx([2e-3, 6e-3, 6e-3])
    assert pairs[1].loss == pytest.approx(1 - (0.99 * 0.97) ** 0.5)
    flows = probe_plan.rate_flows(Link.model_validate({**keys, "overrides": override}), 3)
    assert len({flow.duration_s for flow in flows}) == 1  # all send at the same time


@pytest.mark.parametrize("bandwidth, limit_s", [("1 Mbit/s", 4.0), ("10 Mbit/s", 1.5), ("1 Gbit/s", 1.5)])
@pytest.mark.parametrize("num_nodes", [2, 4, 16])
def test_the_probe_is_quick(bandwidth: str, limit_s: float, num_nodes: int) -> None:
    link = Link.model_validate({"bandwidth": bandwidth, "latency": "2.5 ms"})
    pairs = probe_plan.pairs_of(link, num_nodes)
    groups = probe_plan.ping_groups(pairs, num_nodes)
    assert sorted(node for group in groups for node in group) == list(range(num_nodes))
    duration_s = len(groups) * (probe_plan.num_pings(pairs[0]) + 2) * pairs[0].rtt_s
    for flows in (probe_plan.rate_flows(link, num_nodes), probe_plan.loss_flows(link, num_nodes)):
        assert flows is not None
        duration_s += flows[0].duration_s + link.latency_s  # then the mark of its end arrives
    duration_s += probe_plan.drain_s(link, probe_plan.rate_flows(link, num_nodes))
    assert duration_s < limit_s


def test_the_goodput_is_the_slope_whatever_a_few_frames_do() -> None:
    exact = [(5.0 + number * 1e-3, 1000) for number in range(500)]
    assert goodput_bps(exact, 0.5) == pytest.approx(8e6)
    late = [(time_s + (0.002 if number % 50 == 0 else 0.0), size) for number, (time_s, size) in enumerate(exact)]
    assert goodput_bps(late, 0.5) == pytest.approx(8e6, rel=0.005)
    paused = [(time_s + (0.05 if number > 220 else 0.0), size) for number, (time_s, size) in enumerate(exact)]
    assert goodput_bps(paused, 0.5) == pytest.approx(8e6, rel=0.001)


def test_hardly_any_frames_are_a_low_rate_and_no_error() -> None:
    assert goodput_bps([], 0.5) == 0
    assert goodput_bps([(1.0, 1000)], 0.5) == pytest.approx(16_000)


def test_a_paced_stream_catches_up_a_little_and_leaves_the_rest_out() -> None:
    pacer = StreamPacer(Flow(1472, 1, 1000.0, duration_s=1.0, burst=3, catch_up=10, listen_s=0.0))
    assert pacer.due(0.0) == 3
    pacer.sent += 3
    assert pacer.due(0.002) == 2
    pacer.sent += 2
    assert pacer.due(0.5) == 10
    pacer.sent += 10
    assert pacer.due(0.501) == 1
    assert pacer.due(1.0) == 0


@pytest.mark.parametrize("bandwidth, most_bytes", [("10 Mbit/s", 64_000), ("300 Mbit/s", 18_750), ("1 Gbit/s", 61_440)])
def test_what_the_probe_hands_over_at_once_fits_a_super_packet(bandwidth: str, most_bytes: int) -> None:
    link = Link.model_validate({"bandwidth": bandwidth, "latency": "2.5 ms"})
    for flow in probe_plan.rate_flows(link, 4):
        assert flow.segments >= 1 and flow.segments * 1472 + 42 <= most_bytes


@pytest.mark.parametrize(
    "achieved, frames, verdict",
    [
        (0.0025, 1200, "unsure"),  # both are within what chance may do to 1 %
        (0.0225, 400, "unsure"),
        (0.0105, 12_400, "ok"),
        (0.0325, 12_400, "out-of-tolerance"),
    ],
)
def test_a_loss_is_ok_only_where_it_is_told(achieved: float, frames: int, verdict: str) -> None:
    found = pair(asked_loss=0.01, achieved_loss=achieved, loss_frames=frames)
    measured = judge("relay", LINK, [found], 0.05, thorough=True)
    assert measured.verdict == verdict
    if verdict == "unsure":
        assert "would tell" in measured.reasons[0] and "99 %" in measured.reasons[0]
        assert judge("relay", LINK, [found], 0.05).verdict == "ok"  # of a cell: what is off for sure is invalid


@pytest.mark.parametrize(
    "achieved_s, values, verdict",
    [(3.1e-3, 100, "ok"), (3.1e-3, 20, "unsure"), (1.5e-3, 100, "out-of-tolerance"), (6e-3, 100, "out-of-tolerance")],
)
def test_a_jitter_is_judged_by_its_deviation(achieved_s: float, values: float, verdict: str) -> None:
    found = pair(asked_jitter_s=3e-3, achieved_jitter_s=achieved_s, jitter_values=values)
    assert judge("relay", LINK, [found], 0.05, thorough=True).verdict == verdict


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.05])
def test_a_thorough_measurement_sends_as_many_frames_as_tell_the_loss(loss: float) -> None:
    link = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "2.5 ms", "loss": loss})
    flows = probe_plan.loss_flows(link, 2, thorough=True)
    assert flows is not None and flows[0].datagrams_per_s is not None
    frames = flows[0].datagrams_per_s * flows[0].duration_s
    low, high = loss_interval(loss, frames, probe_plan.LOSS_TOLD_Z)
    assert max(loss - low, high - loss) < 0.6 * probe_plan.loss_told(loss)
    slow = link.model_copy(update={"bandwidth_bps": 100e3})
    assert all(flow.duration_s <= 60.0 for flow in probe_plan.loss_flows(slow, 2, thorough=True) or ())


def test_a_delay_that_wanders_is_looked_at_for_longer() -> None:
    link = Link.model_validate({"bandwidth": "10 Mbit/s", "latency": "5 ms", "jitter": "3 ms"})
    (first, _) = probe_plan.pairs_of(link, 2)
    usual, thorough = (probe_plan.pings(first, wanders=True, thorough=is_it) for is_it in (False, True))
    assert usual.budget_s <= 2.5 and usual.independent >= 15
    assert 10 < thorough.budget_s <= 30 and thorough.independent == pytest.approx(120, rel=0.05)
    assert probe_plan.pings(first, wanders=False, thorough=False).count == 20


@pytest.mark.parametrize(
    "dilation, late_s, verdict",
    [
        (1.0, 0.8e-3, "ok"),
        (8.0, 0.8e-3, "ok"),
        (8.0, 1.2e-3, "out-of-tolerance"),
        (0.25, 0.2e-3, "ok"),
        (0.25, 0.3e-3, "out-of-tolerance"),
    ],
)
def test_a_round_trip_is_late_by_a_millisecond_of_the_machine_or_of_faster_emulated_time(
    dilation: float, late_s: float, verdict: str
) -> None:
    asked_s = 1e-3  # so short that 5 % of it is nothing
    measured = pair(asked_rtt_s=asked_s, achieved_rtt_s=asked_s + late_s)
    assert judge("relay", LINK.dilated(dilation), [measured], 0.05).verdict == verdict


def test_what_was_measured_in_emulated_time() -> None:
    measured = judge("relay", LINK.dilated(4.0), [pair(asked_jitter_s=4e-3, achieved_jitter_s=8e-3)], 0.05, (4.0, 3.0))
    emulated = measured.emulated(4.0)
    (one,) = emulated.pairs
    assert one.achieved_goodput_bps == 4 * 9.7e6 and one.asked_bps == 40e6
    assert one.achieved_rtt_s == 0.0054 / 4
    assert (one.asked_jitter_s, one.achieved_jitter_s) == (1e-3, 2e-3)
    assert emulated.alone == (16.0, 12.0)
    assert (emulated.verdict, one.loss_frames) == (measured.verdict, 500)


@pytest.mark.parametrize("dilation", [0.25, 2.0, 8.0, 32.0])
def test_probing_in_slow_motion_takes_hardly_longer(dilation: float) -> None:
    """What is measured is as long as the machine's link needs it, and not ``dilation`` times as long."""
    made = Link.model_validate({"bandwidth": "100 Mbit/s", "latency": "15 ms"}).dilated(dilation)
    (flow, _), asked = probe_plan.rate_flows(made, 2), probe_plan.pairs_of(made, 2)[0]
    assert 0.4 <= flow.duration_s <= 2.0
    assert probe_plan.num_pings(asked) * asked.rtt_s <= max(probe_plan.LONG_PINGS_S, 6 * asked.rtt_s)
    assert 6 <= probe_plan.num_pings(asked) <= 20
    shaky = Link.model_validate({"bandwidth": "100 Mbit/s", "jitter": "3 ms"}).dilated(dilation)
    assert probe_plan.rate_flows(shaky, 2)[0].duration_s >= 100 * shaky.jitter_s
