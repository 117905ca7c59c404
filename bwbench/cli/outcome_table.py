"""The table at the end of a run: which method got there first, and whether several nodes were worth it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from bwbench.analysis.cells import is_composed
from bwbench.analysis.composed_error import composed_errors, composed_note
from bwbench.cli.output import new_table, size, stderr, stdout
from bwbench.cli.status import time_to_target
from bwbench.plan.assess import PlannedCell
from bwbench.records import CellFolder
from bwbench.sweep.loop import Tally

_METHOD_KEYS = ("nodes", "link", "algorithm", "collective", "compression")


def print_outcome(planned: Sequence[PlannedCell], tally: Tally) -> None:
    """Print the table of all cells on stdout, fastest first, and the statuses of those not done on stderr."""
    rows = [(item, CellFolder(item.folder)) for item in planned]
    done = [(item, folder) for item, folder in rows if (folder.status or {}).get("status") == "done"]
    done.sort(key=lambda row: _time_to_target(row[1].status))
    table = new_table(
        "method", "link", "time to target", "vs single", "samples to target", "final", "payload/step", "wire/step",
        "goodput asked", "achieved",
        right=("time to target", "vs single", "samples to target", "final", "payload/step", "wire/step"),
    )  # fmt: skip
    single_s = {_workload(item): _time_to_target(folder.status) for item, folder in done if item.cell.arm == "single"}
    for item, folder in done:
        status = folder.status or {}
        table.add_row(*_row(item, folder, status, single_s.get(_workload(item), math.nan)))
    if done:
        stdout().print(table)
    errors = [error.error for error in composed_errors(folder for _, folder in done)]
    if note := composed_note(sum(is_composed(folder) for _, folder in done), len(done), errors):
        stderr().print(f"note: {note}")
    for item, folder in rows:
        status = folder.status or {}
        if status.get("status") not in ("done", None):
            stderr().print(f"{item.cell.slug}: {status['status']}: {status.get('reason', '')}")
    if left := sum(count for status, count in tally.earlier.items() if status != "done"):
        stderr().print(
            f"{left} cell(s) ended badly in an earlier run and were left alone; --retry STATUS runs them again"
        )


def _row(item: PlannedCell, folder: CellFolder, status: dict[str, Any], single_s: float) -> tuple[str, ...]:
    shown = time_to_target(status)
    ratio = single_s / _time_to_target(status)
    wire = (folder.link or {}).get("wire") or {}
    asked, achieved = _goodput(folder)
    return (
        f"{item.cell.arm}" + (f" (seed {item.cell.config.seed})" if item.cell.config.seed else ""),
        item.cell.config.link.describe().partition(" (")[0],
        shown,
        f"{ratio:.2f}x" if math.isfinite(ratio) and ratio > 0 else "-",
        str(status.get("samples_to_target") or "-"),
        f"{status['final_metric']:.3f}" if status.get("final_metric") is not None else "-",
        size(_per_step(status, "payload_bytes")),
        size(wire.get("per_step_bytes", _per_step(status, "wire_bytes"))),
        asked,
        achieved,
    )


def _per_step(status: dict[str, Any], key: str) -> float | None:
    return status[key] / status["steps"] if status.get("steps") and status.get(key) is not None else None


def _goodput(folder: CellFolder) -> tuple[str, str]:
    """Asked and achieved goodput between neighbours before training, in Mbit/s: lowest and highest of all pairs."""
    pairs = ((folder.link or {}).get("achieved_before") or {}).get("pairs") or []
    if not pairs or not pairs[0].get("asked_goodput_bps"):
        return "-", "-"
    achieved = sorted(pair["achieved_goodput_bps"] / 1e6 for pair in pairs)
    return f"{pairs[0]['asked_goodput_bps'] / 1e6:.4g} Mbit/s", f"{achieved[0]:.4g}-{achieved[-1]:.4g}"


def _time_to_target(status: dict[str, Any] | None) -> float:
    reached_s = (status or {}).get("time_to_target_s")
    return float(reached_s) if reached_s is not None else math.inf


def _workload(item: PlannedCell) -> str:
    """What is trained, apart from how nodes agree and over what: cells with the same workload compare with `single`."""
    config = item.cell.config.model_dump(mode="json", by_alias=True)
    return json.dumps({key: value for key, value in config.items() if key not in _METHOD_KEYS}, sort_keys=True)
