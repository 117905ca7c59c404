"""How ``deco-sgd`` chooses: pure functions, beside numbers that can be done in one's head, and on links that change."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.load import load_experiment
from bwbench.methods.algorithms.deco_choice import (
    KEEP,
    DecoSetting,
    DecoSgdConfig,
    Flown,
    WindowMeasured,
    choose,
    rate_bps,
    slowest,
    step_s,
    steps_needed,
)

ELEMENTS = 200_000  # of a model; three others to send to
COSTS = {"ratio_cost": 0.005, "staleness_cost": 0.05}  # of a training that bears staleness better than the defaults say


def bytes_at(ratio: float) -> float:
    return 3 * 5.0 * ratio * ELEMENTS


def chosen_at(mbps: float, latency_ms: float = 5, compute_ms: float = 50, **options: object) -> DecoSetting:
    config = DecoSgdConfig(**{**COSTS, **options})
    found = choose(config, WindowMeasured(mbps * 1e6, latency_ms / 1e3, compute_ms / 1e3), config.first, bytes_at)
    return DecoSetting(found.ratio, found.staleness)


def test_a_step_takes_what_takes_longest() -> None:
    link = WindowMeasured(rate_bps=8e6, latency_s=0.1, compute_s=0.05)
    assert step_s(link, 0, 0) == pytest.approx(0.15)  # all of it, one after the other
    assert step_s(link, 0, 2) == pytest.approx(0.05)  # hidden: computing alone
    assert step_s(link, 0, 1) == pytest.approx(0.075)  # half of 0.15: the way does not fit into one step
    assert step_s(link, 200_000, 9) == pytest.approx(0.2)  # sending, however late it may be


def test_the_more_is_left_out_and_the_later_it_comes_the_more_steps_are_needed() -> None:
    assert steps_needed(DecoSetting(1.0, 0), 0.005, 0.05) == 1.0
    assert steps_needed(DecoSetting(1.0, 4), 0.005, 0.05) == pytest.approx(1.2)
    assert steps_needed(DecoSetting(0.01, 0), 0.005, 0.05) == pytest.approx(1.495)
    worse = [steps_needed(DecoSetting(0.1, late), 1.0, 0.0) - 1 for late in range(4)]
    assert all(b / a == pytest.approx(1 / 0.95) for a, b in zip(worse, worse[1:], strict=False))


def test_a_rate_counts_an_exchange_from_its_turn() -> None:
    alone = [Flown(0.0, 0.3, 100_000), Flown(1.0, 1.3, 100_000)]
    assert rate_bps(alone, latency_s=0.1) == pytest.approx(4e6)  # 0.2 s each
    behind = [Flown(0.0, 0.3, 100_000), Flown(0.05, 0.5, 100_000), Flown(0.06, 0.7, 100_000)]
    assert rate_bps(behind, latency_s=0.1) == pytest.approx(4e6)
    assert rate_bps([], latency_s=0.1) == 0.0
    assert math.isfinite(rate_bps([Flown(0.0, 0.0, 1000)], latency_s=1.0))


def test_those_who_compute_longest_are_asked_what_the_link_does() -> None:
    """The others wait for them, and would take that for a slow link."""
    straggler, waiting = WindowMeasured(8e6, 0.01, 0.1), WindowMeasured(1e6, 0.02, 0.05)
    assert slowest([waiting, straggler, waiting]) == WindowMeasured(8e6, 0.02, 0.1)
    alike = [WindowMeasured(8e6, 0.01, 0.1), WindowMeasured(2e6, 0.01, 0.099)]
    assert slowest(alike) == WindowMeasured(2e6, 0.01, 0.1)
    assert slowest([WindowMeasured(0.0, 0.01, 0.1)]) is None


def test_a_slower_link_is_sent_less_and_a_longer_one_is_given_more_time() -> None:
    by_rate = [chosen_at(mbps).ratio for mbps in (0.3, 1, 3, 10, 30, 100, 1000)]
    assert by_rate == sorted(by_rate) and by_rate[0] < 0.004 and by_rate[-1] > 0.05
    by_latency = [chosen_at(10, latency).staleness for latency in (0.1, 40, 120, 300)]
    assert by_latency == sorted(by_latency) and by_latency[0] <= 1 and by_latency[-1] == 4
    assert chosen_at(10_000, 0.01, staleness_cost=0.2).staleness == 0


def test_what_is_fixed_stays_and_bounds_hold() -> None:
    for mbps in (0.1, 10, 10_000):
        assert chosen_at(mbps, ratio=0.02).ratio == 0.02
        assert chosen_at(mbps, staleness=3).staleness == 3
        assert 0.004 <= chosen_at(mbps, least_ratio=0.004, most_ratio=0.016).ratio <= 0.0161


def test_what_is_there_stays_where_another_would_hardly_be_faster() -> None:
    config = DecoSgdConfig(**COSTS)
    link = WindowMeasured(10e6, 0.005, 0.05)
    best = choose(config, link, DecoSetting(0.001, 4), bytes_at)
    place = config.ratios.index(best.ratio)
    for near in (DecoSetting(config.ratios[place + apart], best.staleness) for apart in (-1, 1)):
        predicted = [
            step_s(link, bytes_at(one.ratio), one.staleness)
            * steps_needed(one, config.ratio_cost, config.staleness_cost)
            for one in (near, DecoSetting(best.ratio, best.staleness))
        ]
        again = choose(config, link, near, bytes_at)
        assert (again.ratio == near.ratio) == (predicted[0] <= (1 + KEEP) * predicted[1])
    assert choose(config, link, DecoSetting(best.ratio, best.staleness), bytes_at) == best


@given(
    st.floats(1e3, 1e10),
    st.floats(0, 2),
    st.floats(1e-4, 10),
    st.sampled_from(DecoSgdConfig().ratios),
    st.integers(0, 4),
)
def test_a_choice_is_allowed_the_same_for_all_and_said(
    rate: float, latency: float, compute: float, ratio: float, late: int
) -> None:
    config, link, present = DecoSgdConfig(), WindowMeasured(rate, latency, compute), DecoSetting(ratio, late)
    found = choose(config, link, present, bytes_at)
    assert found == choose(config, link, present, bytes_at)
    assert found.ratio in config.ratios and found.staleness in config.stalenesses
    assert found.step_s >= compute and "of computing" in found.why
    assert (found.rate_bps, found.latency_s, found.compute_s) == (rate, latency, compute)


COMPUTE_S, LATENCY_S = 0.05, 0.02
RateAt = Callable[[float], float]


def sending_s(rate_at: RateAt, begin_s: float, ratio: float) -> float:
    """How long an exchange takes that begins then, by the rate of each moment."""
    left, now_s, piece_s = 8.0 * bytes_at(ratio), begin_s, 0.005
    while left > 0.0:
        left -= rate_at(now_s) * piece_s
        now_s += piece_s
    return max(1e-4, now_s - begin_s + left / rate_at(now_s))


def time_s(rate_at: RateAt, progress: float, config: DecoSgdConfig) -> float:
    """Time for as much progress as so many steps with whole gradients make; each choice comes a window late."""
    setting, now_s, made, flown = config.first, 0.0, 0.0, list[Flown]()
    measured: WindowMeasured | None = None
    for step in count(1):
        if made >= progress:
            return now_s
        begun_s, now = now_s, sending_s(rate_at, now_s, setting.ratio)
        now_s += max(COMPUTE_S, now, (COMPUTE_S + LATENCY_S + now) / (setting.staleness + 1))
        flown.append(Flown(begun_s, begun_s + LATENCY_S + now, round(bytes_at(setting.ratio))))
        made += 1.0 / steps_needed(setting, config.ratio_cost, config.staleness_cost)
        if measured is not None:
            found = choose(config, measured, setting, bytes_at)
            setting, measured = DecoSetting(found.ratio, found.staleness), None
        if step % config.window == 0 and config.adapts:
            measured, flown = WindowMeasured(rate_bps(flown, LATENCY_S), LATENCY_S, COMPUTE_S), []
    raise AssertionError


def square(high_mbps: float, low_mbps: float, period_s: float) -> RateAt:
    return lambda now_s: 1e6 * (high_mbps if now_s % period_s < period_s / 2 else low_mbps)


def walk(now_s: float) -> float:
    """From 0.5 to 40 Mbit/s and back, in seconds."""
    return 1e6 * 0.5 * 80.0 ** (0.5 + 0.5 * math.sin(0.4 * now_s + math.sin(0.23 * now_s)))


def unrelated(now_s: float) -> float:
    """Another rate every second, that the one before says nothing about."""
    return 1e6 * 0.5 * 80.0 ** (0.5 + 0.5 * math.sin(1.7 * math.floor(now_s) + math.sin(0.9 * math.floor(now_s))))


@pytest.mark.parametrize(
    ("rate_at", "gain"),
    [
        pytest.param(square(20, 1, 10), 0.99, id="two rates, 5 s each"),
        pytest.param(square(100, 3, 20), 0.9, id="two rates, 10 s each"),
        pytest.param(walk, 0.95, id="a wave"),
        pytest.param(lambda now_s: 1e4 if 10 <= now_s % 30 < 14 else 30e6, 1.03, id="outages"),
        pytest.param(lambda now_s: 10e6, 1.01, id="steady"),
        pytest.param(unrelated, 1.2, id="nothing that could be known"),  # where it loses, and how much
    ],
)
def test_on_a_link_that_changes_it_is_faster_than_any_fixed_setting(rate_at: RateAt, gain: float) -> None:
    """By its own model, whose best fixed setting is known afterwards only."""
    adaptive_s = time_s(rate_at, 1200, DecoSgdConfig(**COSTS))
    fixed = [
        time_s(rate_at, 1200, DecoSgdConfig(ratio=ratio, staleness=late, **COSTS))
        for ratio, late in product(DecoSgdConfig().ratios[4:12], (1, 2))
    ]
    assert adaptive_s < gain * min(fixed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ratio": 0.0}, "ratio 0 is out of range"),
        ({"ratio": 1.5}, "ratio 1.5 is out of range"),
        ({"staleness": -1}, "staleness -1 is out of range: 0 to 32"),
        ({"least_ratio": 0.5, "most_ratio": 0.1}, "least_ratio 0.5 is above most_ratio 0.1"),
        ({"window": 4}, "write 'window: 5' or more"),
        ({"window": 4, "staleness": 6}, "write 'window: 7' or more"),
        ({"ratio": "fast"}, "auto"),
        ({"ratio_cost": -1.0}, "ratio_cost"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_line(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError):
        DecoSgdConfig(**options)
    file = tmp_path / "deco.yaml"
    written = ", ".join(f"{key}: {value}" for key, value in options.items())
    base = "name: deco\nnodes: 4\nlink: unshaped\nmodel: mlp\ndataset: digits\n"
    file.write_text(f"{base}algorithm: {{deco-sgd: {{{written}}}}}\n")
    with pytest.raises(ConfigError, match=words) as caught:
        load_experiment(file)
    assert f"{file.name}:6" in str(caught.value)


def test_nothing_is_chosen_where_both_are_numbers() -> None:
    assert DecoSgdConfig(ratio=0.5, staleness=0, window=2).first == DecoSetting(0.5, 0)
    assert not DecoSgdConfig(ratio=0.5, staleness=0).adapts
    assert DecoSgdConfig().first == DecoSetting(DecoSgdConfig().first.ratio, 1)
    assert DecoSgdConfig().first.ratio == pytest.approx(0.01, rel=0.2)
    assert DecoSgdConfig(most_staleness=0).first.staleness == 0
