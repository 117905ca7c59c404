"""How long cells take, from start to end: as estimated, corrected by what finished cells took. Files are the source.

Four things are learnt, each from the finished cells that are most like the one in question: what computing a step
takes, what an evaluation takes, what start-up and verification take, and what a step of a method takes on a link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bwbench.plan.cell import Cell
from bwbench.plan.composed import convergence_config
from bwbench.plan.estimate import Estimate
from bwbench.plan.fit import Fit, Measured, fitted
from bwbench.plan.overhead import num_evaluations

NEWEST = 101  # finished cells of a kind that count


@dataclass(frozen=True)
class Prediction:
    """Seconds of one cell.

    Attributes:
        overhead_s: start-up, and measuring the link before and after.
        training_s: training clock.
        evaluation_s: evaluations, which stand beside it.
        steps: that the training takes.
        to_target: whether that is how many finished repeats took to the target; else it is up to the limit, and a
            target that is reached earlier ends the cell earlier.
        num_cells: finished cells that this rests on; 0 before any.
    """

    overhead_s: float = 0.0
    training_s: float = 0.0
    evaluation_s: float = 0.0
    steps: int = 0
    to_target: bool = False
    num_cells: int = 0

    @property
    def total_s(self) -> float:
        """From the start of the cell to its end."""
        return self.overhead_s + self.training_s + self.evaluation_s

    def __add__(self, other: Prediction) -> Prediction:
        """Both one after the other."""
        return Prediction(
            self.overhead_s + other.overhead_s,
            self.training_s + other.training_s,
            self.evaluation_s + other.evaluation_s,
            self.steps + other.steps,
            self.to_target and other.to_target,
            max(self.num_cells, other.num_cells),
        )


@dataclass(frozen=True)
class _Kind:
    """What cells have in common: ``work`` is what the nodes compute, ``place`` the link and the declared step time."""

    arm: str
    work: str
    place: str


class Calibration:
    """Takes in finished cells, and predicts others.

    Args:
        estimates: by cell id, of all cells that are taken in or predicted.

    Attributes:
        num_cells: that have been taken in.
    """

    def __init__(self, estimates: Mapping[str, Estimate]) -> None:
        self.num_cells = 0
        self._estimates = estimates
        self._kinds: dict[str, _Kind] = {}
        self._computing, self._evaluating, self._starting = _Ratios(), _Ratios(), _Ratios()
        self._steps: dict[str, dict[str, dict[str, deque[_Steps]]]] = {}  # by work, arm and place
        self._fits: dict[tuple[str, str | None], Fit] = {}
        self._to_target: dict[str, deque[int | None]] = {}

    def note(self, cell: Cell, status: Mapping[str, Any]) -> None:
        """Take in a finished cell that ran here, by its status.json. One that failed half-way says nothing."""
        found = self._estimates.get(cell.id)
        clock_s, steps, wall_s = status.get("training_clock_s"), status.get("steps"), status.get("wall_s")
        if status.get("status") != "done" or status.get("composed") or found is None:
            return
        if not clock_s or not steps or not wall_s:
            return
        kind = self._kind_of(cell)
        self.num_cells += 1
        self._fits.clear()
        evaluation_s = float(status.get("evaluation_s") or 0.0)
        overhead_s = max(0.0, float(wall_s) - float(clock_s) - evaluation_s)
        self._computing.add(kind.work, status.get("compute_median_s"), found.unpadded_s)
        self._evaluating.add(kind.work, evaluation_s, _evaluations_s(cell, found, int(steps)))
        self._starting.add(kind.work, overhead_s, found.overhead_s)
        places = self._steps.setdefault(kind.work, {}).setdefault(kind.arm, {})
        places.setdefault(kind.place, deque(maxlen=NEWEST)).append(_Steps(found, int(steps), float(clock_s)))
        if cell.config.target is not None:
            reached = status.get("samples_to_target")
            taken = None if reached is None else round(int(reached) / cell.config.global_batch)
            self._to_target.setdefault(_learning(cell), deque(maxlen=NEWEST)).append(taken)

    def predict(self, cell: Cell, steps: int | None = None) -> Prediction:
        """How long ``cell`` takes; nothing but zeros where there is no estimate.

        Args:
            steps: that it takes, where that is known; else as many as finished repeats took to their target, or up to
                the limit.
        """
        found = self._estimates.get(cell.id)
        if found is None:
            return Prediction()
        to_target = False
        if steps is None:
            known = self._steps_to_target(cell)
            to_target = known is not None and known < found.steps
            steps = known if known is not None and to_target else found.steps
        overhead_s, evaluation_s = found.overhead_s, _evaluations_s(cell, found, steps)
        if self.num_cells == 0:
            training_s = _Steps(found, steps).clock_s(Fit(), computing=1.0)
        else:
            kind = self._kind_of(cell)
            overhead_s *= self._starting.of(kind.work)
            evaluation_s *= self._evaluating.of(kind.work)
            training_s = self._training_s(kind, _Steps(found, steps))
        limit_s = cell.config.limit.time_s
        training_s = training_s if limit_s is None else min(training_s, limit_s)
        return Prediction(overhead_s, training_s, evaluation_s, steps, to_target, self.num_cells)

    def _training_s(self, kind: _Kind, asked: _Steps) -> float:
        """By the method's fit; where it has run on this very link, corrected by what it took there."""
        fit, computing = self._fit_of(kind), self._computing.of(kind.work)
        training_s = asked.clock_s(fit, computing)
        here = self._steps.get(kind.work, {}).get(kind.arm, {}).get(kind.place, ())
        return training_s * median([one.measured_s / one.clock_s(fit, computing) for one in here] or [1.0])

    def _fit_of(self, kind: _Kind) -> Fit:
        """Of the arm at this work on any link, which starts from that of all arms at this work."""
        arms = self._steps.get(kind.work, {})
        everything = [place for places in arms.values() for place in places.values()]
        of_all = self._fitted((kind.work, None), everything, Fit())
        return self._fitted((kind.work, kind.arm), [*arms.get(kind.arm, {}).values()], of_all)

    def _fitted(self, name: tuple[str, str | None], places: Sequence[Sequence[_Steps]], before: Fit) -> Fit:
        if name not in self._fits:
            computing = self._computing.of(name[0])
            self._fits[name] = fitted([_middle(cells).measured(computing) for cells in places], before)
        return self._fits[name]

    def _steps_to_target(self, cell: Cell) -> int | None:
        """Median of finished repeats; None where there are none, or where half of them did not get there."""
        if cell.config.target is None or cell.config.stop != "target" or not self._to_target:
            return None
        known = self._to_target.get(_learning(cell), ())
        reached = sorted(taken for taken in known if taken is not None)
        return reached[len(known) // 2] if len(known) // 2 < len(reached) else None

    def _kind_of(self, cell: Cell) -> _Kind:
        if cell.id not in self._kinds:
            config = cell.config
            model, data = config.model.to_json(), config.dataset.source.to_json()
            sizes = (config.batch_size, config.accumulate, config.nodes, config.compute.threads)
            place = f"{config.compute.step_time_s} {self._estimates[cell.id].communication_s} {config.link.describe()}"
            self._kinds[cell.id] = _Kind(cell.arm, f"{model} {data} {sizes}", place)
        return self._kinds[cell.id]


@dataclass(frozen=True)
class _Steps:
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
        return fit.step_s(*self.parts_s(computing))

    def measured(self, computing: float) -> Measured:
        return Measured(*self.parts_s(computing), self.measured_s)


def _middle(cells: Sequence[_Steps]) -> _Steps:
    """The one whose steps took neither long nor short: a cell that something disturbed says nothing."""
    return sorted(cells, key=lambda one: one.measured_s / one.steps)[len(cells) // 2]


class _Ratios:
    """Measured over predicted, by what a node computes; of all where that has not been measured."""

    def __init__(self) -> None:
        self._by_work: dict[str, deque[float]] = {}
        self._all: deque[float] = deque(maxlen=NEWEST)
        self._medians: dict[str, float] = {}

    def add(self, work: str, measured_s: float | None, predicted_s: float) -> None:
        if not measured_s or not predicted_s:
            return
        self._by_work.setdefault(work, deque(maxlen=NEWEST)).append(measured_s / predicted_s)
        self._all.append(measured_s / predicted_s)
        self._medians.clear()

    def of(self, work: str) -> float:
        if work not in self._medians:
            self._medians[work] = median(self._by_work.get(work) or self._all or (1.0,))
        return self._medians[work]


def _evaluations_s(cell: Cell, found: Estimate, steps: int) -> float:
    """What is estimated for all evaluations of so many steps."""
    return num_evaluations(cell.config, steps) * found.validation_s + found.test_s


def _learning(cell: Cell) -> str:
    """What the number of steps to the target depends on, but for the seed. The link hardly matters."""
    config = convergence_config(cell.config)
    return config.model_dump_json(by_alias=True, exclude={"seed", "compute", "limit", "stop"})
