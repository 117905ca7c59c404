"""Records as flat tables for other programs: a row a cell, an evaluation or a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from bwbench.records import CellFolder
from bwbench.results.analysis.cells import OUTCOMES, cell_row, is_composed, setting_of, state_of
from bwbench.results.analysis.provenance import commit_of, host_of
from bwbench.results.analysis.trial import curve_of

Row = dict[str, Any]

_IDENTITY = ("id", "slug", "experiment", "arm", "repeat")
_DERIVED = ("bandwidth_bps", "rtt_s", "global_batch", "target_metric", "target_value", "evaluate_every_samples")
_OF_A_STEP = ("step", "samples", "clock_s", "duration_s", "loss", "lr", "payload_bytes")


def export_cells(folders: Iterable[CellFolder]) -> Iterator[Row]:
    """One row a cell, done or not: identity, outcome, link asked and achieved, provenance, and the configuration.

    Keys of the configuration are dotted and begin with ``config.``; lists in it are JSON text. Numbers in SI.
    """
    for folder in folders:
        about = cell_row(folder)
        row: Row = {key: about[key] for key in _IDENTITY}
        row |= {"status": about["status"], "reason": about["reason"], "composed": is_composed(folder)}
        row |= {key: about[key] for key in (*_DERIVED, *OUTCOMES)}
        row |= {key: (folder.status or {}).get(key) for key in ("metric", "compute_median_s", "step_median_s")}
        row |= _achieved(folder.link or {})
        yield row | _provenance(folder) | dict(_flat(folder.cell["config"], "config."))


def export_evaluations(folders: Iterable[CellFolder]) -> Iterator[Row]:
    """One row a validation evaluation: samples, training clock, every metric. Of a composed cell on its composed clock,
    of another one as its last attempt recorded them."""
    for folder in folders:
        if folder.digest is not None:
            curve = folder.digest.get("curve") or []
        else:
            curve = curve_of({rank: folder.events(rank) for rank in folder.ranks})
        for point in curve:
            yield _who(folder) | point


def export_steps(folders: Iterable[CellFolder]) -> Iterator[Row]:
    """One row a step and rank of a cell's last attempt, with the parts of its ledger; none of a composed or a
    published cell."""
    for folder in folders:
        if folder.digest is not None:
            continue
        who = _who(folder)
        for rank in folder.ranks:
            for event in folder.events(rank):
                if event.get("event") == "step":
                    ledger = event.get("ledger") or {}
                    yield {**who, "rank": rank, **{key: event.get(key) for key in _OF_A_STEP}, **ledger}


WHAT: Mapping[str, Callable[[Iterable[CellFolder]], Iterator[Row]]] = {
    "cells": export_cells,
    "evaluations": export_evaluations,
    "steps": export_steps,
}


def _who(folder: CellFolder) -> Row:
    about: Row = {key: folder.cell.get(key) for key in _IDENTITY}
    setting = setting_of(folder.cell["config"])
    about |= {"seed": setting.seed, "bandwidth_bps": setting.bandwidth_bps, "status": state_of(folder)}
    return about | {"composed": is_composed(folder)}


def _achieved(link: Mapping[str, Any]) -> Row:
    """Goodput and round trip, asked and measured before training: the slowest and the latest pair of neighbours."""
    measured = link.get("achieved_before") or {}
    pairs = [pair for pair in measured.get("pairs") or [] if isinstance(pair, Mapping)]
    row: Row = {"link_backend": link.get("backend"), "link_verdict": measured.get("verdict")}
    for key, worst in (
        ("asked_goodput_bps", min), ("achieved_goodput_bps", min), ("asked_rtt_s", max), ("achieved_rtt_s", max),
    ):  # fmt: skip
        values = [pair[key] for pair in pairs if pair.get(key) is not None]
        row[f"link_{key}"] = worst(values) if values else None
    return row | {"wire_bytes_per_step": (link.get("wire") or {}).get("per_step_bytes")}


def _provenance(folder: CellFolder) -> Row:
    environment = folder.environment or {}
    packages = environment.get("packages") or {}
    row: Row = {"host": host_of(environment) or None, "commit": commit_of(environment) or None}
    row |= {key: environment.get(key) for key in ("time_unix_s", "kernel", "cpu", "cores", "python", "bwbench")}
    return row | {"torch": packages.get("torch"), "folder": str(folder.path)}


def _flat(config: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value) if isinstance(value, list) else value
