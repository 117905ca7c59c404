"""How long the cells of a sweep that are still to come will take, as far as it is known by now."""

from __future__ import annotations

import time

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.forecast import Forecast
from bwbench.records.schema import Status

FEW = 500  # cells that are predicted anew whenever one has finished …
REFRESHED_S = 10.0  # … more of them only now and then: it would keep a processor busy that cells run on


class TimeLeft:
    """Is told which cells are to come, and how others fared that finished.

    Args:
        forecast: of all these cells; learns from those that finish.
    """

    def __init__(self, forecast: Forecast) -> None:
        self._forecast = forecast
        self._waiting: dict[tuple[str, str], PlannedCell] = {}
        self._seconds: dict[tuple[str, str], float] = {}
        self._total_s = 0.0
        self._known, self._refreshed_s = forecast.num_cells, time.monotonic()

    def note(self, item: PlannedCell, status: Status) -> None:
        """Take in a finished cell."""
        self._forecast.note(item, status)

    @property
    def is_measured(self) -> bool:
        """Whether any cell has been measured: without one, times are what cells take at most."""
        return self._forecast.num_cells > 0

    def expect(self, item: PlannedCell, number: int = 1) -> None:
        """A cell is still to come; with ``number`` -1 it is no longer."""
        key = (item.cell.experiment, item.cell.id)
        if number > 0:
            self._waiting[key] = item
            self._seconds[key] = self.cell_s(item)
            self._total_s += self._seconds[key]
        elif self._waiting.pop(key, None) is not None:
            self._total_s -= self._seconds.pop(key)

    def cell_s(self, item: PlannedCell) -> float:
        """Seconds from the start of a cell to its end."""
        return self._forecast.predict(item).total_s

    def waiting_s(self) -> float:
        """Seconds that the cells still to come take one after another."""
        now_s, known = time.monotonic(), self._forecast.num_cells
        if known != self._known and (len(self._waiting) <= FEW or now_s - self._refreshed_s > REFRESHED_S):
            self._known, self._refreshed_s = known, now_s
            self._seconds = {key: self.cell_s(item) for key, item in self._waiting.items()}
            self._total_s = sum(self._seconds.values())
        return max(0.0, self._total_s)
