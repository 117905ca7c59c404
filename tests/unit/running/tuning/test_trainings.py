"""Which trainings a search asks for, when its grid grows, and which rate several seeds point at."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.running.tuning.trainings import (
    BEST,
    SEEDS,
    Judgement,
    Training,
    budget_of,
    decide,
    follow,
    grown,
    outermost,
    vertex_of,
)
from bwbench.training.loop.optimizers import Adam, AdamW, Sgd

GRID = Sgd.rates
LIMIT = 60_000
BUDGET = budget_of(len(GRID))
JUDGED = st.builds(Judgement, st.none() | st.floats(100, 40_000), st.none() | st.floats(0.1, 3), st.booleans())


def valley(best, noise=0.0, seed=0):
    """Twice as many samples at a rate four times off; the same for the same training."""

    def known(training):
        luck = random.Random(repr((seed, training.rate, training.variant, training.number))).gauss(0, noise)
        return Judgement(2000 * 2 ** ((math.log2(training.rate / best) / 2) ** 2) * math.exp(luck), 0.3)

    return known


def test_the_grids_are_powers_of_two_around_the_usual_rate():
    assert GRID == (0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
    assert Adam.rates == AdamW.rates == (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)
    assert all(high == 2 * low for low, high in zip(grown(GRID, 1, 3), grown(GRID, 1, 3)[1:], strict=False))


def test_seventeen_trainings_every_rate_once_and_the_five_best_with_two_more_seeds():
    found = follow(GRID, 1, BUDGET, LIMIT, valley(0.06))
    assert BUDGET == 17 == len(found.trainings) == len(set(found.trainings)) and not found.missing
    assert [training.rate for training in found.trainings[:7]] == list(GRID)
    again = found.trainings[7:]
    assert {training.rate for training in again} == {0.0125, 0.025, 0.05, 0.1, 0.2}
    assert all(sum(t.rate == rate for t in found.trainings) == SEEDS for rate in {t.rate for t in again})


@pytest.mark.parametrize("best", [0.02, 0.037, 0.05, 0.08, 0.15])
def test_a_valley_is_found_between_the_rates_of_the_grid(best):
    found = follow(GRID, 1, BUDGET, LIMIT, valley(best)).best
    assert found.rate == pytest.approx(best, rel=0.01) and found.fitted and not found.on_edge
    assert found.samples == pytest.approx(2000, rel=0.01) and found.loss is None


def test_several_seeds_are_closer_to_the_best_rate_than_one():
    one, several = [], []
    for seed in range(60):
        known = valley(0.06, 0.15, seed)
        several.append(abs(math.log2(follow(GRID, 1, BUDGET, LIMIT, known).best.rate / 0.06)))
        one.append(abs(math.log2(min(GRID, key=lambda rate: known(Training(rate)).cost) / 0.06)))  # noqa: B023
    assert sum(several) < 0.6 * sum(one)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.builds(Training, st.sampled_from(GRID), st.just(0), st.integers(0, 12)), JUDGED))
def test_every_search_asks_for_the_same_number_and_goes_on_bit_by_bit(judged):
    def whole(training):
        return judged.get(training, Judgement(loss=1.0))

    known = {}
    while (state := follow(GRID, 1, BUDGET, LIMIT, known.get)).missing:
        assert state.best is None and not set(state.missing) & set(known)
        known[state.missing[0]] = whole(state.missing[0])
    assert state == follow(GRID, 1, BUDGET, LIMIT, whole)
    assert set(known) == set(state.trainings), "nothing was trained in vain"
    everywhere = all(whole(Training(rate)).diverged or whole(Training(rate)) == Judgement() for rate in GRID)
    assert len(state.trainings) == (len(GRID) if everywhere else BUDGET)


@pytest.mark.parametrize(("best", "end"), [(0.0001, -1), (8.0, 1), (0.05, 0)])
def test_a_grid_whose_end_is_best_shall_grow_there(best, end):
    assert outermost(GRID, valley(best)) == end
    assert outermost(GRID, lambda training: None) == 0
    assert outermost(GRID, lambda training: Judgement(diverged=True)) == 0
    if end:
        assert follow(GRID, 1, BUDGET, LIMIT, valley(best)).best.on_edge


def test_rates_at_which_training_diverges_are_out_whatever_they_reached():
    def known(training):
        return Judgement(10, 0.1, diverged=True) if training.rate > 0.1 else valley(0.2)(training)

    found = follow(GRID, 1, BUDGET, LIMIT, known)
    assert 0.05 < found.best.rate <= 0.1 and len(found.trainings) == BUDGET
    assert not found.best.on_edge, "there are rates beyond, and they diverge"
    late = {rate: [valley(0.2)(Training(rate)), Judgement(1000.0, diverged=rate == 0.2)] for rate in GRID[2:]}
    assert decide(late, GRID, 0, LIMIT).rate <= 0.1, "nor beyond a rate at which one seed diverged"
    assert follow(GRID, 1, BUDGET, LIMIT, lambda training: Judgement(diverged=True)).best is None


def test_what_does_not_arrive_is_judged_by_its_loss():
    losses = {rate: [Judgement(loss=1 + math.log2(rate / 0.03) ** 2)] * 3 for rate in GRID[1:6]}
    found = decide(losses, GRID, 0, LIMIT)
    assert found.rate == pytest.approx(0.03, rel=0.3) and found.samples is None and found.loss > 0
    assert decide({0.1: [Judgement()] * 3}, GRID, 0, LIMIT) is None


def test_a_few_rates_that_arrive_beat_all_that_do_not():
    some = {rate: [Judgement(loss=0.1)] * 3 for rate in GRID[1:6]}
    some[0.05] = [Judgement(30_000, 0.5), Judgement(35_000, 0.5), Judgement(None, 0.5)]
    found = decide(some, GRID, 0, LIMIT)
    assert found.rate == 0.05 and not found.fitted
    assert 35_000 < found.samples < 60_000, "the one that did not arrive counts as the limit"
    some[0.05] = [Judgement(30_000, 0.5), Judgement(None, 0.5), Judgement(None, 0.5)]
    assert decide(some, GRID, 0, LIMIT).samples is None, "most do not arrive"


def test_the_lowest_point_of_a_parabola():
    values = {rate: 3 + 0.5 * (math.log2(rate) + 4.2) ** 2 for rate in GRID[:5]}
    rate, value = vertex_of(values)
    assert (math.log2(rate), value) == (pytest.approx(-4.2), pytest.approx(3))
    uneven = {rate: values[rate] for rate in (GRID[0], GRID[1], GRID[4])}
    assert vertex_of(uneven) == (pytest.approx(rate), pytest.approx(3))
    falling = {rate: (math.log2(rate) - 10) ** 2 for rate in GRID}
    assert vertex_of(falling)[0] == pytest.approx(GRID[-1]), "not beyond what was trained"
    assert vertex_of({rate: -((math.log2(rate) + 4) ** 2) for rate in GRID}) is None
    assert vertex_of(dict.fromkeys(GRID, 1.0)) is None
    assert vertex_of({0.1: 1.0, 0.2: 2.0}) is None


@pytest.mark.parametrize("variants", [2, 4])
def test_variants_train_within_the_same_budget(variants):
    budget = budget_of(len(GRID), variants)
    assert budget == 17 + 3 * (variants - 1)

    def known(training):
        found = valley(0.05 if training.variant == 0 else 0.1)(training)
        return Judgement(found.samples * (0.7 if training.variant == 1 else 1.0), 0.3)

    found = follow(GRID, variants, budget, LIMIT, known)
    assert len(found.trainings) == budget == len(set(found.trainings))
    assert found.best.variant == 1 and found.best.rate == pytest.approx(0.1, rel=0.1)
    assert {t.rate for t in found.trainings if t.variant == variants - 1} >= {0.025, 0.05, 0.1}
    plain = follow(GRID, 1, budget, LIMIT, known)
    assert len(plain.trainings) == budget, "an arm without options of its own gets more seeds for them"
    assert max(sum(t.rate == rate for t in plain.trainings) for rate in GRID) >= SEEDS + 3 * (variants - 1) // BEST


def test_equal_variants_leave_the_one_that_the_experiment_gives():
    found = follow(GRID, 3, budget_of(len(GRID), 3), LIMIT, valley(0.05))
    assert found.best.variant == 0
