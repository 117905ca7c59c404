"""A claim and records give a value, its interval and n. Nothing is read but records, nothing is decided here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

from bwbench.methods.roles import HEADROOM
from bwbench.records import CellFolder
from bwbench.results.analysis.caveats import composed_errors, link_errors
from bwbench.results.analysis.cells import is_composed, is_reference, standing_of, value_at
from bwbench.results.analysis.statistics import estimate, geometric_interval, log_interval
from paper.program.claim import Claim, Unit, Value
from paper.program.claimed_cells import (
    AmbiguousClaimError,
    MissingRecordsError,
    Records,
    cells_of,
    how_to_make,
    matches,
)
from paper.program.closed_form import closed_form_claim
from paper.program.comparing import (
    arrivals_of,
    asked,
    crossover_claim,
    difference_claim,
    fastest_claim,
    metric_of,
    quantities,
    ratio_claim,
    shift_claim,
    with_cells,
)

_T = TypeVar("_T")

_UNITS: dict[str, Unit] = {"time": "s", "samples": "samples", "wire bytes": "bytes", "wire bytes per step": "bytes"}


def evaluate(claim: Claim, records: Records) -> Value:
    """What the records say.

    Raises MissingRecordsError where a claim's cells are not there, AmbiguousClaimError where its filters leave cells
    that differ in more than their seeds.
    """
    return _KINDS[claim.kind](claim, records)


def _value(claim: Claim, records: Records) -> Value:
    arm = asked(claim, cells_of(records.of(claim.experiment), claim.name, claim.experiment, claim.arm, claim.where))
    if claim.of == "time":
        centre = estimate(_required(list(arrivals_of(arm).values()), claim))
        bound = ">" if math.isinf(centre.value) else ""
        value = Value("s", centre.at_least, centre.num, centre.low, centre.high, bound)
        return with_cells(value, arm, num_censored=centre.num_censored, crossings=True)
    found = _required(list(quantities(arm, claim.of).values()), claim)
    if claim.of in ("final", "test"):
        low, high = log_interval(found) or (None, None)
        unit: Unit = "share" if metric_of(arm) == "accuracy" else "number"
        return with_cells(Value(unit, statistics.fmean(found), len(found), low, high), arm)
    centre_value, low, high = geometric_interval(found)
    value = Value(_UNITS[claim.of], centre_value, len(found), low, high)
    return with_cells(value, arm, crossings=claim.of in ("samples", "wire bytes"))


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
    return with_cells(Value("words", None, len(several), words=found[0]), several)


def _cells(claim: Claim, records: Records) -> Value:
    here = [folder for folder in _experiment(claim, records) if matches(folder, claim.where)]
    if claim.part == "composed":
        here = [folder for folder in here if is_composed(folder)]
    elif claim.part == "host-bound":
        here = [folder for folder in here if records.is_host_bound(folder)]
    elif claim.part == "seeds":
        return Value("number", float(len({f.cell.config["seed"] for f in here})), len(here))
    elif claim.part in ("arms", "arrived"):
        racing = [folder for folder in here if standing_of(folder.cell).role != HEADROOM]
        arms = {str(folder.cell.arm) for folder in racing}
        if claim.part == "arrived":
            its = {arm: cells_of(racing, claim.name, claim.experiment, arm, claim.where) for arm in arms}
            arms = {arm for arm, cells in its.items() if _arrives(asked(claim, cells))}
        return Value("number", float(len(arms)), len(here))
    return Value("number", float(len(here)), len(here))


def _arrives(arm: list[CellFolder]) -> bool:
    """Whether half of an arm's repeats or more reach the target in time."""
    arrivals = list(arrivals_of(arm).values())
    return bool(arrivals) and not math.isinf(estimate(arrivals).value)


def _machine_hours(claim: Claim, records: Records) -> Value:
    _experiment(claim, records)
    found = records.spent_on(claim.experiment)
    if found is None:
        raise MissingRecordsError(f"claim {claim.name!r}: no record of its time; {how_to_make(claim.experiment)}")
    return Value("h", found.total_s / 3600.0, found.num_cells)


def _composed_error(claim: Claim, records: Records) -> Value:
    found = composed_errors(folder for folder in _experiment(claim, records) if matches(folder, claim.where))
    if not found:
        raise MissingRecordsError(f"claim {claim.name!r}: no cell of {claim.experiment} was made whole and composed")
    if claim.part == "whole":
        return Value("number", float(len(found)), len(found))
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
    "ratio": ratio_claim,
    "crossover": crossover_claim,
    "shift": shift_claim,
    "closed form": closed_form_claim,
    "difference": difference_claim,
    "value": _value,
    "fastest": fastest_claim,
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


def _required(found: list[_T], claim: Claim) -> list[_T]:
    if not found:
        make = how_to_make(claim.experiment)
        raise MissingRecordsError(f"claim {claim.name!r}: its cells have no {claim.of}; {make}")
    return found
