"""How long the cells of a sweep that are still to come will take, as far as it is known by now."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.calibration import Forecast
from bwbench.records.schema import Status

FEW = 500  # cells that are predicted anew whenever one has finished …
REFRESHED_S = 10.0  # … more of them only now and then: it would keep a processor busy that cells run on


class TimeLeft:
    """Is told which cells begin and end, and how those fared that finished.

    Args:
        forecast: of all these cells; learns from those that finish.
        todo: the cells that are to come.
    """

    def __init__(self, forecast: Forecast, todo: Sequence[PlannedCell]) -> None:
        self._forecast = forecast
        self._waiting = {_key(item): item for item in todo}
        self._seconds = {key: self.cell_s(item) for key, item in self._waiting.items()}
        self._total_s = sum(self._seconds.values())
        self._running: dict[tuple[str, str], tuple[PlannedCell, float]] = {}
        self._known, self._refreshed_s = forecast.num_cells, time.monotonic()

    @property
    def is_measured(self) -> bool:
        """Whether any cell has been measured: without one, times are what cells take at most."""
        return self._forecast.num_cells > 0

    def cell_s(self, item: PlannedCell) -> float:
        """Seconds from the start of a cell to its end."""
        return self._forecast.predict(item).total_s

    def start(self, item: PlannedCell) -> None:
        """A cell begins."""
        self.drop(item)
        self._running[_key(item)] = item, time.monotonic()

    def finish(self, item: PlannedCell, status: Status) -> None:
        """A cell has ended with this."""
        self._forecast.note(item, status)
        self.drop(item)

    def drop(self, item: PlannedCell) -> None:
        """A cell is neither to come nor running any more."""
        self._running.pop(_key(item), None)
        if self._waiting.pop(_key(item), None) is not None:
            self._total_s -= self._seconds.pop(_key(item))

    def left_s(self) -> float:
        """Seconds until all have ended. Several cells that run at a time go on doing so."""
        now_s = time.monotonic()
        left_s = [max(0.0, self.cell_s(item) - (now_s - began_s)) for item, began_s in self._running.values()]
        return max((self._waiting_s(now_s) + sum(left_s)) / max(1, len(left_s)), *left_s, 0.0)

    def _waiting_s(self, now_s: float) -> float:
        """Those still to come, one after another."""
        known = self._forecast.num_cells
        if known != self._known and (len(self._waiting) <= FEW or now_s - self._refreshed_s > REFRESHED_S):
            self._known, self._refreshed_s = known, now_s
            self._seconds = {key: self.cell_s(item) for key, item in self._waiting.items()}
            self._total_s = sum(self._seconds.values())
        return max(0.0, self._total_s)


def _key(item: PlannedCell) -> tuple[str, str]:
    return item.cell.experiment, item.cell.id
