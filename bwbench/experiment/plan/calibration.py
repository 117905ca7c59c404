"""How long cells take, from start to end: as estimated, corrected by what finished cells took. Files are the source.

Four things are learnt, each from the finished cells that are most like the one in question: what computing a step
takes, what an evaluation takes, what start-up and verification take, and what a step of a method takes on a link.

Of the last, few measurements have to do. A step is taken to last ``base + extra + factor * sending``. Extra is software
between both, or overlap where it is negative; the factor is what the link's model leaves out, such as retransmissions.
Both start from what is believed without any measurement and move as far as measurements speak for it: one finished cell
on a slow link says much about the factor and little about the extra.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from bwbench.base.errors import RecordError
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.cell import Cell
from bwbench.experiment.plan.composing import (
    COMPOSED,
    CONVERGENCE_FOLDER,
    TIMING_FOLDER,
    WHOLE,
    convergence_config,
    parts_of,
)
from bwbench.experiment.plan.described_models import describe
from bwbench.experiment.plan.earlier_seed import earlier_seed
from bwbench.experiment.plan.estimate import CellEstimate, estimate_cells, num_evaluations, num_tests
from bwbench.records import cell_at, read_record
from bwbench.records.schema import Status

NEWEST = 101  # finished cells of a kind that count
NOISE = 0.03  # of a measured step, as a share
EXTRA_SD = 0.5  # of the computing: of a small model, software between takes about as long
FACTOR_SD = 0.3
LEAST_SHARE = 0.2  # of the prediction without corrections: a step never gets shorter than that
Stopping = Literal["target", "limit"]  # where a cell ends


@dataclass(frozen=True)
class Prediction:
    """Seconds of one cell.

    Attributes:
        overhead_s: start-up, and measuring the link before and after.
        training_s: training clock.
        evaluation_s: evaluations, which stand beside it.
        steps: that the training takes, whatever ends it.
        to_target: whether that is how many finished repeats took to the target; else it is up to the limit.
        may_end_sooner: whether it is, although the cell stops at its target: how far off that is nobody knows yet.
        num_cells: finished cells that this rests on; 0 before any.
    """

    overhead_s: float = 0.0
    training_s: float = 0.0
    evaluation_s: float = 0.0
    steps: int = 0
    to_target: bool = False
    may_end_sooner: bool = False
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
            self.may_end_sooner or other.may_end_sooner,
            max(self.num_cells, other.num_cells),
        )


class Calibration:
    """Takes in finished cells, and predicts others.

    Args:
        estimates: by cell id, of all cells that are taken in or predicted.

    Attributes:
        num_cells: that have been taken in.
    """

    def __init__(self, estimates: Mapping[str, CellEstimate]) -> None:
        self.num_cells = 0
        self._estimates = estimates
        self._kinds: dict[str, _CellKind] = {}
        self._computing, self._evaluating, self._starting = _Ratios(), _Ratios(), _Ratios()
        self._places: dict[str, dict[str, dict[str, _FinishedCells]]] = {}  # by work, arm and place
        self._fits: dict[tuple[str, str | None], Fit] = {}
        self._to_target: dict[str, deque[int | None]] = {}  # by what is learnt
        self._learnt: dict[str, str] = {}  # by cell id

    def note(self, cell: Cell, status: Status) -> None:
        """Take in a finished cell that ran here, by its status.json. One that failed half-way says nothing."""
        found = self._estimates.get(cell.id)
        clock_s, steps, wall_s = status.training_clock_s, status.steps, status.wall_s
        if status.status != "done" or status.composed is not None or found is None:
            return
        if not clock_s or not steps or not wall_s:
            return
        kind = self._kind_of(cell)
        self.num_cells += 1
        self._fits.clear()
        evaluation_s = status.evaluation_s or 0.0
        overhead_s = max(0.0, wall_s - clock_s * cell.config.dilation - evaluation_s)
        self._computing.add(kind.work, status.compute_median_s, found.unpadded_s)
        self._evaluating.add(kind.work, evaluation_s, _evaluations_s(cell, found, steps))
        self._starting.add(kind.work, overhead_s, found.overhead_s)
        places = self._places.setdefault(kind.work, {}).setdefault(kind.arm, {})
        places.setdefault(kind.place, _FinishedCells()).add(Steps(found, int(steps), float(clock_s)))
        if cell.config.target is not None:
            reached = status.samples_to_target
            taken = None if reached is None else round(reached / cell.config.global_batch)
            self._to_target.setdefault(self._learnt_by(cell), deque(maxlen=NEWEST)).append(taken)

    def predict(self, cell: Cell, steps: int | None = None, stop: Stopping | None = None) -> Prediction:
        """How long ``cell`` takes; nothing but zeros where there is no estimate.

        Args:
            steps: that it takes, where that is known; else as many as finished repeats took to their target, or up to
                the limit.
            stop: as if it ended at its target, or at its limit; None for what its configuration says.
        """
        found = self._estimates.get(cell.id)
        if found is None:
            return Prediction()
        to_target = sooner = False
        if steps is None:
            at_target = (stop or cell.config.stop) == "target" and cell.config.target is not None
            known = self._steps_to_target(cell) if at_target else None
            to_target = known is not None and known < found.steps
            steps = known if known is not None and to_target else found.steps
            sooner = at_target and not to_target
        kind = self._kind_of(cell) if self.num_cells else None
        training_s = self._training_s(kind, Steps(found, steps))
        limit_s = cell.config.limit.time_s
        if limit_s is not None and training_s > limit_s:
            steps, to_target, training_s = max(1, int(steps * limit_s / training_s)), False, limit_s
        overhead_s, evaluation_s = found.overhead_s, _evaluations_s(cell, found, steps)
        if kind is not None:
            overhead_s *= self._starting.of(kind.work)
            evaluation_s *= self._evaluating.of(kind.work)
        machine_s = training_s * cell.config.dilation
        return Prediction(overhead_s, machine_s, evaluation_s, steps, to_target, sooner, self.num_cells)

    def _training_s(self, kind: _CellKind | None, asked: Steps) -> float:
        """By the method's fit; where it has run on this very link, corrected by what it took there."""
        if kind is None:
            return asked.clock_s(Fit(), computing=1.0)
        fit, computing = self._fit_of(kind), self._computing.of(kind.work)
        training_s = asked.clock_s(fit, computing)
        here = self._places.get(kind.work, {}).get(kind.arm, {}).get(kind.place)
        return training_s if here is None else training_s * here.usual.measured_s / here.usual.clock_s(fit, computing)

    def _fit_of(self, kind: _CellKind) -> Fit:
        """Of the arm at this work on any link, which starts from that of all arms at this work."""
        arms, fit = self._places.get(kind.work, {}), Fit()
        for arm, asked in ((None, list(arms.values())), (kind.arm, [arms.get(kind.arm, {})])):
            if (kind.work, arm) not in self._fits:
                computing = self._computing.of(kind.work)
                usual = [place.usual for places in asked for place in places.values()]
                measured = [MeasuredSteps(*steps.parts_s(computing), steps.measured_s) for steps in usual]
                self._fits[kind.work, arm] = fitted(measured, fit)
            fit = self._fits[kind.work, arm]
        return fit

    def _steps_to_target(self, cell: Cell) -> int | None:
        """Median of finished repeats; None where there are none, or where half of them did not get there."""
        if cell.config.target is None or not self._to_target:
            return None
        known = self._to_target.get(self._learnt_by(cell), ())
        reached = sorted(taken for taken in known if taken is not None)
        return reached[len(known) // 2] if len(known) // 2 < len(reached) else None

    def _kind_of(self, cell: Cell) -> _CellKind:
        if cell.id not in self._kinds:
            config = cell.config
            model, data = config.model.to_json(), config.dataset.source.to_json()
            sizes = (config.batch_size, config.accumulate, config.nodes, config.compute.threads)
            padded = [config.compute.step_time, config.compute.overrides]
            place = f"{padded} {self._estimates[cell.id].communication_s} {config.link.describe()}"
            self._kinds[cell.id] = _CellKind(cell.arm, f"{model} {data} {sizes}", place)
        return self._kinds[cell.id]

    def _learnt_by(self, cell: Cell) -> str:
        """What the number of steps to the target depends on, but for the seed. The link hardly matters."""
        if cell.id not in self._learnt:
            config = convergence_config(cell.config)
            left_out = {"seed", "compute", "limit", "stop"}
            config = config.model_copy(update={"evaluate": config.evaluate.without_test_curve()})
            self._learnt[cell.id] = config.model_dump_json(by_alias=True, exclude=left_out)
        return self._learnt[cell.id]


def _evaluations_s(cell: Cell, found: CellEstimate, steps: int) -> float:
    """What is estimated for all evaluations of so many steps."""
    tests_s = num_tests(cell.config, steps) * found.test_s
    return num_evaluations(cell.config, steps) * found.validation_s + tests_s


@dataclass(frozen=True)
class _CellKind:
    """What cells have in common: ``work`` is what the nodes compute, ``place`` the link and the declared step time."""

    arm: str
    work: str
    place: str


@dataclass(frozen=True)
class Steps:
    """Some steps of a cell from its begin on, and what they took where that is known."""

    estimate: CellEstimate
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


class _FinishedCells:
    """Finished cells of one arm on one link, of which one stands for all."""

    def __init__(self) -> None:
        self._cells: deque[Steps] = deque(maxlen=NEWEST)
        self._usual: Steps | None = None

    def add(self, cell: Steps) -> None:
        self._cells.append(cell)
        self._usual = None

    @property
    def usual(self) -> Steps:
        """The one whose steps took neither long nor short; of two the quicker one: disturbances take time."""
        if self._usual is None:
            by_speed = sorted(self._cells, key=lambda one: one.measured_s / one.steps)
            self._usual = by_speed[(len(by_speed) - 1) // 2]
        return self._usual


class _Ratios:
    """Measured over predicted, by what a node computes; of all where that has not been measured."""

    def __init__(self) -> None:
        self._by_work: dict[str, deque[float]] = {}
        self._all: deque[float] = deque(maxlen=NEWEST)
        self._medians: dict[str, float] = {}

    def add(self, work: str, measured_s: float | None, predicted_s: float) -> None:
        if not measured_s or not predicted_s:  # what took no time says nothing
            return
        self._by_work.setdefault(work, deque(maxlen=NEWEST)).append(measured_s / predicted_s)
        self._all.append(measured_s / predicted_s)
        self._medians.clear()

    def of(self, work: str) -> float:
        if work not in self._medians:
            self._medians[work] = median(self._by_work.get(work) or self._all or (1.0,))
        return self._medians[work]


@dataclass(frozen=True)
class Fit:
    """What is believed of a method's steps.

    Attributes:
        extra: seconds of a step in units of its computing.
        factor: times the sending as predicted.
    """

    extra: float = 0.0
    factor: float = 1.0

    def step_s(self, base_s: float, sending_s: float) -> float:
        """A step, or many together, for which ``base_s`` of computing and ``sending_s`` of sending are predicted."""
        return max(LEAST_SHARE * (base_s + sending_s), (1 + self.extra) * base_s + self.factor * sending_s)


@dataclass(frozen=True)
class MeasuredSteps:
    """Seconds of a step, or of many together: computing and sending as predicted, and what they really took."""

    base_s: float
    sending_s: float
    step_s: float


def fitted(measured: Sequence[MeasuredSteps], before: Fit) -> Fit:
    """The belief after ``measured``: least squares on the relative error, held back by the belief before.

    That is the mean of the posterior of a Bayesian linear regression with Gaussian noise and prior.
    """
    xx, xy, yy = EXTRA_SD**-2, 0.0, FACTOR_SD**-2
    right_x = right_y = 0.0
    for one in measured:
        x, y = one.base_s / one.step_s / NOISE, one.sending_s / one.step_s / NOISE
        missing = 1 / NOISE - (1 + before.extra) * x - before.factor * y
        xx, xy, yy = xx + x * x, xy + x * y, yy + y * y
        right_x, right_y = right_x + x * missing, right_y + y * missing
    determinant = xx * yy - xy * xy
    extra = (right_x * yy - right_y * xy) / determinant
    factor = (right_y * xx - right_x * xy) / determinant
    return Fit(before.extra + extra, before.factor + factor)


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
        self._made: set[str] = set()  # parts that have ended
        self.calibration = Calibration(estimates)

    @property
    def num_cells(self) -> int:
        """Finished cells that predictions rest on."""
        return self.calibration.num_cells

    def predict(self, item: PlannedCell, stop: Stopping | None = None) -> Prediction:
        """From the start of a cell to its end, with the runs that it brings about; ``stop`` as in ``Calibration``."""
        own = Prediction() if item.way == COMPOSED else self.calibration.predict(item.cell, stop=stop)
        for part, _ in self._parts.get(_key(item), ()):
            if part.id not in self._made:
                own += self.calibration.predict(part, stop=stop)
        return own

    def note(self, item: PlannedCell, status: Status) -> None:
        """Take in a cell that has finished, and the runs that it brought about; or one of those by itself."""
        self.calibration.note(item.cell, status)
        if item.part:
            self._made.add(item.cell.id)
        for part, store in self._parts.get(_key(item), ()):
            if part.id in self._made:
                continue
            for file in store.glob(f"*-{part.id}/status.json"):
                if (recorded := _status_in(file)) is not None:
                    self.calibration.note(part, recorded)


def foresee(planned: Sequence[PlannedCell]) -> Forecast:
    """Of the cells of a plan, in the order in which they run, with all that is recorded of them.

    A composed cell takes as long as those of its convergence and its timing runs that are neither done nor needed by a
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
        parts, experiment = parts_of(item.cell, described.parameter_shapes, item.timing_runs), item.folder.parent
        timings = parts.timings if not item.runs or earlier_seed(item, parts) is None else ()
        for cell, store in (
            (parts.convergence, experiment.parent / CONVERGENCE_FOLDER),
            *((timing, experiment / TIMING_FOLDER) for timing in timings),
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
