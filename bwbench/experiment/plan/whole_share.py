"""Which cells of a composed sweep run whole as well: spread over links and arms, so that no error stays hidden."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence

from bwbench.experiment.config.mode import WholeConfig
from bwbench.experiment.plan.cell import Cell


def choose_whole(
    cells: Sequence[Cell], whole: WholeConfig, cost_s: Callable[[Cell], float] | None = None
) -> list[Cell]:
    """The cells to run whole, in the order in which they were chosen. Pure.

    One after the other a pair of link and arm gives a cell, whichever has been taken least often. So every link and
    every arm comes once before any comes twice, as far as there are enough.

    Args:
        cells: those that are composed.
        cost_s: predicted seconds of a cell, where ``whole.time_s`` sets a limit. Beyond ``at_least`` cells, one that
            does not fit any more is passed over.
    """
    wanted = min(len(cells), max(whole.at_least, math.ceil(whole.share * len(cells) - 1e-9)))
    waiting: dict[tuple[str, str], deque[Cell]] = {}
    for cell in cells:
        waiting.setdefault((cell.config.link.describe(), cell.arm), deque()).append(cell)
    chosen: list[Cell] = []
    taken: Counter[tuple[str, str]] = Counter()
    links: Counter[str] = Counter()
    arms: Counter[str] = Counter()
    spent_s = 0.0
    while waiting and len(chosen) < wanted:
        pair = min(waiting, key=lambda p: (taken[p], links[p[0]] + arms[p[1]], max(links[p[0]], arms[p[1]])))
        cell = waiting[pair].popleft()
        if not waiting[pair]:
            del waiting[pair]
        needed_s = cost_s(cell) if cost_s is not None and whole.time_s is not None else 0.0
        if len(chosen) >= whole.at_least and whole.time_s is not None and spent_s + needed_s > whole.time_s:
            continue
        spent_s += needed_s
        chosen.append(cell)
        taken[pair] += 1
        links[pair[0]] += 1
        arms[pair[1]] += 1
    return chosen
