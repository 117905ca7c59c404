"""The rate over time: finishing is the inverse of counting, over gaps and over the end of the trace."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bwbench.network.link.rate_trace import RateTrace

MBIT = 1e6
STEPS = st.lists(
    st.tuples(
        st.floats(0.001, 100.0),  # s
        st.one_of(st.just(0.0), st.floats(1e3, 1e9)),  # bit/s
    ),
    min_size=1,
    max_size=30,
)
TIMES_S = st.floats(0.0, 1e4)


def trace_of(steps: list[tuple[float, float]]) -> RateTrace:
    assume(any(rate for _, rate in steps))
    return RateTrace([0.0, *itertools.accumulate(step for step, _ in steps)], [rate for _, rate in steps])


@given(STEPS, TIMES_S, st.floats(0.0, 1e10))
def test_finish_is_the_inverse_of_bits_between(steps, start_s, num_bits):
    trace = trace_of(steps)
    done_s = trace.finish(start_s, num_bits)
    slack_bits = 1e-9 * (num_bits + trace.max_bps * (start_s + trace.duration_s))
    assert done_s >= start_s
    assert trace.bits_between(start_s, done_s) == pytest.approx(num_bits, abs=slack_bits + 1e-6)


@given(STEPS, TIMES_S, st.floats(1e-6, 1.0))
def test_finish_is_the_earliest_time(steps, start_s, share):
    trace = trace_of(steps)
    num_bits = share * trace.mean_bps * trace.duration_s
    done_s = trace.finish(start_s, num_bits)
    earlier_s = start_s + (done_s - start_s) * 0.999
    assert trace.bits_between(start_s, earlier_s) <= num_bits * (1 + 1e-9) + 1e-9 * trace.max_bps * (start_s + 1)


@given(STEPS, TIMES_S, st.floats(0.0, 1e9), st.floats(0.0, 1e9))
def test_more_bits_are_never_done_sooner(steps, start_s, few_bits, more_bits):
    trace = trace_of(steps)
    first_s = trace.finish(start_s, few_bits)
    both_s = trace.finish(start_s, few_bits + more_bits)
    assert both_s >= first_s - 1e-9 * (start_s + trace.duration_s)


@given(STEPS, TIMES_S, TIMES_S)
def test_counting_is_monotone_and_adds_up(steps, start_s, span_s):
    trace = trace_of(steps)
    middle_s, end_s = start_s + span_s / 3, start_s + span_s
    whole = trace.bits_between(start_s, end_s)
    slack_bits = 1e-9 * trace.max_bps * (end_s + trace.duration_s) + 1e-6
    assert whole >= -slack_bits
    parts = trace.bits_between(start_s, middle_s) + trace.bits_between(middle_s, end_s)
    assert parts == pytest.approx(whole, rel=1e-9, abs=slack_bits)
    assert trace.bits_between(end_s, start_s) == pytest.approx(-whole, abs=slack_bits)


@given(STEPS, TIMES_S, st.integers(1, 50))
def test_a_period_carries_the_mean_from_wherever_it_is_counted(steps, start_s, periods):
    trace = trace_of(steps)
    bits = trace.bits_between(start_s, start_s + periods * trace.duration_s)
    slack_bits = 1e-9 * trace.max_bps * (start_s + periods * trace.duration_s)
    assert bits == pytest.approx(periods * trace.mean_bps * trace.duration_s, rel=1e-6, abs=slack_bits)


@given(STEPS, st.floats(0.0, 1e3), st.floats(0.0, 500.0))
def test_shifted_starts_later_in_the_same_trace(steps, start_s, span_s):
    trace = trace_of(steps)
    shifted = trace.shifted(start_s)
    slack_bits = 1e-8 * trace.max_bps * (start_s + span_s + trace.duration_s)
    assert shifted.duration_s == trace.duration_s
    assert shifted.mean_bps == pytest.approx(trace.mean_bps)
    expected = trace.bits_between(start_s, start_s + span_s)
    assert shifted.bits_between(0.0, span_s) == pytest.approx(expected, abs=slack_bits)


def test_edges_and_rates_by_hand():
    trace = RateTrace([0, 1, 3, 4], [8 * MBIT, 0, 2 * MBIT])
    assert (trace.duration_s, trace.mean_bps, trace.max_bps) == (4, 2.5 * MBIT, 8 * MBIT)
    assert [trace.rate_at(t) for t in (0, 0.999, 1, 2.9, 3, 4, 5.5)] == [8e6, 8e6, 0, 0, 2e6, 8e6, 0]
    assert trace.bits_between(0.5, 3.5) == 5 * MBIT
    assert trace.bits_between(3.5, 4.5) == 5 * MBIT
    assert trace.finish(0.5, 4 * MBIT) == 1.0  # the last bit before the gap needs no waiting
    assert trace.finish(0.5, 5 * MBIT) == 3.5
    assert trace.finish(2.0, 1 * MBIT) == 3.5
    assert trace.finish(2.0, 0) == 2.0
    assert trace.finish(3.5, 1 * MBIT + 80 * MBIT) == 4 + 32 + 0  # eight whole periods after the end of this one


def test_silence_at_the_end_of_the_trace_is_not_waited_for():
    trace = RateTrace([0, 1, 2], [MBIT, 0])
    assert trace.finish(0.0, MBIT) == 1.0
    assert trace.finish(0.0, 3 * MBIT) == 5.0
    assert trace.finish(1.5, MBIT) == 3.0


def test_after_a_million_seconds_a_packet_still_takes_its_time():
    trace = RateTrace([0, 0.3, 200.1], [7 * MBIT, 3 * MBIT])
    start_s = 1e6 + 0.123
    bits = 1514 * 8
    assert trace.finish(start_s, bits) - start_s == pytest.approx(bits / trace.rate_at(start_s), abs=1e-9)


def test_shifted_by_hand():
    trace = RateTrace([0, 1, 3], [1 * MBIT, 2 * MBIT])
    assert trace.shifted(0) is trace
    at_edge = trace.shifted(1)
    assert (list(at_edge.times_s), list(at_edge.rates_bps)) == ([0, 2, 3], [2 * MBIT, 1 * MBIT])
    inside = trace.shifted(2)
    assert (list(inside.times_s), list(inside.rates_bps)) == ([0, 1, 2, 3], [2 * MBIT, 1 * MBIT, 2 * MBIT])


@pytest.mark.parametrize(
    ("times_s", "rates_bps"),
    [
        ([], []),
        ([0], []),
        ([0, 1], [1, 2]),
        ([1, 2], [1]),
        ([0, 1, 1], [1, 1]),
        ([0, 2, 1], [1, 1]),
        ([0, 1], [0]),
        ([0, 1], [-1]),
        ([0, 1], [float("nan")]),
        ([0, float("nan")], [1]),
        ([0, float("inf")], [1]),
        ([0, 1], [float("inf")]),
    ],
)
def test_what_is_no_trace_is_refused(times_s, rates_bps):
    with pytest.raises(ValueError):
        RateTrace(times_s, rates_bps)
