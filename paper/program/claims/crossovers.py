"""The bandwidth at which an arm and its reference are equally fast, as a claim's value."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.records import CellFolder
from bwbench.results.analysis.arrival import by_seed
from bwbench.results.analysis.cells import DONE, cell_row, is_composed, setting_of, state_of
from bwbench.results.analysis.crossover import ONE, SEVERAL, Crossover, Crossovers, Measured, find_crossovers
from bwbench.results.analysis.scale import Scale, scale_of
from paper.program.claims.select import MissingRecordsError, cells_of, how_to_make, matches
from paper.program.claims.spec import Claim
from paper.program.claims.value import Value


def crossover(claim: Claim, folders: Sequence[CellFolder]) -> Value:
    """The crossover over all bandwidths at which both arms are done; ``words`` say why there is none.

    Raises MissingRecordsError where both are done at fewer than two bandwidths.
    """
    here = [folder for folder in folders if state_of(folder) == DONE and matches(folder, claim.where)]
    by_arm = {arm: [f for f in here if f.cell.arm == arm] for arm in (claim.arm, claim.over)}
    rates = [_rates(cells) for cells in by_arm.values()]
    shared = sorted((rates[0] & rates[1]) if all(rates) else (rates[0] or rates[1]))  # one without a link fits all
    if not by_arm[claim.arm] or not by_arm[claim.over] or len(shared) < 2:
        raise MissingRecordsError(
            f"claim {claim.name!r}: experiment {claim.experiment} has {claim.arm} and {claim.over} together at "
            f"{len(shared)} bandwidths, a crossover needs two; {how_to_make(claim.experiment)}"
        )
    measured, used = [], []
    for bps in shared:
        pair = [[f for f in by_arm[arm] if _rate(f) in (bps, None)] for arm in (claim.over, claim.arm)]
        sides = [
            cells_of(cells, claim.name, claim.experiment, arm, claim.where)
            for cells, arm in zip(pair, (claim.over, claim.arm), strict=True)
        ]
        used += [folder for side in sides for folder in side]
        measured.append(Measured(bps, *(by_seed(cell_row(f) for f in side) for side in sides)))
    found = find_crossovers(measured)
    value = _value(found, scale_of(used), claim.part == "scale")
    ids = tuple(sorted({str(folder.cell.id) for folder in used}))
    return Value(**{**vars(value), "composed": any(map(is_composed, used)), "cells": ids})


def _value(found: Crossovers, scale: Scale, as_scale: bool) -> Value:
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


def _rates(cells: Sequence[CellFolder]) -> set[float]:
    return {bps for folder in cells if (bps := _rate(folder)) is not None}


def _rate(folder: CellFolder) -> float | None:
    return setting_of(folder.cell.config).bandwidth_bps
