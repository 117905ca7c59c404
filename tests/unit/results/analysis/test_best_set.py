"""The best set: who may be the fastest."""

from __future__ import annotations

import math
import random

import pytest

from bwbench.results.analysis.best_set import best_set
from bwbench.results.analysis.statistics import Arrival


def arm(*times_s: float | None) -> dict[int, Arrival]:
    return {seed: Arrival(time_s, 100.0 if time_s is None else None) for seed, time_s in enumerate(times_s)}


def test_who_is_certainly_slower_is_not_in_it() -> None:
    found = best_set({"slow": arm(40.0, 41.0, 42.0), "quick": arm(10.0, 10.5, 10.2), "near": arm(10.4, 10.9, 10.1)})
    assert (found.first, found.members, found.untold) == ("quick", ("quick", "near"), ())
    assert list(found.times) == ["quick", "near", "slow"]
    assert found.behind["slow"] is not None and found.behind["slow"].value == pytest.approx(4.0, rel=0.01)


def test_single_repeats_leave_it_untold() -> None:
    found = best_set({"one": arm(10.0), "two": arm(40.0)})
    assert found.members == ("one", "two") and found.untold == ("two",)


def test_who_never_arrives_is_out_where_its_limit_says_so() -> None:
    found = best_set({"quick": arm(10.0, 11.0, 10.5), "never": arm(None, None, None)})
    assert found.members == ("quick",)
    found = best_set({"quick": arm(90.0, 99.0, 99.5), "never": arm(None, None, None)})
    assert found.members == ("quick", "never") and found.untold == ("never",)


def test_nobody_is_first_where_nobody_arrives() -> None:
    found = best_set({"a": arm(None, None), "b": arm(None), "c": {}})
    assert found.first is None and found.members == () and list(found.times) == ["a", "b"]
    assert best_set({}).first is None


def test_more_arms_ask_more_of_each() -> None:
    times = {"quick": arm(10.0, 10.6, 11.2, 10.2), "slower": arm(11.6, 12.3, 12.8, 11.9)}
    assert best_set(times).members == ("quick",)
    others = {f"slow{number}": arm(60.0, 61.0, 62.0) for number in range(60)}
    assert best_set({**times, **others}).members == ("quick", "slower")


def test_the_truly_fastest_is_in_it_although_it_is_the_noisy_one() -> None:
    rng = random.Random(5)
    inside = 0
    for _ in range(400):
        arms = {
            f"quiet{number}": {seed: Arrival(1.1 * math.exp(rng.gauss(0.0, 0.05))) for seed in range(5)}
            for number in range(5)
        }
        arms["noisy"] = {seed: Arrival(math.exp(rng.gauss(0.0, 0.3))) for seed in range(5)}
        inside += "noisy" in best_set(arms).members
    assert inside / 400 >= 0.95
