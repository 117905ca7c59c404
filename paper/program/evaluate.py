"""A claim and records give a value, its interval and n. Nothing is read but records, nothing is decided here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bwbench.base.plain_data import mapping_at
from bwbench.methods.roles import METHOD, may_win
from bwbench.records import CellFolder
from bwbench.results.analysis.best_set import is_behind
from bwbench.results.analysis.caveats import composed_errors, link_errors
from bwbench.results.analysis.cells import (
    DONE,
    cell_row,
    is_composed,
    is_reference,
    setting_of,
    standing_of,
    state_of,
    value_at,
)
from bwbench.results.analysis.crossover import (
    ONE,
    SEVERAL,
    Crossover,
    Crossovers,
    Measured,
    Scale,
    find_crossovers,
    scale_of,
)
from bwbench.results.analysis.difference import difference_of
from bwbench.results.analysis.ratio import ratio_of
from bwbench.results.analysis.statistics import Arrival, by_seed, estimate, geometric_interval, log_interval, number
from bwbench.results.section.content import side_of
from paper.program.claim import Claim, Unit, Value
from paper.program.claimed_cells import (
    AmbiguousClaimError,
    MissingRecordsError,
    Records,
    cells_of,
    how_to_make,
    matches,
)

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
    kin = _kin(arm, reference)
    sides = [{seed: Arrival(value, kin=kin) for seed, value in side.items() if value} for side in (others, mine)]
    ratio = ratio_of(*sides)
    if ratio is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no repeat has {claim.of} to the target on both sides")
    side = side_of(ratio.value, ratio.low, ratio.high, "")
    return _with_cells(Value("ratio", ratio.value, ratio.num, ratio.low, ratio.high, side=side), arm, reference)


def _time_ratio(
    claim: Claim, reference: Mapping[int, Arrival], arm: Mapping[int, Arrival], cells: Sequence[CellFolder]
) -> Value:
    ratio = ratio_of(reference, arm)
    if ratio is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no target reached on one side at least")
    side = side_of(
        ratio.value, ratio.low, ratio.high, ""
    )  # a median of a few repeats, or a bound by one, tells nothing
    value = Value("ratio", ratio.value, ratio.num, ratio.low, ratio.high, ratio.bound, side)
    return _with_cells(value, cells, num_censored=ratio.num_censored)


def _difference(claim: Claim, records: Records) -> Value:
    arm = cells_of(records.folders, claim.name, claim.experiment, claim.arm, claim.where)
    reference = cells_of(records.folders, claim.name, claim.experiment, claim.over, claim.reference_where)
    quantity = claim.of if claim.of in ("final", "test") else "final"
    mine, others = _by_seed(arm, quantity), _by_seed(reference, quantity)
    found = difference_of(mine, others, kin=bool(_kin(arm, reference)))
    if found is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no repeat has a final metric on both sides")
    unit: Unit = "points" if _metric(arm) == "accuracy" else "number"
    side = side_of(found.value, found.low, found.high, "", 0.0)
    return _with_cells(Value(unit, found.value, found.num, found.low, found.high, side=side), arm, reference)


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
    """The arm with the shortest time, how many times as fast as the next one it is, and who cannot be told from it.

    ``words`` hold the first, and behind it, each after a ``|``, all arms that may be as fast (the best set); without
    any such arm the next one alone, and then ``side`` is 1.
    """
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
    others = [second, *(arm for arm in order if arm not in (first, second))]
    value = _time_ratio(claim, arrivals[second], arrivals[first], [*cells[first], *cells[second]])
    tied = [arm for arm in others if not is_behind(ratio_of(arrivals[arm], arrivals[first]), len(others))]
    side = value.side if claim.arm or not tied else 0  # a claim that says who stands by its own ratio
    return Value(**{**vars(value), "side": side, "words": "|".join([first, *(tied or [second])])})


def _crossover(claim: Claim, records: Records) -> Value:
    """The crossover over all bandwidths at which both arms are done; ``words`` say why there is none.

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
    value = _of_crossovers(found, scale_of(used), as_scale=claim.part == "scale")
    ids = tuple(sorted({str(folder.cell.id) for folder in used}))
    return Value(**{**vars(value), "composed": any(map(is_composed, used)), "cells": ids})


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


def _rates(cells: Sequence[CellFolder]) -> set[float]:
    return {bps for folder in cells if (bps := _rate(folder)) is not None}


def _rate(folder: CellFolder) -> float | None:
    return setting_of(folder.cell.config).bandwidth_bps


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
    methods = [folder for folder in _experiment(claim, records) if standing_of(folder.cell).role == METHOD]
    found = composed_errors(methods)  # steps of one node, or of a free network, wait for no link: they prove nothing
    if not found:
        raise MissingRecordsError(f"claim {claim.name!r}: no cell of {claim.experiment} was made whole and composed")
    if claim.part == "inside":
        return Value("number", float(sum(error.inside is True for error in found)), len(found))
    return _error(claim, [error.error for error in found], len(found))


def _link_error(claim: Claim, records: Records) -> Value:
    errors = link_errors(_experiment(claim, records))
    of_pairs = [error.rtt if claim.kind == "round-trip error" else error.goodput for error in errors]
    rates = [error for error in of_pairs if error is not None]
    if not rates:
        raise MissingRecordsError(f"claim {claim.name!r}: no link of {claim.experiment} was measured")
    return _error(claim, rates, len(rates))


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
    "round-trip error": _link_error,
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
        wire_bytes, steps = number(row.get("wire_bytes")), number(row.get("steps"))
        if quantity == "wire bytes per step" and wire_bytes and steps:
            value = wire_bytes / steps
        if value is not None:
            found.setdefault(setting_of(folder.cell.config).seed, value)
    return found


def _kin(*parts: Sequence[CellFolder]) -> str:
    """What all these cells learn as, seed by seed; empty where they do not learn alike."""
    names = {str(cell_row(folder)["kin"]) for part in parts for folder in part}
    return next(iter(names)) if len(names) == 1 else ""


def _required(found: dict[int, _T], claim: Claim) -> list[_T]:
    if not found:
        make = how_to_make(claim.experiment)
        raise MissingRecordsError(f"claim {claim.name!r}: its cells have no {claim.of}; {make}")
    return list(found.values())


def _metric(cells: Sequence[CellFolder]) -> str:
    target = mapping_at(cells[0].cell.config, "target")
    return str(target.get("metric") or "accuracy")


def _with_cells(value: Value, *parts: Sequence[CellFolder], num_censored: int = 0) -> Value:
    cells = [folder for part in parts for folder in part]
    ids = tuple(sorted({str(folder.cell.id) for folder in cells}))
    composed = any(map(is_composed, cells))
    return Value(**{**vars(value), "composed": composed, "cells": ids, "num_censored": num_censored})
