"""What finished cells took, kept by what they have in common with others. Plain values; read by ``calibration.py``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from bwbench.experiment.plan.estimate import Estimate
from bwbench.experiment.plan.fit import Fit, Measured

NEWEST = 101  # finished cells of a kind that count


@dataclass(frozen=True)
class Kind:
    """What cells have in common: ``work`` is what the nodes compute, ``place`` the link and the declared step time."""

    arm: str
    work: str
    place: str


@dataclass(frozen=True)
class Steps:
    """Some steps of a cell from its begin on, and what they took where that is known."""

    estimate: Estimate
    steps: int
    measured_s: float = 0.0

    def parts_s(self, computing: float) -> tuple[float, float]:
        """Computing and sending of all steps; the latter as far as it lengthens them."""
        found = self.estimate
        base_s = max(found.unpadded_s * computing, found.padded_to_s)
        first = min(self.steps, found.warm_up_steps)
        sending_s = found.communication_s
        if found.in_background:
            sending_s = max(0.0, sending_s - base_s)
        whole_s = found.warm_up_step_s - found.compute_s
        return self.steps * base_s, first * whole_s + (self.steps - first) * sending_s

    def clock_s(self, fit: Fit, computing: float) -> float:
        """Predicted training clock; ``computing`` is what that takes here over what was estimated."""
        return fit.step_s(*self.parts_s(computing))

    def measured(self, computing: float) -> Measured:
        """What they took, for a fit."""
        return Measured(*self.parts_s(computing), self.measured_s)


class Place:
    """Finished cells of one arm on one link, of which one stands for all."""

    def __init__(self) -> None:
        self._cells: deque[Steps] = deque(maxlen=NEWEST)
        self._usual: Steps | None = None

    def add(self, cell: Steps) -> None:
        """Take in one more; the oldest is forgotten where there are many."""
        self._cells.append(cell)
        self._usual = None

    @property
    def usual(self) -> Steps:
        """The one whose steps took neither long nor short; of two the quicker one: disturbances take time."""
        if self._usual is None:
            by_speed = sorted(self._cells, key=lambda one: one.measured_s / one.steps)
            self._usual = by_speed[(len(by_speed) - 1) // 2]
        return self._usual


class Ratios:
    """Measured over predicted, by what a node computes; of all where that has not been measured."""

    def __init__(self) -> None:
        self._by_work: dict[str, deque[float]] = {}
        self._all: deque[float] = deque(maxlen=NEWEST)
        self._medians: dict[str, float] = {}

    def add(self, work: str, measured_s: float | None, predicted_s: float) -> None:
        """Take in a finished cell; one in which this took no time says nothing."""
        if not measured_s or not predicted_s:
            return
        self._by_work.setdefault(work, deque(maxlen=NEWEST)).append(measured_s / predicted_s)
        self._all.append(measured_s / predicted_s)
        self._medians.clear()

    def of(self, work: str) -> float:
        """Median of the finished cells; 1 before any."""
        if work not in self._medians:
            self._medians[work] = median(self._by_work.get(work) or self._all or (1.0,))
        return self._medians[work]
