"""How long cells will take: as predicted, corrected by how long finished ones took against their predictions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bwbench.plan.assess import PlannedCell
from bwbench.records import read_json

USUAL_OVERHEAD_S = 15.0  # start-up and verification of the link, until a cell has been measured
NEWEST = 101  # finished cells of an arm that count
MOST_READ = 2000  # finished cells of earlier runs that are looked at: more would not make it better


@dataclass
class _Measured:
    """Of the newest finished cells of one arm and way, or of all."""

    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))  # training clock / prediction
    overheads_s: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))  # wall time without training


@dataclass
class _Waiting:
    """The cells of one arm and way that are still to come."""

    number: int = 0
    predicted_s: float = 0.0


class TimeLeft:
    """Knows the predictions of cells, is told how finished ones fared, and says how long others will take.

    What it costs to ask does not grow with the number of cells.

    Args:
        predicted_s: by cell id, the training clock until the limit; of a composed cell that of its parts.
    """

    def __init__(self, predicted_s: Mapping[str, float]) -> None:
        self._predicted_s = predicted_s
        self._all, self._arms = _Measured(), dict[str, _Measured]()
        self._waiting: dict[str, _Waiting] = {}

    def note(self, item: PlannedCell, status: Mapping[str, Any]) -> None:
        """Take in a finished cell. One that failed half-way says nothing."""
        predicted_s = self._predicted_s.get(item.cell.id)
        wall_s, clock_s = status.get("wall_s"), status.get("training_clock_s")
        if status.get("status") != "done" or not predicted_s or not wall_s or not clock_s:
            return
        if status.get("composed"):  # its clock is not one that has passed here
            clock_s = min(float(wall_s), predicted_s)
        for measured in (self._all, self._arms.setdefault(_group(item), _Measured())):
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

    def expect(self, item: PlannedCell, number: int = 1) -> None:
        """A cell is still to come; with ``number`` -1 it is no longer."""
        waiting = self._waiting.setdefault(_group(item), _Waiting())
        waiting.number += number
        waiting.predicted_s += number * self._predicted_s.get(item.cell.id, 0.0)

    def cell_s(self, item: PlannedCell) -> float:
        """Seconds from the start of a cell to its end."""
        return self._seconds(_group(item), 1, self._predicted_s.get(item.cell.id, 0.0))

    def waiting_s(self) -> float:
        """Seconds that the cells still to come take one after another."""
        return sum(self._seconds(arm, waiting.number, waiting.predicted_s) for arm, waiting in self._waiting.items())

    def _seconds(self, arm: str, number: int, predicted_s: float) -> float:
        measured = self._arms.get(arm, self._all)
        ratio = median(measured.ratios) if measured.ratios else 1.0
        overhead_s = median(measured.overheads_s) if measured.overheads_s else USUAL_OVERHEAD_S
        return ratio * predicted_s + number * overhead_s


def _group(item: PlannedCell) -> str:
    return f"{item.cell.arm}, {item.way}"
