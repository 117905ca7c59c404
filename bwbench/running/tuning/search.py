"""Which learning rates to try: the middle three of a grid, then outwards while the best is outermost. Pure.

Nobody gets more tries than another: what is tried follows from the costs alone, and every arm has the same grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

START = 3  # rates that are tried in any case


@dataclass(frozen=True)
class State:
    """How far a search is.

    Attributes:
        tried: the rates that are needed so far, rising; those without a cost yet included.
        missing: those without a cost; empty once the search has ended.
        best: the rate of least cost, of equal ones the lowest; None until the search has ended.
    """

    tried: tuple[float, ...]
    missing: tuple[float, ...]
    best: float | None


def search(grid: Sequence[float], cost: Callable[[float], Any]) -> State:
    """Follow the search as far as costs are known.

    Args:
        grid: learning rates, rising, ``START`` or more.
        cost: of a rate, anything that can be compared; None where it is not known yet. A function that finds it out
            makes this the whole search.
    """
    first = (len(grid) - START) // 2
    tried = list(grid[first : first + START])
    while True:
        costs = {rate: cost(rate) for rate in tried}
        missing = tuple(rate for rate in tried if costs[rate] is None)
        if missing:
            return State(tuple(tried), missing, None)
        best = min(tried, key=lambda rate: costs[rate])
        position = list(grid).index(best)
        around = [grid[index] for index in (position - 1, position + 1) if 0 <= index < len(grid)]
        new = [rate for rate in around if rate not in costs]
        if not new:
            return State(tuple(tried), (), best)
        tried = sorted([*tried, *new])


def widened(grid: Sequence[float], steps: int) -> tuple[float, ...]:
    """The grid with ``steps`` more powers of two at both ends."""
    below = [grid[0] / 2.0**power for power in range(steps, 0, -1)]
    return (*below, *grid, *(grid[-1] * 2.0**power for power in range(1, steps + 1)))


def on_edge(grid: Sequence[float], rate: float) -> bool:
    """Whether a better rate may lie beyond the grid."""
    return rate in (grid[0], grid[-1])
