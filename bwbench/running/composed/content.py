"""What is recorded of a composed cell: ``composed.json``, and the fields of its status.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import Parts
from bwbench.records import SCHEMA, CellFolder
from bwbench.results.analysis.compose import Composition, compose
from bwbench.results.analysis.scale import gradient_bytes_of
from bwbench.results.analysis.trial import target_of
from bwbench.running.composed.ledger import weighted_ledger


def put_together(cell: Cell, parts: Parts, convergence: CellFolder, timing: CellFolder) -> Composition:
    """The cell's run as it would have been. Raises NotComposableError where the parts do not fit."""
    config = cell.config
    return compose(
        _events(convergence),
        _events(timing),
        parts.phases,
        parts.timing_phases,
        has_target=config.target is not None,
        ends_at_target=config.stop == "target",
        limit_s=config.limit.time_s,
        seconds_per_byte=parts.seconds_per_byte,
        seed=int(cell.id, 16) % 2**32,
    )


def composed_content(
    cell: Cell, parts: Parts, found: Composition, convergence: CellFolder, timing: CellFolder
) -> dict[str, Any]:
    """Content of composed.json: all that tables and figures need, so that they need not look at the parts."""
    ledger = weighted_ledger(_events(timing), parts.timing_phases, found.kinds)
    return {
        "schema": SCHEMA,
        "id": cell.id,
        **_sources(found, convergence, timing),
        "time_to_target_s": found.time_to_target_s,
        "censored_at_s": found.censored_at_s,
        "training_clock_s": found.training_clock_s,
        "reason": found.reason,
        "kinds": [asdict(kind) for kind in found.kinds],
        "curve": [_finite(point) for point in found.curve],
        "ledger": asdict(ledger) if ledger is not None else None,
        "gradient_bytes": gradient_bytes_of(convergence),
        "link": {**(timing.link or {}), "wire": None},  # whose bytes are those of the timing run
        "environment": timing.environment,
    }


def composed_status(cell: Cell, found: Composition, convergence: CellFolder, timing: CellFolder) -> dict[str, Any]:
    """The measured fields of status.json. What the link decides is the timing run's, the rest the convergence run's."""
    computed, timed = convergence.status or {}, timing.status or {}
    target = target_of(cell.to_json()["config"])
    metric = target[0] if target else computed.get("metric")
    whole = found.steps == computed.get("steps")
    payload = int(computed["payload_bytes"]) if whole else found.payload_bytes
    wire_ratio = _wire_ratio(timed)
    to_target = found.payload_bytes_to_target
    return {
        "overhead_s": None,
        "metric": metric,
        "time_to_target_s": found.time_to_target_s,
        "censored_at_s": found.censored_at_s,
        "samples_to_target": found.samples_to_target,
        "payload_bytes_to_target": to_target,
        "wire_bytes_to_target": None if to_target is None or wire_ratio is None else round(to_target * wire_ratio),
        "final_metric": _finite(found.curve[-1]).get(metric) if metric and found.curve else None,
        "test_metric": computed.get("test_metric") if whole else None,
        "steps": found.steps,
        "samples": found.samples,
        "training_clock_s": found.training_clock_s,
        "evaluation_s": computed.get("evaluation_s"),
        "payload_bytes": payload,
        "wire_bytes": None if wire_ratio is None else round(payload * wire_ratio),
        "replicas_identical": computed.get("replicas_identical") if whole else None,
        "ledger_error": timed.get("ledger_error"),
        "compute_median_s": timed.get("compute_median_s"),
        "step_median_s": timed.get("step_median_s"),
        "composed": _sources(found, convergence, timing),
    }


def _sources(found: Composition, convergence: CellFolder, timing: CellFolder) -> dict[str, Any]:
    ratio = found.max_payload_ratio
    return {
        "convergence": convergence.cell["id"],
        "timing": timing.cell["id"],
        "interval_s": list(found.interval_s) if found.interval_s is not None else None,
        "timed_steps": sum(kind.num_timed for kind in found.kinds if kind.name != "evaluation"),
        "max_payload_ratio": ratio if math.isfinite(ratio) else None,
    }


def _events(folder: CellFolder) -> dict[int, list[dict[str, Any]]]:
    return {rank: folder.events(rank) for rank in folder.ranks}


def _wire_ratio(timed: Mapping[str, Any]) -> float | None:
    wire, payload = timed.get("wire_bytes"), timed.get("payload_bytes")
    if wire is None or payload is None:
        return None
    return wire / payload if payload else 0.0


def _finite(point: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in point.items()}
