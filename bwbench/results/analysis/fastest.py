"""Which arm reaches the target first on each link, by how much, and whether that is certain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from bwbench.methods.roles import REFERENCE, may_win
from bwbench.results.analysis.arrival import Arrival
from bwbench.results.analysis.cells import DONE
from bwbench.results.analysis.statistics import Ratio, estimate, paired_ratio
from bwbench.results.analysis.tables import arrivals_by_seed


@dataclass(frozen=True)
class Fastest:
    """The race on one link.

    Attributes:
        arm: the first; None where no arm reached the target.
        time_s: its time.
        runner_up: the second; None where no other arm ran there.
        margin: how many times as fast the first is as the second, paired by seed; None where that cannot be said.
        tie: the interval of the margin holds 1; None where there is no interval.
        num: repeats of the first; ``composed``: some of its times are composed.
    """

    bandwidth_bps: float
    rtt_s: float
    arm: str | None
    time_s: float
    runner_up: str | None
    margin: Ratio | None
    tie: bool | None
    num: int
    composed: bool


def fastest_by_link(cells: pd.DataFrame) -> list[Fastest]:
    """The race on each link (bandwidth and round trip) that any arm ran on, rising in both.

    Args:
        cells: rows of ``tables.cells_table``; one node alone takes part everywhere.
    """
    cells = cells[cells["role"].map(may_win).astype(bool) & (cells["status"] == DONE)]
    everywhere = cells["bandwidth_bps"].isna() & (cells["role"] == REFERENCE)
    races = []
    for where, part in cells.groupby(["bandwidth_bps", "rtt_s"], sort=True):
        bandwidth_bps, rtt_s = (float(str(value)) for value in where)
        here = cells[everywhere | cells.index.isin(part.index)]
        arms = {str(arm): arrivals_by_seed(rows) for arm, rows in here.groupby("arm")}
        arms = {arm: arrivals for arm, arrivals in arms.items() if arrivals}
        if arms:
            composed = {str(arm): bool(rows["composed"].any()) for arm, rows in here.groupby("arm")}
            races.append(_race(bandwidth_bps, rtt_s, arms, composed))
    return races


def _race(
    bandwidth_bps: float, rtt_s: float, arms: Mapping[str, Mapping[int, Arrival]], composed: Mapping[str, bool]
) -> Fastest:
    centres = {arm: estimate(list(arrivals.values())) for arm, arrivals in arms.items()}
    first, *others = sorted(arms, key=lambda arm: (centres[arm].value, centres[arm].at_least, arm))
    if math.isinf(centres[first].value):
        return Fastest(bandwidth_bps, rtt_s, None, math.inf, None, None, None, 0, False)
    second = next(iter(others), None)
    margin = None if second is None else paired_ratio(arms[second], arms[first])
    tie = None if margin is None or margin.low is None else margin.low <= 1.0
    num = centres[first].num
    return Fastest(bandwidth_bps, rtt_s, first, centres[first].value, second, margin, tie, num, composed[first])
