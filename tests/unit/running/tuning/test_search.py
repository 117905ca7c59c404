"""Which learning rates a search tries, and which it takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.running.tuning.search import State, on_edge, search_grid, widened
from bwbench.training.loop.optimizers import Adam, AdamW, Sgd

GRID = Sgd.rates
COSTS = st.lists(st.integers(0, 5), min_size=len(GRID), max_size=len(GRID))


def test_the_grids_are_powers_of_two_around_the_usual_rate():
    assert GRID == (0.00625, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
    assert Adam.rates == AdamW.rates == (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016)


@pytest.mark.parametrize(("best", "tried"), [(0.05, 3), (0.1, 4), (0.2, 5), (0.4, 5), (0.025, 4), (0.00625, 5)])
def test_a_valley_is_found_from_the_middle_outwards(best, tried):
    found = search_grid(GRID, lambda rate: abs(GRID.index(rate) - GRID.index(best)))
    assert found.best == best and len(found.tried) == tried and not found.missing


@given(COSTS)
def test_the_result_is_no_worse_than_its_neighbours_and_all_that_was_tried(costs):
    cost = dict(zip(GRID, costs, strict=True))
    found = search_grid(GRID, cost.__getitem__)
    position = GRID.index(found.best)
    assert all(neighbour in found.tried for neighbour in GRID[max(0, position - 1) : position + 2])
    assert all(cost[found.best] <= cost[rate] for rate in found.tried)
    assert list(found.tried) == sorted(found.tried) and set(GRID[2:5]) <= set(found.tried)


@given(COSTS)
def test_a_search_that_goes_on_bit_by_bit_takes_the_same_way(costs):
    cost, known = dict(zip(GRID, costs, strict=True)), {}
    while (state := search_grid(GRID, known.get)).missing:
        rate = state.missing[0]
        assert state.best is None and rate not in known
        known[rate] = cost[rate]
    assert state == search_grid(GRID, cost.__getitem__)
    assert set(known) == set(state.tried), "nothing was trained in vain"


@given(COSTS, st.integers(0, 3))
def test_a_wider_grid_changes_only_what_was_on_the_edge(costs, steps):
    wide = widened(GRID, steps)
    cost = dict.fromkeys(wide, 0) | dict(zip(GRID, costs, strict=True))
    narrow, other = search_grid(GRID, cost.__getitem__), search_grid(wide, cost.__getitem__)
    assert len(wide) == len(GRID) + 2 * steps
    assert all(high == 2 * low for low, high in zip(wide, wide[1:], strict=False))
    assert other == narrow or on_edge(GRID, narrow.best)


def test_what_is_known_of_a_rate_counts_once_it_is_that_rates_turn():
    assert search_grid(GRID, {0.4: 0}.get) == State(GRID[2:5], GRID[2:5], None)
