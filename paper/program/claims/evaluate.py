"""A claim and records give a value, its interval and n. Nothing is read but records, nothing is decided here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bwbench.methods.roles import may_win
from bwbench.records import CellFolder
from bwbench.results.analysis.arrival import Arrival, by_seed, number
from bwbench.results.analysis.cells import cell_row, is_composed, is_reference, standing_of
from bwbench.results.analysis.config_values import value_at
from bwbench.results.analysis.statistics import estimate, geometric_interval, log_interval, paired_ratio
from bwbench.results.facts import link_errors
from bwbench.results.section.ratios import side_of
from paper.program.claims.crossovers import crossover
from paper.program.claims.records import Records
from paper.program.claims.select import AmbiguousClaimError, MissingRecordsError, cells_of, how_to_make, matches
from paper.program.claims.spec import Claim
from paper.program.claims.value import Unit, Value

_T = TypeVar("_T")

_UNITS: dict[str, Unit] = {"time": "s", "samples": "samples", "wire bytes": "bytes", "wire bytes per step": "bytes"}
_COLUMNS = {"samples": "samples_to_target", "wire bytes": "wire_bytes_to_target", "final": "final_metric",
            "test": "test_metric"}  # fmt: skip


def evaluate(claim: Claim, records: Records) -> Value:
    """What the records say.

    Raises MissingRecordsError where a claim's cells are not there, AmbiguousClaimError where its filters leave cells
    that differ in more than their seeds.
    """
    return _KINDS[claim.kind](claim, records)


def _ratio(claim: Claim, records: Records) -> Value:
    arm = cells_of(records.folders, claim.name, claim.experiment, claim.arm, claim.where)
    over = claim.over or claim.arm
    reference = cells_of(records.folders, claim.name, claim.experiment, over, claim.reference_where)
    if claim.of == "time":
        return _time_ratio(claim, _arrivals(reference), _arrivals(arm), [*arm, *reference])
    mine, others = _by_seed(arm, claim.of), _by_seed(reference, claim.of)
    pairs = [others[seed] / mine[seed] for seed in sorted(mine.keys() & others.keys()) if mine[seed] and others[seed]]
    if not pairs:
        raise MissingRecordsError(f"claim {claim.name!r}: no seed has {claim.of} to the target on both sides")
    value, low, high = geometric_interval(pairs)
    return _with_cells(Value("ratio", value, len(pairs), low, high, side=side_of(value, low, high, "")), arm, reference)


def _time_ratio(
    claim: Claim, reference: Mapping[int, Arrival], arm: Mapping[int, Arrival], cells: Sequence[CellFolder]
) -> Value:
    ratio = paired_ratio(reference, arm)
    if ratio is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no seed in common with a target reached on one side at least")
    side = side_of(ratio.value, ratio.low, ratio.high, ratio.bound)
    value = Value("ratio", ratio.value, ratio.num, ratio.low, ratio.high, ratio.bound, side)
    return _with_cells(value, cells, num_censored=ratio.num_censored)


def _difference(claim: Claim, records: Records) -> Value:
    arm = cells_of(records.folders, claim.name, claim.experiment, claim.arm, claim.where)
    reference = cells_of(records.folders, claim.name, claim.experiment, claim.over, claim.reference_where)
    quantity = claim.of if claim.of in ("final", "test") else "final"
    mine, others = _by_seed(arm, quantity), _by_seed(reference, quantity)
    pairs = [mine[seed] - others[seed] for seed in sorted(mine.keys() & others.keys())]
    if not pairs:
        raise MissingRecordsError(f"claim {claim.name!r}: no seed has a final metric on both sides")
    low, high = log_interval(pairs) or (None, None)  # of the values themselves: a metric needs no logarithm
    value = statistics.fmean(pairs)
    unit: Unit = "points" if _metric(arm) == "accuracy" else "number"
    return _with_cells(
        Value(unit, value, len(pairs), low, high, side=side_of(value, low, high, "", 0.0)), arm, reference
    )


def _value(claim: Claim, records: Records) -> Value:
    arm = cells_of(records.folders, claim.name, claim.experiment, claim.arm, claim.where)
    if claim.of == "time":
        centre = estimate(_required(_arrivals(arm), claim))
        bound = ">" if math.isinf(centre.value) else ""
        value = Value("s", centre.at_least, centre.num, centre.low, centre.high, bound)
        return _with_cells(value, arm, num_censored=centre.num_censored)
    found = _required(_by_seed(arm, claim.of), claim)
    if claim.of in ("final", "test"):
        low, high = log_interval(found) or (None, None)
        unit: Unit = "share" if _metric(arm) == "accuracy" else "number"
        return _with_cells(Value(unit, statistics.fmean(found), len(found), low, high), arm)
    centre_value, low, high = geometric_interval(found)
    return _with_cells(Value(_UNITS[claim.of], centre_value, len(found), low, high), arm)


def _fastest(claim: Claim, records: Records) -> Value:
    """The arm with the shortest time, and how many times as fast as the next one it is."""
    here = [folder for folder in records.done(claim.experiment) if matches(folder, claim.where)]
    names = sorted({str(folder.cell.arm) for folder in here if may_win(standing_of(folder.cell).role)})
    arms = [name for name in names if not claim.arms or name in claim.arms]
    if len(arms) < 2 or (claim.arm and claim.arm not in arms):
        what = claim.arm or "two arms"
        raise MissingRecordsError(
            f"claim {claim.name!r}: experiment {claim.experiment} has no {what} there; {how_to_make(claim.experiment)}"
        )
    cells = {arm: cells_of(here, claim.name, claim.experiment, arm, claim.where) for arm in arms}
    arrivals = {arm: found for arm in arms if (found := _arrivals(cells[arm]))}
    centres = {arm: estimate(list(found.values())) for arm, found in arrivals.items()}
    order = sorted(centres, key=lambda arm: (centres[arm].value, centres[arm].at_least, arm))
    first, second = order[0], order[1]
    if claim.arm and claim.arm != first:
        second, first = first, claim.arm  # the claim says who: then the ratio is below 1
    value = _time_ratio(claim, arrivals[second], arrivals[first], [*cells[first], *cells[second]])
    return Value(**{**vars(value), "words": f"{first}|{second}"})


def _crossover(claim: Claim, records: Records) -> Value:
    return crossover(claim, records.of(claim.experiment))


def _config(claim: Claim, records: Records) -> Value:
    here = [folder for folder in _experiment(claim, records) if matches(folder, claim.where)]
    if claim.arm:
        here = [folder for folder in here if folder.cell.arm == claim.arm]
    several = [folder for folder in here if not is_reference(folder.cell)] or here
    found = sorted({str(value_at(folder.cell.config, claim.key)) for folder in several})
    if not found:
        raise MissingRecordsError(f"claim {claim.name!r}: no cell has these settings; {how_to_make(claim.experiment)}")
    if len(found) > 1:
        raise AmbiguousClaimError(f"claim {claim.name!r}: {claim.key} has several values: {', '.join(found)}")
    return _with_cells(Value("words", None, len(several), words=found[0]), several)


def _cells(claim: Claim, records: Records) -> Value:
    here = [folder for folder in _experiment(claim, records) if matches(folder, claim.where)]
    if claim.part == "composed":
        here = [folder for folder in here if is_composed(folder)]
    elif claim.part == "seeds":
        return Value("number", float(len({f.cell.config["seed"] for f in here})), len(here))
    elif claim.part == "arms":
        return Value("number", float(len({f.cell.arm for f in here})), len(here))
    return Value("number", float(len(here)), len(here))


def _machine_hours(claim: Claim, records: Records) -> Value:
    _experiment(claim, records)
    found = records.spent_on(claim.experiment)
    if found is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no record of its time; {how_to_make(claim.experiment)}")
    return Value("h", found.total_s / 3600.0, found.num_cells)


def _composed_error(claim: Claim, records: Records) -> Value:
    _experiment(claim, records)
    found = records.spent_on(claim.experiment)
    if found is None or not found.errors:
        raise MissingRecordsError(f"claim {claim.name!r}: no cell of {claim.experiment} was made whole and composed")
    return _error(claim, [error.error for error in found.errors], len(found.errors))


def _link_error(claim: Claim, records: Records) -> Value:
    errors = link_errors(_experiment(claim, records))
    if not errors.rate:
        raise MissingRecordsError(f"claim {claim.name!r}: no link of {claim.experiment} was measured")
    return _error(claim, errors.rate, len(errors.rate))


def _error(claim: Claim, errors: Sequence[float], num: int) -> Value:
    off = sorted(map(abs, errors))
    picked = {"most": off[-1], "95 %": off[math.ceil(0.95 * len(off)) - 1]}.get(claim.part, statistics.median(off))
    return Value("share", picked, num)


def _given(claim: Claim, _: Records) -> Value:
    return Value("words", None, 0, words=claim.value)


_KINDS: dict[str, Callable[[Claim, Records], Value]] = {
    "ratio": _ratio,
    "crossover": _crossover,
    "difference": _difference,
    "value": _value,
    "fastest": _fastest,
    "config": _config,
    "cells": _cells,
    "machine hours": _machine_hours,
    "composed error": _composed_error,
    "link error": _link_error,
    "given": _given,
}


def _experiment(claim: Claim, records: Records) -> list[CellFolder]:
    found = records.done(claim.experiment)
    if not found:
        make = how_to_make(claim.experiment)
        raise MissingRecordsError(
            f"claim {claim.name!r}: experiment {claim.experiment} has no cell that is done; {make}"
        )
    return found


def _arrivals(cells: Sequence[CellFolder]) -> dict[int, Arrival]:
    return by_seed(cell_row(folder) for folder in cells)


def _by_seed(cells: Sequence[CellFolder], quantity: str) -> dict[int, float]:
    found: dict[int, float] = {}
    for folder in cells:
        row = cell_row(folder)
        value = number(row.get(_COLUMNS.get(quantity, "")))
        if quantity == "wire bytes per step" and row.get("wire_bytes") and row.get("steps"):
            value = float(row["wire_bytes"]) / float(row["steps"])
        if value is not None:
            found.setdefault(int(row["seed"]), value)
    return found


def _required(found: dict[int, _T], claim: Claim) -> list[_T]:
    if not found:
        make = how_to_make(claim.experiment)
        raise MissingRecordsError(f"claim {claim.name!r}: its cells have no {claim.of}; {make}")
    return list(found.values())


def _metric(cells: Sequence[CellFolder]) -> str:
    target = cells[0].cell.config.get("target") or {}
    return str(target.get("metric") or "accuracy")


def _with_cells(value: Value, *parts: Sequence[CellFolder], num_censored: int = 0) -> Value:
    cells = [folder for part in parts for folder in part]
    ids = tuple(sorted({str(folder.cell.id) for folder in cells}))
    composed = any(map(is_composed, cells))
    return Value(**{**vars(value), "composed": composed, "cells": ids, "num_censored": num_censored})
