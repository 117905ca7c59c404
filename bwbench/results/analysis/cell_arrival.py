"""When a cell arrived, from its records: by the fit of its curve where training went on, else at its first crossing.

status.json holds the first evaluation that met the target, and stays as it was written. Here it is looked at anew: a
run to its budget (``stop: limit``) has a curve on both sides of the arrival. One that ended at its target has none, so
that its first crossing stands, and is marked. Another target may be asked of any cell (``at_target``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bwbench.base.errors import ConfigError, RecordError
from bwbench.records import CellFolder
from bwbench.records.schema import CurvePoint, Status, TargetArrival
from bwbench.results.analysis.arrival import CENSORED, FIRST_CROSSING, FIT, UNKNOWN, payload_at
from bwbench.results.analysis.targets import Ended, arrival_at, budget_of, target_of, targets_of
from bwbench.results.analysis.trial import curve_of

FIRST_CROSSING_MARK = "‡"  # behind times that are first crossings, and before the note that says what that means
CURVE = "curve"  # among what was made of a cell's records


@dataclass(frozen=True)
class CellArrival:
    """When a cell reached its target, or the one that is asked for.

    Attributes:
        arrival_kind: ``fit``, ``first crossing``, ``censored``, ``unknown`` (until it is run again); None for a cell
            without a target or without status.json.
        time_to_target_s, samples_to_target: at the arrival; None where there is none.
        censored_at_s: training clock up to which it is known not to have arrived.
        payload_bytes_to_target, wire_bytes_to_target: until the arrival, over all ranks.
        first_crossing_s, first_crossing_samples: the first evaluation that met the target, whatever the kind.
        test_metric_at_arrival: on the test split; None where it was not looked at there.
    """

    arrival_kind: str | None = None
    time_to_target_s: float | None = None
    samples_to_target: int | None = None
    censored_at_s: float | None = None
    payload_bytes_to_target: int | None = None
    wire_bytes_to_target: int | None = None
    first_crossing_s: float | None = None
    first_crossing_samples: int | None = None
    test_metric_at_arrival: float | None = None


def asked_target(text: str) -> tuple[str, float]:
    """``accuracy=0.87`` as metric and value. Raises ConfigError for anything else."""
    metric, _, value = (part.strip() for part in text.partition("="))
    with contextlib.suppress(ValueError):
        if metric and math.isfinite(float(value)):
            return metric, float(value)
    raise ConfigError(f"--target: {text!r} is not METRIC=VALUE; write it like accuracy=0.87 or loss=2.2")


def at_target(folders: Iterable[CellFolder], target: tuple[str, float] | None) -> list[CellFolder]:
    """The same cells, to be looked at with another target; as they are where it is None."""
    return [folder if target is None else folder.asked(target) for folder in folders]


def target_at(folder: CellFolder) -> tuple[str, float] | None:
    """Metric and value of the target that is asked of a cell: its own unless another one is."""
    return folder.asked_target or target_of(folder.cell.config)


def kept_curve(folder: CellFolder) -> Sequence[CurvePoint]:
    """The validation evaluations of a cell, whose events are read once. Raises RecordError where those are broken."""
    if folder.digest is not None:
        return folder.digest.curve
    if CURVE not in folder.made:
        folder.made[CURVE] = curve_of(folder.events())
    curve: Sequence[CurvePoint] = folder.made[CURVE]
    return curve


def arrival_of_cell(folder: CellFolder) -> CellArrival:
    """When the cell arrived. Reads its curve only where that can say more than status.json."""
    status, target = folder.status, target_at(folder)
    if status is None or target is None:
        return CellArrival()
    config = folder.cell.config
    declared = target in targets_of(config)
    as_recorded = target == target_of(config) and not config.get("targets")
    told = _as_recorded(status, target) if as_recorded else CellArrival(UNKNOWN if status.status == "done" else None)
    if status.status != "done" or (as_recorded and config.get("stop", "target") == "target"):
        return told
    try:
        curve = kept_curve(folder)
    except RecordError:  # who reads the events themselves says so
        return told
    found = arrival_at(curve, target, Ended(budget_of(config), went_on=status.reason != "target"))
    crossed = (found.first_crossing_s, found.first_crossing_samples)
    if found.kind == CENSORED:
        return CellArrival(CENSORED, None, None, found.censored_at_s, None, None, *crossed)
    told = replace(told, first_crossing_s=crossed[0], first_crossing_samples=crossed[1])
    is_told = found.kind == FIT or (found.kind == FIRST_CROSSING and declared and not as_recorded)
    return _reached(told, found, curve, status) if is_told else told


def arrival_notes(folders: Iterable[CellFolder]) -> list[str]:
    """What must be said of cells that are done wherever their times stand: first crossings, and what is not known."""
    found = [(folder, arrival) for folder in folders if (arrival := arrival_of_cell(folder)).arrival_kind is not None]
    crossed = [_ended_there(*one) for one in found if one[1].arrival_kind == FIRST_CROSSING]
    notes = []
    for num, why in (
        (crossed.count(True), "training ended at the first evaluation that met the target"),
        (crossed.count(False), "too few evaluations follow the first one that met the target to tell more of it"),
    ):
        if num:
            flatters = "a lucky one, which flatters the more the metric flickers"
            notes.append(f"{FIRST_CROSSING_MARK} First crossing, of {num} of {len(found)} cells: {why}, {flatters}.")
    if num := sum(arrival.arrival_kind == UNKNOWN for _, arrival in found):
        notes.append(f"Unknown until run again, for longer: when {num} of {len(found)} cells reach this target.")
    return notes


def _ended_there(folder: CellFolder, arrival: CellArrival) -> bool:
    """Whether a cell's last evaluation is its first crossing: else it went on, but for too short a while to be fitted,
    as under ``stop: limit``, or until it met a harder one of several targets."""
    status = folder.status
    return status is not None and status.samples in (None, arrival.first_crossing_samples)


def _as_recorded(status: Status, target: tuple[str, float]) -> CellArrival:
    """What status.json says: the first crossing, or the end of a run that never met its target."""
    kind = FIRST_CROSSING if status.time_to_target_s is not None else CENSORED if status.censored_at_s else None
    payload, wire = status.payload_bytes_to_target, status.wire_bytes_to_target
    test = _recorded_test(status, target)
    if status.samples is not None and status.samples == status.samples_to_target:
        # It ended there: all that was sent counts. Steps do not hold what went in the background and was drained after.
        payload, wire, test = status.payload_bytes, status.wire_bytes, status.test_metric
    times = (status.time_to_target_s, status.samples_to_target)
    return CellArrival(kind, *times, status.censored_at_s, payload, wire, *times, test)


def _recorded_test(status: Status, target: tuple[str, float]) -> float | None:
    """On the test split at the arrival, as status.json has it."""
    return next((one.test_metric for one in status.arrivals if (one.metric, one.value) == target), None)


def _reached(told: CellArrival, found: TargetArrival, curve: Sequence[CurvePoint], status: Status) -> CellArrival:
    """An arrival on the curve; bytes as the curve has them there, on the wire by the payload's share."""
    samples = found.samples or 0
    payload, all_payload = payload_at(curve, samples), status.payload_bytes
    share = samples / status.samples if status.samples else 1.0  # of what sends alike in every step
    if payload is not None and all_payload:
        share = payload / all_payload
    return replace(
        told,
        arrival_kind=found.kind,
        time_to_target_s=found.time_s,
        samples_to_target=samples,
        censored_at_s=None,
        payload_bytes_to_target=None if payload is None else round(payload),
        wire_bytes_to_target=None if status.wire_bytes is None else round(status.wire_bytes * min(1.0, share)),
        test_metric_at_arrival=found.test_metric
        if any(point.test for point in curve)
        else _recorded_test(status, (found.metric, found.value)),
    )
