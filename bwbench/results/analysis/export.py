"""Records as flat tables for other programs: a row a cell, an evaluation or a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from bwbench.base.plain_data import leaves
from bwbench.records import CellFolder
from bwbench.records.schema import OUTCOMES, CurvePoint, Environment, LinkRecord, Measurement, Step, TrialSummary
from bwbench.results.analysis.caveats import commit_of, host_of
from bwbench.results.analysis.cells import Row, cell_row, is_composed, setting_of, state_of
from bwbench.results.analysis.host_bound import OwnSteps
from bwbench.results.analysis.trial import curve_of

_IDENTITY = ("id", "slug", "experiment", "arm", "repeat")
_DERIVED = ("bandwidth_bps", "rtt_s", "global_batch", "target_metric", "target_value", "evaluate_every_samples")
_OF_ARRIVAL = ("arrival_kind", "first_crossing_s", "first_crossing_samples")
_OF_ITS_TIME = (  # how far to trust it
    "slowest_step_s", "own_step_s", "host_bound", "timing_runs", "between_share", "arrived_alone",
    "shrink",
)  # fmt: skip
_OF_ENVIRONMENT = ("time_unix_s", "kernel", "cpu", "cores", "python", "bwbench", "compiled_codecs")
_OF_A_STEP = ("step", "samples", "clock_s", "duration_s", "loss", "lr", "payload_bytes")


def export_cells(folders: Iterable[CellFolder]) -> Iterator[Row]:
    """One row a cell, done or not: identity, outcome, link asked and achieved, provenance, and the configuration.

    Keys of the configuration are dotted and begin with ``config.``; lists in it are JSON text. Numbers in SI.
    """
    cells = list(folders)
    own = OwnSteps.of(cells)
    for folder in cells:
        about = cell_row(folder) | own.row(folder)
        row: Row = {key: about[key] for key in _IDENTITY}
        row |= {"status": about["status"], "reason": about["reason"], "composed": is_composed(folder)}
        row |= {key: about[key] for key in (*_DERIVED, *OUTCOMES, *_OF_ARRIVAL)}
        status = folder.status or TrialSummary()
        row |= {key: getattr(status, key) for key in ("metric", "compute_median_s", "step_median_s")}
        row["test_metric_at_arrival"] = about["test_metric_at_arrival"]
        row |= {key: about[key] for key in _OF_ITS_TIME}
        row["replicas_apart"] = about["replicas_apart"]
        row |= _achieved(folder.link or LinkRecord())
        environment = folder.environment or Environment()
        row |= {"host": host_of(environment) or None, "commit": commit_of(environment) or None}
        row |= {key: getattr(environment, key) for key in _OF_ENVIRONMENT}
        row |= {"torch": environment.packages.get("torch"), "folder": str(folder.path)}
        for key, value in leaves(folder.cell.config, "config."):
            row[key] = json.dumps(value) if isinstance(value, list) else value
        yield row


def export_evaluations(folders: Iterable[CellFolder]) -> Iterator[Row]:
    """One row a validation evaluation: samples, training clock, every metric, behind ``test_`` on the test split, empty
    where that was not looked at. Of a composed cell on its composed clock, of another one as its last attempt recorded
    them."""
    for folder in folders:
        if folder.digest is not None:
            curve: Iterable[CurvePoint] = folder.digest.curve
        else:
            curve = curve_of(folder.events())
        for point in curve:
            yield _who(folder) | point.to_json()


def export_steps(folders: Iterable[CellFolder]) -> Iterator[Row]:
    """One row a step and rank of a cell's last attempt, with the parts of its ledger; none of a composed or a
    published cell."""
    for folder in folders:
        if folder.digest is not None:
            continue
        who = _who(folder)
        for rank, events in folder.events().items():
            for event in events:
                if isinstance(event, Step):
                    ledger = event.ledger.to_json() if event.ledger is not None else {}
                    yield {**who, "rank": rank, **{key: getattr(event, key) for key in _OF_A_STEP}, **ledger}


WHAT: Mapping[str, Callable[[Iterable[CellFolder]], Iterator[Row]]] = {
    "cells": export_cells,
    "evaluations": export_evaluations,
    "steps": export_steps,
}


def _who(folder: CellFolder) -> Row:
    about: Row = {key: getattr(folder.cell, key) for key in _IDENTITY}
    setting = setting_of(folder.cell.config)
    about |= {"seed": setting.seed, "bandwidth_bps": setting.bandwidth_bps, "status": state_of(folder)}
    return about | {"composed": is_composed(folder)}


def _achieved(link: LinkRecord) -> Row:
    """Goodput and round trip, asked and measured before training: the slowest and the latest pair of neighbours."""
    measured = link.in_asked_time.achieved_before or Measurement()
    row: Row = {"link_backend": link.backend, "link_verdict": measured.verdict}
    for key, worst in (
        ("asked_goodput_bps", min), ("achieved_goodput_bps", min), ("asked_rtt_s", max), ("achieved_rtt_s", max),
    ):  # fmt: skip
        values = [value for pair in measured.pairs if (value := getattr(pair, key)) is not None]
        row[f"link_{key}"] = worst(values) if values else None
    return row | {"wire_bytes_per_step": link.wire.per_step_bytes if link.wire is not None else None}
