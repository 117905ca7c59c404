"""Links that change over time, in virtual time: traces, outages, and what playing and holding do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bwbench.network.link.rate_trace import RateTrace
from bwbench.network.relay.schedule import RelayModel
from tests.unit.network.relay.virtual_relay import FRAME_BYTES, LATENCY_S, Submission, model, run, stream, trace_of

STEPS = RateTrace([0, 1, 2, 3, 4], [8e6, 2e6, 0, 6e6])
PLAY = [(0.0, "play")]


def traced(rates: RateTrace = STEPS, num_nodes: int = 4, **asked: Any) -> RelayModel:
    return model(num_nodes, {"t": rates}, bandwidth=None, trace=trace_of("t", rates), **asked)


def test_a_link_carries_what_its_trace_says_second_by_second_and_again() -> None:
    frames = stream(0, 1, 12e6, 8.0)
    outcome = run(traced(queue="20 kB"), frames, commands=PLAY)
    carried = [outcome.goodput_bps(frames, second, second + 1) for second in range(8)]
    assert carried == pytest.approx([8e6, 2e6, 0.0, 6e6] * 2, abs=0.1e6)


def test_until_it_plays_it_has_the_mean_rate_and_again_once_it_is_held() -> None:
    frames = stream(0, 1, 12e6, 6.0)
    outcome = run(traced(queue="20 kB"), frames, commands=[(2.0, "play"), (4.0, "hold")])
    carried = [outcome.goodput_bps(frames, second + 0.1, second + 1) for second in range(6)]
    assert carried == pytest.approx([4e6, 4e6, 8e6, 2e6, 4e6, 4e6], rel=0.03)


def test_playing_again_begins_anew() -> None:
    frames = stream(0, 1, 12e6, 2.5)
    outcome = run(traced(queue="20 kB"), frames, commands=[(0.0, "play"), (1.5, "play")])
    assert outcome.goodput_bps(frames, 1.1, 1.5) == pytest.approx(2e6, rel=0.05)
    assert outcome.goodput_bps(frames, 1.6, 2.5) == pytest.approx(8e6, rel=0.05)


def test_a_trace_goes_on_from_where_an_earlier_run_has_left_it() -> None:
    frames = stream(0, 1, 12e6, 4.0)
    for at_s in (1.5, 401.5):
        outcome = run(traced(queue="20 kB"), frames, commands=[(0.0, "play", at_s)])
        carried = [
            outcome.goodput_bps(frames, begin_s, end_s) for begin_s, end_s in pairwise((0.1, 0.5, 1.5, 2.5, 3.5))
        ]
        assert carried == pytest.approx([2e6, 0.0, 6e6, 8e6], abs=0.1e6)


@pytest.mark.parametrize("medium", ["switched", "shared"])
def test_a_link_that_was_busy_just_before_is_as_free_as_it_was(medium: str) -> None:
    """What was sent before it plays is not sent once more at the rates of the part of the trace that is left out."""
    rates = RateTrace([0, 10, 20], [1e6, 7e6])
    frames = stream(0, 1, 1.5e6, 2.0)
    before_s = run(traced(rates, medium=medium), frames, until_s=0.9).ends_s
    outcome = run(traced(rates, medium=medium), frames, commands=[(1.0, "play", 11.0)])
    assert {number: outcome.ends_s[number] for number in before_s} == before_s
    assert outcome.goodput_bps(frames, 1.05, 2.0) == pytest.approx(1.5e6, rel=0.03)


def test_the_directions_may_have_traces_of_their_own() -> None:
    half = RateTrace([0, 1], [1e6])
    asked = model(
        traces={"t": STEPS, "h": half}, bandwidth=None, trace={"up": trace_of("h", half), "down": trace_of("t", STEPS)}
    )
    frames = stream(0, 2, 0.9e6, 1.0) + stream(1, 2, 0.9e6, 1.0)
    outcome = run(asked, frames, commands=PLAY)
    assert outcome.goodput_bps(frames, 0.2, 1.0) == pytest.approx(1.8e6, rel=0.05)
    assert run(asked, [(0.0, 0, 1, 1000)], commands=PLAY).left[0].due_s == pytest.approx(8e-3 + LATENCY_S + 1e-3)


def test_one_node_may_follow_a_trace_while_others_do_not() -> None:
    asked = model(traces={"t": STEPS}, overrides={1: {"trace": trace_of("t", STEPS)}}, queue="20 kB")
    frames = stream(0, 1, 7e6, 2.0) + stream(2, 3, 7e6, 2.0)
    outcome = run(asked, frames, commands=PLAY)
    assert outcome.goodput_bps(frames, 1.1, 2.0, 0) == pytest.approx(2e6, rel=0.05)
    assert outcome.goodput_bps(frames, 1.1, 2.0, 2) == pytest.approx(7e6, rel=0.05)


def test_the_queue_before_a_trace_holds_bytes() -> None:
    """20 kB wait, whether the rate is high, low or 0 at that time."""
    for time_s in (0.5, 1.5, 2.5, 3.5):
        outcome = run(traced(queue="20 kB"), [(time_s, 0, 1, 1000)] * 40, commands=PLAY)
        assert (len(outcome.left), len(outcome.refused)) == (20, 20)
    packets = run(traced(queue="7 packets"), [(2.5, 0, 1, 1000)] * 40, commands=PLAY)
    assert len(packets.left) == 7


def test_a_frame_waits_through_silence() -> None:
    ((due_s, *_),) = run(traced(), [(2.5, 0, 1, 1000)], commands=PLAY).left
    assert due_s == pytest.approx(3.0 + 2 * 8000 / 6e6 + LATENCY_S)


@pytest.mark.parametrize("queue", ["20 kB", "20 packets"])
@pytest.mark.parametrize("jitter", ["0 ms", "1 ms"])
def test_what_waits_when_the_link_is_held_goes_on_at_the_mean_rate(queue: str, jitter: str) -> None:
    """Silence of 1000 s does not outlast the trace; nothing is lost, and nothing overtakes."""
    silent = RateTrace([0, 1, 1001], [4004e6, 0])  # 4 Mbit/s on average
    frames = [(1.5, 0, 1, 1000)] * 15 + [(2.01, 0, 1, 1000)] * 5
    asked = traced(silent, queue=queue, jitter=jitter)
    outcome = run(asked, frames, commands=[(0.0, "play"), (2.0, "hold")])
    assert [number for _, _, number in outcome.left] == list(range(20))
    assert outcome.left[0].due_s == pytest.approx(2.0 + 2 * 2e-3 + LATENCY_S, abs=2e-3 if jitter == "0 ms" else 8e-3)
    assert outcome.left[-1].due_s == pytest.approx(2.0 + 21 * 2e-3 + LATENCY_S, abs=3e-3 if jitter == "0 ms" else 8e-3)


def test_what_waits_when_the_trace_begins_goes_on_at_its_rate() -> None:
    slow = RateTrace([0, 10, 20], [1e6, 7e6])
    frames = [(0.0, 0, 1, 1000)] * 10
    outcome = run(traced(slow, queue="64 kB", latency="0 ms"), frames, commands=[(0.004, "play")])
    gaps_s = [later.due_s - earlier.due_s for earlier, later in pairwise(outcome.left)]
    assert outcome.left[0].due_s == pytest.approx(4e-3)  # at 4 Mbit/s, twice
    assert gaps_s == pytest.approx([8e-3] * 9)


def test_frames_far_away_when_the_rate_changes_lose_no_time() -> None:
    """A frame that is still under way waits for nothing at the receiver, whatever the rate becomes."""
    slow = RateTrace([0, 10, 20], [1e6, 7e6])
    outcome = run(traced(slow, latency="300 ms"), [(0.0, 0, 1, 1000)], commands=[(0.1, "play")])
    assert outcome.left[0].due_s == pytest.approx(2e-3 + 0.3 + 8e-3)


def test_how_often_the_relay_looks_changes_nothing() -> None:
    frames = [Submission(number * 1.1e-3, number % 3, 3, 200 + number * 37 % 1300) for number in range(3000)]
    asked = traced(queue="10 kB", outages=[{"at": "1.2 s", "duration": "0.3 s", "nodes": [1]}])
    often, seldom = (run(asked, frames, step_s, commands=PLAY) for step_s in (2e-4, 3e-3))
    assert often.ends_s == pytest.approx(seldom.ends_s)
    assert (sorted(often.refused), sorted(often.lost)) == (sorted(seldom.refused), sorted(seldom.lost))


OUTAGE = {"at": "1 s", "duration": "0.5 s"}


@pytest.mark.parametrize("medium", ["switched", "shared"])
def test_in_an_outage_nothing_gets_through_and_before_and_after_it_all_does(medium: str) -> None:
    frames = [Submission(number * 1e-2, 0, 1, 100) for number in range(300)]
    outcome = run(model(medium=medium, outages=[OUTAGE]), frames, commands=PLAY)
    assert sorted(outcome.refused) == list(range(100, 150))
    on_their_way = [number for number in outcome.lost if frames[number].time_s < 1.0]
    assert outcome.lost == on_their_way and len(on_their_way) <= 1
    assert len(outcome.left) == 300 - 50 - len(outcome.lost)


@pytest.mark.parametrize("medium", ["switched", "shared"])
def test_an_outage_of_one_node_cuts_it_off_both_ways_and_nobody_else(medium: str) -> None:
    asked = model(medium=medium, outages=[{**OUTAGE, "nodes": [2]}])
    times_s = [number * 1e-2 for number in range(300)]
    for src, dst, dead in ((2, 0, True), (0, 2, True), (0, 1, False)):
        outcome = run(asked, [(time_s, src, dst, 100) for time_s in times_s], commands=PLAY)
        missing = sorted(outcome.refused + outcome.lost)
        assert len(missing) == (50 if dead else 0)
        if dead:
            assert (outcome.refused if src == 2 else outcome.lost) == missing
            assert all(0.99 <= times_s[number] < 1.5 for number in missing)


def test_outages_come_again_and_count_from_when_the_link_began_to_play() -> None:
    asked = model(outages=[{**OUTAGE, "every": "2 s"}])
    frames = [Submission(number * 1e-2, 0, 1, 100) for number in range(700)]
    outcome = run(asked, frames, commands=[(0.5, "play"), (4.7, "hold")])
    missing = sorted(outcome.refused + outcome.lost)
    seconds = sorted({int(frames[number].time_s / 0.5) for number in outcome.refused})
    assert seconds == [3, 7]  # 1.5 s to 2 s, 3.5 s to 4 s; held before the next
    assert len(missing) == pytest.approx(100, abs=2)


@pytest.mark.parametrize("medium", ["switched", "shared"])
def test_an_outage_that_an_interruption_cut_short_goes_on_and_is_not_had_twice(medium: str) -> None:
    frames = [Submission(number * 1e-2, 0, 1, 100) for number in range(200)]
    outcome = run(model(medium=medium, outages=[OUTAGE]), frames, commands=[(0.0, "play", 1.2)])
    assert sorted(outcome.refused) == list(range(30)) and not outcome.lost


def test_without_play_there_are_no_outages() -> None:
    frames = [Submission(number * 1e-2, 0, 1, 100) for number in range(300)]
    assert len(run(model(outages=[OUTAGE]), frames).left) == 300


def test_goodput_follows_a_trace_of_packets() -> None:
    """As mahimahi writes them: a packet may leave in some milliseconds, none in others."""
    times_ms = sorted({(number * 7919) % 997 for number in range(400)})
    edges_s = [number * 1e-3 for number in range(998)]
    per_ms = [0.0] * 997
    for time_ms in times_ms:
        per_ms[time_ms] = FRAME_BYTES * 8 / 1e-3
    rates = RateTrace(edges_s, per_ms)
    frames = stream(0, 1, 12e6, 4.0)
    outcome = run(traced(rates, queue="20 kB"), frames, commands=PLAY)
    assert outcome.goodput_bps(frames, 0.997, 2 * 0.997) == pytest.approx(rates.mean_bps, rel=0.02)
