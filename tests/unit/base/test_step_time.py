"""What is drawn for steps: its distribution, that draws are independent, and that they are the same for ever."""

from __future__ import annotations

import math
import statistics

import pytest
from pydantic import ValidationError

from bwbench.base.step_time import SteadyStepTime, StepTimeTrace, parse_step_time, recorded_step_times

DRAWN = SteadyStepTime(0.06, 0.3)
STEPS = range(1, 20_001)
PINNED = [99.058613, 38.945587, 73.245292]  # ms, of (seed, rank, step) below


def correlation(one: list[float], other: list[float]) -> float:
    return statistics.correlation(one, other)


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
def test_draws_have_the_mean_and_the_deviation_that_were_asked(spread: float) -> None:
    declared = SteadyStepTime(0.06, spread)
    drawn_s = [declared.drawn_s(3, 1, step) for step in STEPS]
    assert statistics.fmean(drawn_s) == pytest.approx(0.06, rel=4 * spread / math.sqrt(len(drawn_s)))
    assert statistics.stdev(drawn_s) == pytest.approx(0.06 * spread, rel=0.1)
    logs = [math.log(seconds) for seconds in drawn_s]
    assert statistics.fmean(logs) == pytest.approx(statistics.median(logs), abs=0.03 * declared.log_deviation)
    for share in (0.05, 0.5, 0.95):
        within = sum(seconds <= declared.quantile_s(share) for seconds in drawn_s) / len(drawn_s)
        assert within == pytest.approx(share, abs=0.01)
        assert declared.share_within(declared.quantile_s(share)) == pytest.approx(share)


def test_ranks_seeds_and_steps_are_independent_of_one_another() -> None:
    first = [DRAWN.drawn_s(0, 0, step) for step in STEPS]
    others = [
        [DRAWN.drawn_s(0, 1, step) for step in STEPS],
        [DRAWN.drawn_s(1, 0, step) for step in STEPS],
        [DRAWN.drawn_s(0, 0, step + 1) for step in STEPS],
        [DRAWN.drawn_s(1, 1, step) for step in STEPS],
    ]
    assert all(abs(correlation(first, other)) < 4 / math.sqrt(len(first)) for other in others)


def test_draws_are_the_same_for_ever() -> None:
    """Of records: whoever reads one computes its step times again."""
    drawn_ms = [round(1000 * DRAWN.drawn_s(*who), 6) for who in ((0, 0, 1), (0, 1, 1), (7, 3, 2000))]
    assert drawn_ms == PINNED


def test_other_means_and_spreads_are_the_same_draws_scaled() -> None:
    """So that arms, and points of a matrix over the spread, meet the same hard steps."""
    wide, long = SteadyStepTime(0.06, 0.6), SteadyStepTime(0.12, 0.3)
    for step in range(1, 50):
        deviations = math.log(DRAWN.drawn_s(0, 2, step) / DRAWN.quantile_s(0.5)) / DRAWN.log_deviation
        assert math.log(wide.drawn_s(0, 2, step) / wide.quantile_s(0.5)) / wide.log_deviation == pytest.approx(
            deviations
        )
        assert long.drawn_s(0, 2, step) == pytest.approx(2 * DRAWN.drawn_s(0, 2, step))


def test_what_does_not_spread_is_the_plain_form() -> None:
    plain = parse_step_time("60 ms")
    assert parse_step_time({"mean": "60 ms", "spread": 0}) == plain and plain.to_json() == "60 ms"
    assert isinstance(plain, SteadyStepTime) and plain.drawn_s(5, 1, 9) == plain.quantile_s(0.99) == 0.06
    assert (plain.share_within(0.0599), plain.share_within(0.06)) == (0, 1)


@pytest.mark.parametrize("asked", ["60 ms", {"mean": "60 ms", "spread": "20 %"}, {"mean": "1 s", "spread": 0.2},
                                   {"mean": "1 s", "spread": "150 %"}, {"trace": "a.csv"},
                                   {"trace": "/a.csv", "sha256": "0" * 64}])  # fmt: skip
def test_what_is_written_is_read_again(asked: object) -> None:
    declared = parse_step_time(asked)
    assert parse_step_time(declared) == parse_step_time(declared.to_json()) == declared


@pytest.mark.parametrize(
    ("asked", "loc", "said"),
    [
        (60, (), "60 has no unit"),
        ("0 s", (), "more than 0"),
        ([1], (), "[1] is not a step time"),
        ({"spread": "20 %"}, (), "'mean' is missing"),
        ({"mean": "60 ms"}, (), "'spread' is missing"),
        ({"mean": 60, "spread": 0.2}, ("mean",), "60 has no unit"),
        ({"mean": "60 ms", "spread": -0.1}, ("spread",), "-0.1 is out of range: 0 or more"),
        ({"mean": "60 ms", "spread": "-5 %"}, ("spread",), "'-5 %' is out of range"),
        ({"mean": "60 ms", "spread": 20}, ("spread",), "for 20 percent write '20 %'"),
        ({"mean": "60 ms", "spread": "400 %"}, ("spread",), "at most 300 %"),
        ({"mean": "60 ms", "spread": True}, ("spread",), "true is not a spread"),
        ({"mean": "60 ms", "spread": math.nan}, ("spread",), "is not a spread"),
        ({"mean": "60 ms", "spred": 0.2}, ("spred",), "Did you mean 'spread'?"),
        ({"trace": 5}, ("trace",), "5 is not the name of a file"),
        ({"trace": "a.csv", "mean": "60 ms"}, ("mean",), "unknown key 'mean'"),
    ],
)
def test_mistakes_are_told_at_their_key(asked: object, loc: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_step_time(asked)
    (line,) = caught.value.errors()
    assert line["loc"] == loc and said in line["msg"]


def test_words_for_tables() -> None:
    assert str(parse_step_time({"mean": "60 ms", "spread": "12.5 %"})) == "60 ms ± 12.5 %"
    assert str(StepTimeTrace("/a/b/laptop.csv", "0" * 64)) == "trace laptop.csv"
    recorded = {"step_time": "60 ms", "overrides": {"3": {"step_time": {"mean": "60 ms", "spread": 0.5}}}}
    assert str(recorded_step_times(recorded)) == "60 ms, node 3: 60 ms ± 50 %"  # type: ignore[arg-type]
    assert str(recorded_step_times({"threads": 1, "step_time": None})) == ""


def test_records_that_hold_something_else_are_refused() -> None:
    for content in ({"step_time": "fast"}, {"overrides": [1]}, {"overrides": {"x": {}}}, {"overrides": {"1": {}}}):
        with pytest.raises(ValueError, match="compute"):
            recorded_step_times(content)  # type: ignore[arg-type]
    assert recorded_step_times({"step_time": {"trace": "/a.csv"}}).drawn(2) is None
    assert recorded_step_times({"step_time": "1 s"}).drawn(2) == (SteadyStepTime(1.0),) * 2
