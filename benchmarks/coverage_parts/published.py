"""How wide intervals of ratios are on published records, beside what bwbench used before: pairs of equal seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bwbench.records import iter_cells, readable
from bwbench.results.analysis.cells import DONE, cell_row, state_of
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.results import Reader, results_of
from bwbench.results.analysis.statistics import Arrival, by_seed, grid_floor, log_interval
from bwbench.results.section.time_and_accuracy import baseline_of


@dataclass(frozen=True)
class Widths:
    """Half-widths of the log of one ratio: as it is now, and as pairs gave it."""

    experiment: str
    n: int
    now: float
    before: float
    kin: bool
    timing_dominates: bool


def widths(results: Path) -> Iterator[Widths]:
    """Of every ratio to the experiment's baseline at which all repeats arrived."""
    folders, _ = readable(iter_cells(results))
    groups = results_of(folders, Reader())
    for group in groups:
        baseline = baseline_of([one for one in groups if one.experiment == group.experiment])
        if baseline is None:
            continue
        for bandwidth in group.bandwidths:
            arms: dict[str, list[dict[str, object]]] = {}
            for folder in group.group.at(bandwidth):
                if state_of(folder) == DONE:
                    arms.setdefault(folder.cell.arm, []).append(cell_row(folder))
            arrivals = {name: by_seed(rows) for name, rows in arms.items()}
            reference = arrivals.get(baseline, {})
            for name, arm in arrivals.items():
                if name != baseline and (found := _of_pair(group.experiment, reference, arm)) is not None:
                    yield found


def _of_pair(experiment: str, reference: dict[int, Arrival], arm: dict[int, Arrival]) -> Widths | None:
    ratio, seeds = ratio_of(reference, arm), sorted(reference.keys() & arm.keys())
    pairs = [(reference[seed], arm[seed]) for seed in seeds]
    if ratio is None or ratio.error is None or len(pairs) < 2:
        return None
    if any(one.time_s is None or other.time_s is None for one, other in pairs):
        return None
    ends = log_interval([math.log(one.middle_s / other.middle_s) for one, other in pairs])
    assert ends is not None
    floor = grid_floor([[one for one, _ in pairs], [other for _, other in pairs]])
    before = max((ends[1] - ends[0]) / 2, floor)
    return Widths(
        experiment, len(pairs), ratio.error.half_width(), before, ratio.paired, ratio.dominant == "timing runs"
    )


def summary(found: list[Widths]) -> Iterator[dict[str, object]]:
    """One row for all, one a number of pairs, one for kin: quotients of widths, now over before."""
    parts = {"all": found, "kin": [one for one in found if one.kin], "others": [one for one in found if not one.kin]}
    parts |= {f"n = {n}": [one for one in found if one.n == n] for n in sorted({one.n for one in found})}
    for name, part in parts.items():
        if not part:
            continue
        quotients = sorted(one.now / one.before for one in part if one.before > 0)
        yield {
            "what": name,
            "ratios": len(part),
            "now_median": statistics.median(one.now for one in part),
            "before_median": statistics.median(one.before for one in part),
            "now_p90": sorted(one.now for one in part)[int(0.9 * (len(part) - 1))],
            "before_p90": sorted(one.before for one in part)[int(0.9 * (len(part) - 1))],
            "narrower_share": sum(quotient < 1 for quotient in quotients) / max(1, len(quotients)),
            "quotient_median": statistics.median(quotients) if quotients else math.nan,
            "timing_dominates_share": sum(one.timing_dominates for one in part) / len(part),
        }
