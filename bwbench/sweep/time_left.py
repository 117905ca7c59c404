"""How long cells will take: as predicted, corrected by how long finished ones took against their predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bwbench.plan.assess import PlannedCell
from bwbench.records import read_json

USUAL_OVERHEAD_S = 15.0  # start-up and verification of the link, until a cell has been measured
MOST_READ = 2000  # finished cells of earlier runs that are looked at: more would not make it better


@dataclass
class _Measured:
    """Of the finished cells of one arm, or of all."""

    ratios: list[float] = field(default_factory=list)  # training clock / prediction
    overheads_s: list[float] = field(default_factory=list)  # wall time without training


class TimeLeft:
    """Knows the predictions of cells, is told how finished ones fared, and says how long others will take.

    Args:
        predicted_s: by cell id, the training clock until the limit.
    """

    def __init__(self, predicted_s: Mapping[str, float]) -> None:
        self._predicted_s = predicted_s
        self._all, self._arms = _Measured(), dict[str, _Measured]()

    def note(self, item: PlannedCell, status: Mapping[str, Any]) -> None:
        """Take in a finished cell. One that failed half-way says nothing."""
        predicted_s = self._predicted_s.get(item.cell.id)
        wall_s, clock_s = status.get("wall_s"), status.get("training_clock_s")
        if status.get("status") != "done" or not predicted_s or not wall_s or not clock_s:
            return
        for measured in (self._all, self._arms.setdefault(item.cell.arm, _Measured())):
            measured.ratios.append(float(clock_s) / predicted_s)
            measured.overheads_s.append(max(0.0, float(wall_s) - float(clock_s)))

    def note_earlier(self, planned: Iterable[PlannedCell]) -> None:
        """Take in the cells that earlier runs have finished."""
        done = [item for item in planned if item.status == "done" and item.cell.id in self._predicted_s]
        for item in done[-MOST_READ:]:
            recorded = read_json(item.folder / "status.json")
            if isinstance(recorded, dict):
                self.note(item, recorded)

    @property
    def is_measured(self) -> bool:
        """Whether any cell has been measured: without one, times are what cells take at most."""
        return bool(self._all.ratios)

    def cell_s(self, item: PlannedCell) -> float:
        """Seconds from the start of a cell to its end."""
        measured = self._arms.get(item.cell.arm, self._all)
        ratio = median(measured.ratios) if measured.ratios else 1.0
        overhead_s = median(measured.overheads_s) if measured.overheads_s else USUAL_OVERHEAD_S
        return ratio * self._predicted_s.get(item.cell.id, 0.0) + overhead_s

    def total_s(self, items: Iterable[PlannedCell]) -> float:
        """Seconds that cells take one after another."""
        return sum(map(self.cell_s, items))
