"""status.json of a cell, from how its workers ended and what they recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bwbench.experiment.plan.cell import Cell
from bwbench.records import SCHEMA, CellFolder
from bwbench.results.analysis.trial import summarise
from bwbench.running.launch.outcome import LaunchOutcome
from bwbench.running.launch.resumption import Resumption


def cell_status(
    cell: Cell, attempt: Path, outcome: LaunchOutcome, link: dict[str, Any], resumption: Resumption
) -> dict[str, Any]:
    """Content of status.json: how it ended, and what the records say about the trial.

    Args:
        attempt: its folder, inside the cell's.
        link: content of link.json.
    """
    folder, wall_s = CellFolder(attempt.parent), resumption.wall_s
    summary = summarise({rank: folder.events(rank) for rank in folder.ranks}, cell.to_json(), link)
    declared_s = cell.config.compute.step_time_s
    if outcome.status == "done" and declared_s is not None and (summary.compute_median_s or 0.0) > declared_s:
        reason = f"a step computes for {summary.compute_median_s:.3g} s, longer than the declared step_time"
        outcome = LaunchOutcome("invalid", f"{reason}; declare more, or let nothing else run here")
    return {
        "schema": SCHEMA,
        "id": cell.id,
        "slug": cell.slug,
        "status": outcome.status,
        "reason": outcome.reason,
        "attempt": int(attempt.name.rpartition("-")[2]),
        **resumption.to_json(),
        "wall_s": wall_s,
        "overhead_s": wall_s - summary.training_clock_s - summary.evaluation_s,
        **summary.to_json(),
    }
