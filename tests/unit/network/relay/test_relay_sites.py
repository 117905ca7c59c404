"""Lines between sites in virtual time: what a frame takes from end to end, what a shared line carries, who gets it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.network.link.rate_trace import RateTrace
from tests.unit.network.relay.virtual_relay import FRAME_BYTES, Submission, model, run, stream, trace_of

LAN_S = 0.0001
OFFICES: dict[str, Any] = {  # nodes 0 and 1 in the first, 2 and 3 in the second
    "latency": "0.1 ms",
    "sites": {
        "bern": {"up": "1 Mbit/s", "down": "4 Mbit/s", "latency": "8 ms"},
        "oslo": {"bandwidth": "2 Mbit/s", "latency": "12 ms"},
    },
}
PATHS: dict[str, Any] = {"latency": "0.1 ms", "sites": ["bern", "oslo"], "paths": {"bern": {"oslo": "2 Mbit/s 10 ms"}}}


def due_s(asked: dict[str, Any], src: int, dst: int, num_bytes: int = 1000) -> float:
    return run(model(**asked), [(0.0, src, dst, num_bytes)]).left[0].due_s


def test_within_a_site_all_is_as_without() -> None:
    assert due_s(OFFICES, 0, 1) == pytest.approx(2e-3 + LAN_S)


def test_a_frame_takes_every_line_on_its_way() -> None:
    assert due_s(OFFICES, 0, 2) == pytest.approx(1e-3 + 8e-3 + (0.010 + LAN_S) + 4e-3 + 1e-3)
    assert due_s(OFFICES, 2, 0) == pytest.approx(1e-3 + 4e-3 + (0.010 + LAN_S) + 2e-3 + 1e-3)


def test_a_path_has_its_own_rate_both_ways() -> None:
    for src, dst in ((0, 2), (3, 1)):
        assert due_s(PATHS, src, dst) == pytest.approx(1e-3 + 4e-3 + (0.010 + LAN_S) + 1e-3)
    both = [*stream(0, 2, 1.9e6, 2.0), *stream(2, 0, 1.9e6, 2.0)]
    assert not run(model(**PATHS), both).lost


def test_the_nodes_of_a_site_share_its_line_up() -> None:
    """Two senders, each with the whole line's rate, at random moments: together they get that, and each its half."""
    moments = random.Random(1)
    sent = sorted(Submission(moments.uniform(0, 20), src, src + 2, FRAME_BYTES) for src in (0, 1) for _ in range(1650))
    outcome = run(model(**OFFICES), sent)
    both = [outcome.goodput_bps(sent, 2.0, 20.0, src) for src in (0, 1)]
    assert sum(both) == pytest.approx(1e6, rel=0.005)
    assert both[0] == pytest.approx(both[1], rel=0.1)


def test_senders_of_two_sites_share_a_line_down() -> None:
    sites = {name: {"bandwidth": "1 Mbit/s"} for name in ("a", "b", "c")}
    sent = sorted([*stream(0, 2, 0.9e6, 10.0), *stream(1, 2, 0.9e6, 10.0, begin_s=0.0047)])
    assert run(model(3, latency="0.1 ms", sites=sites), sent).goodput_bps(sent, 2.0, 10.0) == pytest.approx(
        1e6, rel=0.005
    )


def test_what_stays_inside_does_not_feel_what_leaves() -> None:
    outside, inside = stream(0, 2, 2e6, 2.0), [Submission(0.5 + number * 0.1, 1, 0, 1000) for number in range(10)]
    sent = sorted([*outside, *inside])
    ends = run(model(**OFFICES), sent).ends_s
    for number, submission in enumerate(sent):
        if submission.src == 1:
            assert ends[number] - submission.time_s == pytest.approx(2e-3 + LAN_S)


def test_a_queue_that_is_full_drops() -> None:
    asked = {**OFFICES, "sites": {name: {**site, "queue": "20 kB"} for name, site in OFFICES["sites"].items()}}
    outcome = run(model(**asked, queue="200 kB"), [(0.0, 0, 2, 1000)] * 50)
    assert not outcome.refused  # the node's own queue had room
    assert 22 <= len(outcome.left) <= 27  # 20 kB, and what left the line while all that came over the LAN


def test_a_super_packet_takes_as_long_as_its_segments() -> None:
    """Six segments in one: the slowest line counts whole, every other one for one segment."""
    whole = due_s(OFFICES, 0, 2, 6 * FRAME_BYTES)
    single = run(model(**OFFICES), [(0.0, 0, 2, FRAME_BYTES)] * 6).left[-1].due_s
    assert whole == pytest.approx(single, abs=1e-9)


def test_latencies_of_nodes_add_to_those_of_their_sites() -> None:
    far = {**OFFICES, "overrides": {0: {"latency": "20.1 ms"}}}
    assert due_s(far, 0, 2) == pytest.approx(due_s(OFFICES, 0, 2) + 0.010)


def test_loss_and_outages_strike_between_sites_too() -> None:
    sent = stream(0, 2, 0.5e6, 20.0)
    lost = run(model(**OFFICES, loss=0.1), sent)
    assert len(lost.lost) / len(sent) == pytest.approx(0.1, abs=0.03)
    dead = model(**OFFICES, outages=[{"at": "1 s", "duration": "1 s", "nodes": [2]}])
    outcome = run(dead, sent, commands=[(0.0, "play")])
    assert len(outcome.lost) == pytest.approx(0.5e6 / 8 / FRAME_BYTES, abs=2)


def test_jitter_keeps_the_order_between_sites() -> None:
    ends = run(model(**OFFICES, jitter="3 ms"), stream(0, 2, 0.9e6, 5.0)).ends_s
    assert [ends[number] for number in sorted(ends)] == sorted(ends.values())


def test_a_trace_of_a_node_is_played_behind_its_site() -> None:
    """The node's own link falls to a tenth: from then on that is what arrives, whatever waits in queues."""
    rates = RateTrace([0.0, 5.0, 10.0], [0.8e6, 0.08e6])
    slow = {**OFFICES, "overrides": {0: {"trace": {"up": trace_of("t", rates)}}}}
    sent = stream(0, 2, 0.4e6, 10.0)
    outcome = run(model(traces={"t": rates}, **slow), sent, commands=[(0.0, "play")], until_s=10.0)
    assert outcome.goodput_bps(sent, 0.5, 5.0) == pytest.approx(0.4e6, rel=0.01)
    assert outcome.goodput_bps(sent, 5.5, 10.0) == pytest.approx(0.08e6, rel=0.05)


def test_a_fault_scales_lines_too() -> None:
    slower = run(model(**OFFICES).with_fault(rate=0.5), [(0.0, 0, 2, 1000)]).left[0].due_s
    assert slower == pytest.approx(2 * 14e-3 + 0.010 + LAN_S)


def test_a_link_with_sites_changes_while_it_carries_frames() -> None:
    """A LAN that becomes slower than the line, and farther away: the lines between the sites stay what they are."""
    later = model(**{**OFFICES, "latency": "5.1 ms"}, bandwidth="0.5 Mbit/s")
    sent = sorted([*stream(0, 2, 0.9e6, 6.0), Submission(20.0, 0, 2, 1000), Submission(21.0, 0, 1, 1000)])
    outcome = run(model(**OFFICES), sent, changes=[(3.0, later)])
    assert outcome.goodput_bps(sent, 0.5, 3.0) == pytest.approx(0.9e6, rel=0.01)
    assert outcome.goodput_bps(sent, 3.5, 6.0) == pytest.approx(0.5e6, rel=0.01)
    ends = outcome.ends_s
    assert ends[len(sent) - 2] == pytest.approx(20.0 + 16e-3 + 8e-3 + (0.010 + 0.0051) + 4e-3 + 16e-3)
    assert ends[len(sent) - 1] == pytest.approx(21.0 + 32e-3 + 0.0051)


FRAMES = st.lists(
    st.tuples(st.floats(0, 0.05), st.integers(0, 3), st.integers(0, 3), st.integers(60, 5000)), min_size=1, max_size=60
)


@settings(max_examples=60, deadline=None)
@given(FRAMES, st.sampled_from([OFFICES, PATHS, {**OFFICES, "jitter": "2 ms"}]))
def test_how_often_the_relay_looks_changes_nothing(
    frames: Sequence[tuple[float, int, int, int]], asked: dict[str, Any]
) -> None:
    sent = sorted(frame for frame in frames if frame[1] != frame[2])
    whenever = run(model(**asked), sent) if sent else None
    if whenever is None:
        return
    for step_s in (1e-4, 0.003):
        assert run(model(**asked), sent, step_s).ends_s == pytest.approx(whenever.ends_s)
