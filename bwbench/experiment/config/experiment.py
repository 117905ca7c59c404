"""A validated experiment: the points of its matrix, whether they run whole or composed (``mode:``), which do both
(``whole:``), how often each is trained (``repeats:``), and how often each link is timed (``timing:``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.plain_data import Json
from bwbench.base.registry import ALGORITHMS
from bwbench.base.step_time import SteadyStepTime, StepTimeTrace
from bwbench.base.units import PositiveDuration, PositiveShare, Share
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.matrix import Key
from bwbench.experiment.config.tune_block import TuneBlock

Mode = Literal["full", "composed"]
MODES: tuple[str, ...] = get_args(Mode)
_ANY_SHAPES = ((32, 32), (32,))  # kinds of steps hardly depend on the model, and never whether there are any


class WholeConfig(BaseModel):
    """Which cells of a composed sweep run whole as well, to show how far composed times are off.

    Attributes:
        share: of the cells that are composed, spread over links and arms.
        at_least: so many cells, whatever their share.
        time_s: no more cells than this time allows, as predicted up to the training limit, beyond ``at_least``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    share: Share = 0.1
    at_least: int = Field(4, ge=0, le=100_000)
    time_s: PositiveDuration | None = Field(None, alias="time")


MAX_REPEATS = 1000
LEAST_PILOT = 3  # two repeats, or two timing runs, say next to nothing of a spread


class UntilKnown(BaseModel):
    """Repeats until ratios are known well enough: a pilot of each arm says how many it needs, and these are run.

    Timing runs of composed cells are added in the same way, where they leave more open than the repeats. How many is
    settled by the spread of the pilot alone (Stein 1945): never by a result that looks good, and never looked at again.
    The interval's variance is the pilot's too, which is what lets it cover as often as it says.

    Attributes:
        until: half-width of the 95 % interval of a ratio of any two arms, as a share: 0.15 for ± 15 %.
        at_least: repeats of the pilot. In simulations (benchmarks/repeats.py) 8 hold 95 % for any spread, 3 do not.
            Timing runs have a pilot as well, ``timing.runs``.
        at_most: repeats of an arm, and timing runs of its cells, where it would need more; then its wider interval
            stands.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    until: PositiveShare
    at_least: int = Field(8, ge=LEAST_PILOT, le=MAX_REPEATS)
    at_most: int = Field(24, ge=LEAST_PILOT, le=MAX_REPEATS)

    @model_validator(mode="after")
    def _in_order(self) -> UntilKnown:
        if self.at_most < self.at_least:
            raise PydanticCustomError("order", f"at_most is {self.at_most}, which is below at_least, {self.at_least}")
        return self


class TimingConfig(BaseModel):
    """How often the steps of a composed cell are timed on its link.

    Attributes:
        runs: timing runs, each in a round of the sweep of its own. Fewer than two say nothing of the variance between
            runs, which is most of what composed times are off by.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    runs: int = Field(3, ge=1, le=100)


@dataclass(frozen=True)
class Point:
    """One point of the matrix.

    Attributes:
        config: complete; its seed is that of the first repeat.
        values: what the matrix gave to which key, as written, in the order of the axes.
        names_table: its rate comes from a table.
    """

    config: CellConfig
    values: tuple[tuple[Key, Json], ...]
    names_table: bool = False


@dataclass(frozen=True)
class Experiment:
    """Everything that an experiment file says, checked.

    Attributes:
        name: of the folder below results/.
        file: where it was read from; None where a program has given it.
        points: in the order of the file, the last axis of the matrix fastest, without the excluded ones.
        repeats: trainings of each point; repeat r has the point's seed + r. Where ``until`` is set, those of the pilot.
        seed: of the first repeat.
        plugins: absolute paths, imported.
        varying: keys that have more than one value in the matrix.
        warnings: settings without effect, and what may not have been meant.
        notes: what was decided for the user, and why.
        tables: files that learning rates come from, absolute.
        mode: ``composed`` puts times to accuracy together from parts, where ``full`` runs every cell whole.
        whole: which cells run whole in a composed sweep.
        until: how well ratios shall be known; None where ``repeats`` is all there will be.
        timing: how often the steps of composed cells are timed.
        tune: what ``bwbench tune`` searches beside the rates of the optimizer's own grid.
    """

    name: str
    file: Path | None
    points: tuple[Point, ...]
    repeats: int
    seed: int
    plugins: tuple[Path, ...]
    varying: tuple[Key, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    tables: tuple[Path, ...] = ()
    mode: Mode = "full"
    whole: WholeConfig = WholeConfig()
    until: UntilKnown | None = None
    timing: TimingConfig = TimingConfig()
    tune: TuneBlock = TuneBlock()

    @property
    def points_to_tune(self) -> tuple[Point, ...]:
        """Those whose rate comes from a table; all where that of none does."""
        return tuple(point for point in self.points if point.names_table) or self.points

    @property
    def most_repeats(self) -> int:
        """Trainings of a point that there may be at most."""
        return self.repeats if self.until is None else self.until.at_most


def why_not_composed(config: CellConfig) -> str | None:
    """Why the time to accuracy of a cell cannot be put together from parts; None where it can. Imports no torch."""
    algorithm: Any = config.algorithm.build(ALGORITHMS)
    if config.shapes is not None:
        return f"model {config.model.name!r} learns nothing, so that there is no time to accuracy"
    if (reason := algorithm.depends_on_link()) is not None:
        return f"algorithm {config.algorithm.name!r}: {reason}"
    if not algorithm.phases(_ANY_SHAPES):
        return f"algorithm {config.algorithm.name!r} does not declare which kinds of steps it has (phases)"
    if config.launcher != "local":
        return f"launcher {config.launcher!r}: one program has to start the runs that a cell is composed from"
    if config.link.varies:
        return "the link changes over time (trace, outages, others), so that a few dozen steps do not stand for all"
    times = config.compute.step_times(config.nodes)
    if any(isinstance(one, StepTimeTrace) for one in times):
        return "compute.step_time changes over time (trace), so that a few dozen steps do not stand for all"
    uneven = len(set(times)) > 1 or any(isinstance(one, SteadyStepTime) and one.is_drawn for one in times)
    if uneven and longest_period(algorithm) != longest_period(type(algorithm)(algorithm.for_timing())):
        return (
            f"algorithm {config.algorithm.name!r}: how long a round waits for nodes whose steps differ depends on the "
            "steps between two rounds, of which timing runs take fewer"
        )
    return None


def longest_period(algorithm: Any) -> int:
    """So many steps, at most, a method takes until it exchanges something again; 1 where it does not say so."""
    return max((int(phase.period) for phase in algorithm.phases(_ANY_SHAPES)), default=1)
