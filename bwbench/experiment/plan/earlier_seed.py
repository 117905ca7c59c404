"""A further seed of a published study needs no link: an earlier seed says what its steps take."""

from __future__ import annotations

from bwbench.base.errors import RecordError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.composing import COMPOSED, TIMING_FOLDER, Parts
from bwbench.records import CellFolder, read_record
from bwbench.records.cell_identity import identity
from bwbench.records.packed import find_packed
from bwbench.records.schema import Status


def earlier_seed(item: PlannedCell, parts: Parts) -> CellFolder | None:
    """The published cell whose step times stand for the timing runs of ``item``.

    It differs from it in an earlier seed alone, and was composed of the same timing runs. None where these runs are in
    the results folder as well, or where no published cell says what all steps take: one that ended at its target, or
    when its time was up, does not. Of a cell that is made whole as well both ways belong to one machine.

    Raises PackedRecordsError where the published set is broken.
    """
    cell, experiment = item.cell, item.folder.parent
    if item.way != COMPOSED or cell.config.stop != "limit" or cell.config.limit.time_s is not None:
        return None
    earlier = _published(item, parts)
    if earlier is None:
        return None
    for timing in parts.timings:
        files = experiment.glob(f"{TIMING_FOLDER}/*-{timing.id}/status.json")
        try:
            found = [read_record(Status, file) for file in files]
        except RecordError:
            return None  # it is there, and composing says what is wrong with it
        if not any(status is not None and status.status == "done" for status in found):
            return earlier
    return None


def _published(item: PlannedCell, parts: Parts) -> CellFolder | None:
    cell, wanted = item.cell, tuple(timing.id for timing in parts.timings)
    for before in range(cell.repeat, 0, -1):
        config = cell.config.model_copy(update={"seed": cell.config.seed - before})
        found = find_packed(item.folder.parent / f"{cell.arm}-{identity(config)}")
        if found is None:
            continue
        there = CellFolder(*found)
        if there.problem is None and there.composed is not None and there.composed.timings == wanted:
            return there
    return None
