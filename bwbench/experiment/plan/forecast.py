"""How long the cells of a plan take, where some are composed of runs that others need as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bwbench.base.errors import RecordError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.calibration import Calibration, Prediction
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import COMPOSED, CONVERGENCE_FOLDER, TIMING_FOLDER, WHOLE, parts_of
from bwbench.experiment.plan.described_models import describe
from bwbench.experiment.plan.estimate import CellEstimate, estimate_cells
from bwbench.records import cell_at, read_record
from bwbench.records.schema import Status

MOST_READ = 2000  # finished cells that are looked at: more would not make it better
MOST_PARTED = 200  # finished cells whose parts are: these are shared, and finding out which they are takes a while

Key = tuple[str, str]  # experiment and id of a cell
Part = tuple[Cell, Path]  # and the folder in which it is or will be stored


class Forecast:
    """Predicts planned cells, and learns from those that finish.

    Args:
        estimates: by cell id, of all cells and of the parts of composed ones.
        parts: by experiment and id of a cell, the runs that a cell brings about besides its own, or in place of it.
    """

    def __init__(
        self, estimates: Mapping[str, CellEstimate], parts: Mapping[Key, Sequence[Part]] | None = None
    ) -> None:
        self.estimates = estimates
        self._parts = parts or {}
        self.calibration = Calibration(estimates)

    @property
    def num_cells(self) -> int:
        """Finished cells that predictions rest on."""
        return self.calibration.num_cells

    def predict(self, item: PlannedCell) -> Prediction:
        """From the start of a cell to its end, with the runs that it brings about."""
        own = Prediction() if item.way == COMPOSED else self.calibration.predict(item.cell)
        for part, _ in self._parts.get(_key(item), ()):
            own += self.calibration.predict(part)
        return own

    def note(self, item: PlannedCell, status: Status) -> None:
        """Take in a cell that has finished, and the runs that it brought about."""
        self.calibration.note(item.cell, status)
        for part, store in self._parts.get(_key(item), ()):
            for file in store.glob(f"*-{part.id}/status.json"):
                if (recorded := _status_in(file)) is not None:
                    self.calibration.note(part, recorded)


def foresee(planned: Sequence[PlannedCell]) -> Forecast:
    """Of the cells of a plan, in the order in which they run, with all that is recorded of them.

    A composed cell takes as long as those of its convergence and its timing run that are neither done nor needed by a
    cell before it. Experiments share convergence runs; a cell that two of them have runs in each.

    Raises ConfigError and LaunchError as ``describe``.
    """
    cells = {item.cell.id: item.cell for item in planned}
    composed = [item for item in planned if item.way != WHOLE and item.runs]
    composed += [item for item in planned if item.way != WHOLE and item.status == "done"][-MOST_PARTED:]
    parts_of_all: dict[tuple[Path, str], Cell] = {}
    done: dict[Path, dict[str, Status]] = {}
    missing: dict[Key, list[Part]] = {}
    for item, described in zip(composed, describe([item.cell.config for item in composed]), strict=True):
        parts, experiment = parts_of(item.cell, described.parameter_shapes), item.folder.parent
        for cell, store in (
            (parts.convergence, experiment.parent / CONVERGENCE_FOLDER),
            (parts.timing, experiment / TIMING_FOLDER),
        ):
            if store not in done:
                recorded_there = filter(None, map(_status_in, store.glob("*/status.json")))
                done[store] = {one.id: one for one in recorded_there if one.status == "done"}
            if (store, cell.id) in parts_of_all:
                continue
            if cell.id in done[store]:
                parts_of_all[store, cell.id] = cell
            elif item.runs:
                parts_of_all[store, cell.id] = cell
                missing.setdefault(_key(item), []).append((cell, store))
    found = Forecast(estimate_cells([*cells.values(), *parts_of_all.values()]), missing)
    for item in [item for item in planned if item.status == "done"][-MOST_READ:]:
        if (recorded := cell_at(item.folder).status) is not None:
            found.calibration.note(item.cell, recorded)
    for (store, part_id), part in parts_of_all.items():
        if part_id in done[store]:
            found.calibration.note(part, done[store][part_id])
    return found


def _key(item: PlannedCell) -> Key:
    return item.cell.experiment, item.cell.id


def _status_in(file: Path) -> Status | None:
    """What a cell came to; None where that cannot be read, and so says nothing of other cells."""
    try:
        return read_record(Status, file)
    except RecordError:
        return None
