"""Claims that compare arms: ratios, differences, the best arms, and crossovers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from bwbench.base.plain_data import mapping_at
from bwbench.methods.roles import may_win
from bwbench.records import CellFolder
from bwbench.results.analysis.arrival import FIRST_CROSSING
from bwbench.results.analysis.best_set import best_set
from bwbench.results.analysis.cell_arrival import arrival_of_cell, at_target
from bwbench.results.analysis.cells import DONE, cell_row, is_composed, setting_of_cell, standing_of, state_of
from bwbench.results.analysis.crossover import (
    ABOVE,
    BELOW,
    ONE,
    SEVERAL,
    Crossover,
    Crossovers,
    Measured,
    Scale,
    find_crossovers,
    scale_of,
)
from bwbench.results.analysis.difference import Difference, difference_of
from bwbench.results.analysis.ratio import Ratio, ratio_of
from bwbench.results.analysis.statistics import Arrival, by_seed, number
from bwbench.results.analysis.taken_apart import take_apart
from bwbench.results.analysis.throughput import seconds_a_sample
from bwbench.results.section.content import side_of
from paper.program.claim import RATE, Claim, Unit, Value
from paper.program.claimed_cells import MissingRecordsError, Records, cells_of, how_to_make, matches

_COLUMNS = {"samples": "samples_to_target", "wire bytes": "wire_bytes_to_target", "final": "final_metric",
            "test": "test_metric"}  # fmt: skip


def ratio_claim(claim: Claim, records: Records) -> Value:
    """Reference over arm: above 1 the arm is faster, or needs less."""
    folders, over = records.of(claim.experiment), claim.over or claim.arm
    arm = asked(claim, cells_of(folders, claim.name, claim.experiment, claim.arm, claim.where))
    reference = asked(claim, cells_of(folders, claim.name, claim.experiment, over, claim.reference_where))
    if claim.of in ("wire bytes", "wire bytes per step"):
        mine, others = ({s: math.log(v) for s, v in quantities(cells, claim.of).items()} for cells in (arm, reference))
        logs = _difference(claim, others, mine, kin=_are_kin(arm, reference))
        low, high = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
        centre = math.exp(logs.value)
        value = Value("ratio", centre, logs.num, low, high, side=side_of(centre, low, high, ""))
        return with_cells(value, arm, reference, crossings=claim.of == "wire bytes")
    found = _time_like(claim, *(_arrivals(claim, side) for side in (reference, arm)))
    value = _of_ratio(claim, found, [*arm, *reference])
    if claim.of == "step time" and all(map(is_composed, [*arm, *reference])):
        runs = [number(cell_row(one).get("timing_runs")) or 1 for one in [*arm, *reference]]
        return replace(value, num_timed=int(min(runs)))
    return value


def asked(claim: Claim, cells: list[CellFolder]) -> list[CellFolder]:
    """The cells at the claim's own target, where it has one."""
    return cells if claim.target is None else at_target(cells, (metric_of(cells), claim.target))


def _arrivals(claim: Claim, cells: Sequence[CellFolder]) -> dict[int, Arrival]:
    """Times to target; where cells have none, and samples a second are asked for, seconds a sample."""
    return seconds_a_sample(map(cell_row, cells)) if claim.of == RATE else arrivals_of(cells)


def _time_like(claim: Claim, reference: Mapping[int, Arrival], arm: Mapping[int, Arrival]) -> Ratio | None:
    if claim.of in ("time", RATE):
        return ratio_of(reference, arm)
    apart = take_apart(reference, arm)
    return None if apart is None else apart.step if claim.of == "step time" else apart.samples


def _of_ratio(claim: Claim, ratio: Ratio | None, cells: Sequence[CellFolder]) -> Value:
    if ratio is None:
        raise MissingRecordsError(
            f"claim {claim.name!r}: too few repeats of both sides reach the target to compare them"
        )
    side = side_of(ratio.value, ratio.low, ratio.high, ratio.bound)
    value = Value("ratio", ratio.value, ratio.num, ratio.low, ratio.high, ratio.bound, side)
    return with_cells(value, cells, num_censored=ratio.num_censored, crossings=claim.of not in ("step time", RATE))


def difference_claim(claim: Claim, records: Records) -> Value:
    """Final metric of the arm less that of the reference."""
    arm = cells_of(records.of(claim.experiment), claim.name, claim.experiment, claim.arm, claim.where)
    reference = cells_of(records.of(claim.experiment), claim.name, claim.experiment, claim.over, claim.reference_where)
    quantity = claim.of if claim.of in ("final", "test") else "final"
    found = _difference(claim, quantities(arm, quantity), quantities(reference, quantity), kin=_are_kin(arm, reference))
    unit: Unit = "points" if metric_of(arm) == "accuracy" else "number"
    side = side_of(found.value, found.low, found.high, "", 0.0)
    return with_cells(Value(unit, found.value, found.num, found.low, found.high, side=side), arm, reference)


def _difference(claim: Claim, arm: Mapping[int, float], reference: Mapping[int, float], *, kin: bool) -> Difference:
    found = difference_of(arm, reference, kin=kin)
    if found is None:
        raise MissingRecordsError(f"claim {claim.name!r}: one side has no {claim.of}; {how_to_make(claim.experiment)}")
    return found


def _are_kin(*sides: Sequence[CellFolder]) -> bool:
    return len({str(cell_row(folder)["kin"]) for side in sides for folder in side}) == 1


def fastest_claim(claim: Claim, records: Records) -> Value:
    """The best set: ``words`` hold the arm with the shortest time and, each after a ``|``, who may be as fast.

    Where nobody may, the next arm alone stands behind it, and ``side`` is 1; the value is the ratio to the next arm.
    """
    here = [folder for folder in records.done(claim.experiment) if matches(folder, claim.where)]
    names = sorted({str(folder.cell.arm) for folder in here if may_win(standing_of(folder.cell).role)})
    arms = [name for name in names if not claim.arms or name in claim.arms]
    if len(arms) < 2:
        make = how_to_make(claim.experiment)
        raise MissingRecordsError(f"claim {claim.name!r}: experiment {claim.experiment} has no two arms there; {make}")
    cells = {arm: asked(claim, cells_of(here, claim.name, claim.experiment, arm, claim.where)) for arm in arms}
    found = best_set({arm: arrivals_of(of_arm) for arm, of_arm in cells.items()})
    if found.first is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no arm reaches the target there in most of its repeats")
    order = list(found.times)
    value = _of_ratio(claim, found.behind[order[1]], [*cells[order[0]], *cells[order[1]]])
    tied = found.members[1:]
    words = "|".join([found.first, *(tied or order[1:2])])
    return Value(**{**vars(value), "side": int(not tied), "words": words, "beside": order[1]})


def crossover_claim(claim: Claim, records: Records) -> Value:
    """The crossover over all bandwidths at which both arms are done and not host-bound; ``words``: why there is none.

    Raises MissingRecordsError where both are done at fewer than two bandwidths.
    """
    folders = records.of(claim.experiment)
    here = [folder for folder in folders if state_of(folder) == DONE and matches(folder, claim.where)]
    by_arm = {arm: [f for f in here if f.cell.arm == arm] for arm in (claim.arm, claim.over)}
    rates = [_rates(cells) for cells in by_arm.values()]
    shared = sorted((rates[0] & rates[1]) if all(rates) else (rates[0] or rates[1]))  # one without a link fits all
    if not by_arm[claim.arm] or not by_arm[claim.over] or len(shared) < 2:
        raise MissingRecordsError(
            f"claim {claim.name!r}: experiment {claim.experiment} has {claim.arm} and {claim.over} together at "
            f"{len(shared)} bandwidths, a crossover needs two; {how_to_make(claim.experiment)}"
        )
    measured: list[Measured] = []
    used: list[CellFolder] = []
    for bps in shared:
        pair = [[f for f in by_arm[arm] if _rate(f) in (bps, None)] for arm in (claim.over, claim.arm)]
        sides = [
            asked(claim, cells_of(cells, claim.name, claim.experiment, arm, claim.where))
            for cells, arm in zip(pair, (claim.over, claim.arm), strict=True)
        ]
        used += [folder for side in sides for folder in side]
        if any(records.is_host_bound(folder) for side in sides for folder in side):
            continue
        measured.append(Measured(bps, *(arrivals_of(side) for side in sides)))
    if len(measured) < 2 and len(shared) > len(measured):
        why = f"{len(shared) - len(measured)} of {len(shared)} bandwidths are host-bound"
        return with_cells(Value("words", None, len({setting_of_cell(f).seed for f in used}), words=why), used)
    found = find_crossovers(measured)
    value = _of_crossovers(found, scale_of(used), as_scale=claim.part == "scale")
    if claim.part == "inverse" and value.value is not None:
        value = replace(value, value=_by_inverse(measured), low=None, high=None)
    all_told = found.kind in (ABOVE, BELOW) and len(measured) == len(shared) and _are_told_alike(measured)
    return with_cells(replace(value, all_told=all_told), used, crossings=True)


def _by_inverse(measured: Sequence[Measured]) -> float | None:
    """The crossover where times are a + b/B between the two links around it: the inverse of a ratio is a line there.

    A line in logarithms, as the interval has it, lies below that, and puts the crossover at a higher bandwidth.
    """
    points = [(1.0 / one.bandwidth_bps, found.value) for one in measured if (found := ratio_of(one.reference, one.arm))]
    for (one, ratio), (other, next_ratio) in pairwise(points):
        if (ratio - 1.0) * (next_ratio - 1.0) < 0.0:
            weight = (1.0 - 1.0 / ratio) / (1.0 / next_ratio - 1.0 / ratio)
            return 1.0 / (one + weight * (other - one))
    return None


def _are_told_alike(measured: Sequence[Measured]) -> bool:
    """Whether at each bandwidth the same of the two is certainly the faster one."""
    ratios = [ratio_of(place.reference, place.arm) for place in measured]
    sides = {0 if one is None else side_of(one.value, one.low, one.high, one.bound) for one in ratios}
    return len(sides) == 1 and 0 not in sides


def _of_crossovers(found: Crossovers, scale: Scale, *, as_scale: bool) -> Value:
    if found.kind == SEVERAL or not found.found:
        why = found.why or f"{len(found.found)} crossovers"
        return Value("words", None, found.num, words=why)
    one = found.found[0]
    certain = found.num > 1
    side = 0 if one.arm_faster_below is None or not certain else 1 if one.arm_faster_below else -1
    words = "" if found.kind == ONE else found.kind
    value, low, high = _scaled(one, scale) if as_scale else (one.bandwidth_bps, one.low_bps, one.high_bps)
    if not certain:  # one pair has no interval, whatever ends the search has
        low = high = None
    return Value("scale" if as_scale else "bit/s", value, found.num, low, high, side=side, words=words)


def _scaled(one: Crossover, scale: Scale) -> tuple[float | None, float | None, float | None]:
    """S/(B·T) falls as the bandwidth rises: the ends of the interval change places."""
    return scale.at(one.bandwidth_bps), scale.at(one.high_bps), scale.at(one.low_bps)


def shift_claim(claim: Claim, records: Records) -> Value:
    """S/(B·T) of one crossover over that of another, of different trainings.

    Ends are as far from the value as those of both crossovers together, squares added on a logarithmic axis (MOVER: Zou
    and Donner, Statistics in Medicine 27, 2008); open where one that it takes is.
    """
    of_both = [crossover_claim(one, records) for one in claim.crossovers]
    cells = tuple(sorted({cell for one in of_both for cell in one.cells}))
    value = replace(_shift(*of_both), cells=cells, composed=any(one.composed for one in of_both))
    return replace(value, first_crossing=any(one.first_crossing for one in of_both))


def _shift(one: Value, other: Value) -> Value:
    num = min(one.num, other.num)
    if one.value is None or other.value is None:
        return Value("words", None, num, words=one.words or other.words)
    ratio = one.value / other.value
    down = _far(one.low, one.value), _far(other.high, other.value)
    up = _far(one.high, one.value), _far(other.low, other.value)
    low, high = ratio / math.exp(math.hypot(*down)), ratio * math.exp(math.hypot(*up))
    ends = low if low > 0.0 else None, high if math.isfinite(high) else None
    return Value("ratio", ratio, num, *ends, side=side_of(ratio, *ends, ""))


def _far(end: float | None, value: float) -> float:
    """How far an end lies from the value, on a logarithmic axis."""
    return math.inf if end is None else math.log(end / value)


def _rates(cells: Sequence[CellFolder]) -> set[float]:
    return {bps for folder in cells if (bps := _rate(folder)) is not None}


def _rate(folder: CellFolder) -> float | None:
    return setting_of_cell(folder).bandwidth_bps


def arrivals_of(cells: Sequence[CellFolder]) -> dict[int, Arrival]:
    """Times to target, or what they exceed, by seed."""
    return by_seed(cell_row(folder) for folder in cells)


def quantities(cells: Sequence[CellFolder], quantity: str) -> dict[int, float]:
    """A quantity of a cell by seed; cells that have none are left out."""
    found: dict[int, float] = {}
    for folder in cells:
        row = cell_row(folder)
        value = number(row.get(_COLUMNS.get(quantity, "")))
        wire_bytes, steps = number(row.get("wire_bytes")), number(row.get("steps"))
        if quantity == "wire bytes per step" and wire_bytes and steps:
            value = wire_bytes / steps
        if value is not None:
            found.setdefault(setting_of_cell(folder).seed, value)
    return found


def metric_of(cells: Sequence[CellFolder]) -> str:
    """Name of the metric that the cells' target is of."""
    target = mapping_at(cells[0].cell.config, "target")
    return str(target.get("metric") or "accuracy")


def with_cells(value: Value, *parts: Sequence[CellFolder], num_censored: int = 0, crossings: bool = False) -> Value:
    """The value with the cells that it rests on; ``crossings``: it rests on when these have arrived."""
    cells = [folder for part in parts for folder in part]
    ids = tuple(sorted({str(folder.cell.id) for folder in cells}))
    first = crossings and any(arrival_of_cell(folder).arrival_kind == FIRST_CROSSING for folder in cells)
    composed = any(map(is_composed, cells))
    about = {"composed": composed, "cells": ids, "num_censored": num_censored, "first_crossing": first}
    return Value(**{**vars(value), **about})
