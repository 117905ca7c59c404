"""status.json of a cell, from how its workers ended and what they recorded."""

from __future__ import annotations

from pathlib import Path

from bwbench.experiment.plan.cell import Cell
from bwbench.records import CellFolder
from bwbench.records.schema import LinkRecord, Status
from bwbench.results.analysis.trial import summarise
from bwbench.running.launch.outcome import LaunchOutcome
from bwbench.running.launch.resumption import Resumption


def cell_status(cell: Cell, attempt: Path, outcome: LaunchOutcome, link: LinkRecord, resumption: Resumption) -> Status:
    """How the cell ended, and what the records say about the trial.

    Args:
        attempt: its folder, inside the cell's.
    """
    folder, wall_s = CellFolder(attempt.parent), resumption.wall_s
    config = cell.config.model_dump(mode="json", by_alias=True)
    summary = summarise({rank: folder.events(rank) for rank in folder.ranks}, config, link.wire)
    declared_s = cell.config.compute.step_time_s
    if outcome.status == "done" and declared_s is not None and (summary.compute_median_s or 0.0) > declared_s:
        reason = f"a step computes for {summary.compute_median_s:.3g} s, longer than the declared step_time"
        outcome = LaunchOutcome("invalid", f"{reason}; declare more, or let nothing else run here")
    return Status(
        id=cell.id,
        slug=cell.slug,
        status=outcome.status,
        reason=outcome.reason,
        attempt=int(attempt.name.rpartition("-")[2]),
        resumed_from=resumption.resumed_from,
        resume_refused=resumption.refused,
        wall_s=wall_s,
        overhead_s=wall_s - (summary.training_clock_s or 0.0) - (summary.evaluation_s or 0.0),
        **dict(summary),
    )
