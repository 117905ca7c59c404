"""How many repeats and timing runs each arm needs until its ratios are known as well as asked (``repeats: until``).

Two stages, after Stein (1945). The first repeats of an arm are its pilot, and the first timing runs of a composed cell.
When they have ended, what seeds and what timing runs differ by says how many of each bring the interval of a ratio down
to the asked width, and these are run. The pilot alone decides: what comes later is not looked at, so that no sweep
stops because a result looks good, and one that was interrupted decides the same again. benchmarks/repeats.py simulates
how often the intervals then cover.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bwbench.base.errors import RecordError
from bwbench.base.units import rounded
from bwbench.experiment.config.experiment import UntilKnown
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.experiment.plan.cell import Cell, Plan
from bwbench.records import cell_at
from bwbench.records.cell_identity import identity
from bwbench.results.analysis.cells import Row, cell_row
from bwbench.results.analysis.statistics import number
from bwbench.results.analysis.welch import SEEDS, TIMING_RUNS, ErrorPart, MeanError

MOST_NAMED = 8
SAMPLES, TIME = "samples_to_target", "time_to_target_s"
MOST_FORETOLD = 10_000  # repeats and timing runs: beyond it nobody asks how many more it would take
ARMS_OF_A_RATIO = 2  # each may take up half of the variance that the asked interval leaves


@dataclass(frozen=True)
class Known:
    """How well an arm is known, by what its pilot differed by and by how many runs there are or will be.

    Attributes:
        spread: standard deviation of the log times of the pilot's ``pilot`` repeats; of composed ones of their samples.
        between: variance of the log time from one timing run to the next, by ``timing_pilot`` of them, two at least;
            None where each repeat runs whole, and so is timed by itself.
        repeats, timing_runs: in all.
    """

    spread: float
    pilot: int
    repeats: int
    between: float | None = None
    timing_pilot: int = 1
    timing_runs: int = 1

    @property
    def error(self) -> MeanError:
        """Of the arm's mean log time."""
        seeds = ErrorPart(SEEDS, self.spread**2 / self.repeats, self.pilot - 1.0)
        if self.between is None:
            return MeanError((seeds,))
        runs = ErrorPart(TIMING_RUNS, self.between / self.timing_runs, self.timing_pilot - 1.0, two_stages=True)
        return MeanError((seeds, runs))

    @property
    def half_width(self) -> float:
        """Of the interval of a ratio with another arm that is as uncertain, on the logarithmic scale."""
        return math.sqrt(ARMS_OF_A_RATIO) * self.error.half_width()

    def until(self, half_width: float, most: int) -> Known:
        """With as many repeats and timing runs as bring ``half_width`` down to this, at most ``most`` of each.

        One is added to whichever cause has the larger part in the variance. Where there may be no more of that, the
        other is added only if that is enough: it would cost much and help little.
        """
        asked = half_width * (1 + 1e-9)
        known = self
        while known.half_width > asked:
            by_seeds = known.error.dominant == SEEDS
            if (known.repeats if by_seeds else known.timing_runs) < most:
                known = known._one_more(repeat=by_seeds)
            elif known._at_most(most).half_width <= asked:
                known = known._one_more(repeat=not by_seeds)
            else:
                break
        return known

    def _one_more(self, *, repeat: bool) -> Known:
        if repeat:
            return replace(self, repeats=self.repeats + 1)
        return replace(self, timing_runs=self.timing_runs + 1)

    def _at_most(self, most: int) -> Known:
        timing_runs = self.timing_runs if self.between is None else max(most, self.timing_runs)
        return replace(self, repeats=max(most, self.repeats), timing_runs=timing_runs)


@dataclass(frozen=True)
class Need:
    """What one arm needs under one condition.

    Attributes:
        point: id of its first cell; slug: of that cell, without its seed.
        known: with all that is to be run, the pilot included; None where nothing can be said.
        wanted: with as many as the asked interval takes, whether or not ``at_most`` allows them; None as ``known``.
        why: why nothing can be said; empty where something can.
    """

    point: str
    slug: str
    known: Known | None
    wanted: Known | None
    why: str = ""

    @property
    def capped(self) -> bool:
        """Whether the interval will be wider than asked, for want of repeats or of timing runs."""
        return self.wanted != self.known

    @property
    def is_pilot_enough(self) -> bool:
        """Whether nothing is to be added, and nothing is lacking."""
        known = self.known
        return known is not None and not self.capped and self.added == (0, 0)

    @property
    def added(self) -> tuple[int, int]:
        """Repeats and timing runs beyond the pilot."""
        known = self.known
        return (known.repeats - known.pilot, known.timing_runs - known.timing_pilot) if known is not None else (0, 0)


def needs(asked: UntilKnown, planned: Iterable[PlannedCell]) -> list[Need]:
    """What each point of an experiment needs, in the order of its first cells.

    Args:
        planned: cells of the experiment, at least those of all pilots, with what is recorded of them.
    """
    points: dict[str, list[PlannedCell]] = {}
    for item in planned:
        if item.cell.repeat < asked.at_least:
            points.setdefault(point_of(item.cell), []).append(item)
    return [_need(asked, point, sorted(items, key=lambda item: item.cell.repeat)) for point, items in points.items()]


def point_of(cell: Cell) -> str:
    """Id of the first repeat of the same point."""
    config = cell.config
    first = config if cell.repeat == 0 else config.model_copy(update={"seed": config.seed - cell.repeat})
    return identity(first)


def more_repeats(found: Sequence[Need]) -> Mapping[str, int]:
    """For ``build_plan``: the repeats of each point, by the id of its first cell."""
    return {need.point: need.known.repeats for need in found if need.known is not None}


def more_timing_runs(found: Sequence[Need], plan: Plan) -> Mapping[str, int]:
    """For ``assess``: the timing runs of each cell of the plan, by its id."""
    by_point = {need.point: need.known.timing_runs for need in found if need.known is not None}
    return {cell.id: runs for cell in plan.cells if (runs := by_point.get(point_of(cell))) is not None}


def in_words(found: Sequence[Need], asked: UntilKnown) -> str:
    """For people: what was asked, which arms need more than their pilot, and which will not get that many."""
    enough = sum(need.is_pilot_enough for need in found)
    more = [need for need in found if need.known is not None and not need.is_pilot_enough]
    parts = [f"{enough} of {len(found)} arms are known with the {asked.at_least} of their pilot"] if enough else []
    parts += [_more(need) for need in more[:MOST_NAMED]]
    if len(more) > MOST_NAMED:
        parts.append(f"{len(more) - MOST_NAMED} others take more too")
    unknown = Counter(need.why for need in found if need.known is None)
    parts += [f"{count} cannot be said yet ({why})" for why, count in unknown.items()]
    return f"repeats until ratios are known to ± {rounded(100 * asked.until, 3)} %: {'; '.join(parts)}"


def _more(need: Need) -> str:
    known, wanted = need.known, need.wanted
    assert known is not None and wanted is not None, "what is not known takes no more"
    takes = _counted(known.repeats, known.timing_runs if known.timing_runs > known.timing_pilot else 0)
    if not need.capped:
        return f"{need.slug} takes {takes}"
    timing_runs = wanted.timing_runs if wanted.timing_runs > known.timing_runs else 0
    repeats = wanted.repeats if wanted.repeats > known.repeats else 0
    width = rounded(100 * math.expm1(known.half_width), 3)
    return f"{need.slug} takes {takes} of the {_counted(repeats, timing_runs)} that it needs: ± {width} %"


def _counted(repeats: int, timing_runs: int) -> str:
    """``12``, ``12 and 5 timing runs``, ``5 timing runs``; 0 is left out."""
    return " and ".join([str(repeats)] * (repeats > 0) + [f"{timing_runs} timing runs"] * (timing_runs > 0))


def _need(asked: UntilKnown, point: str, pilot: Sequence[PlannedCell]) -> Need:
    slug = pilot[0].cell.slug.rpartition("-s")[0]
    waiting = sum(item.status != "done" and item.status not in ENDED_UNDONE for item in pilot)
    if waiting:
        return Need(point, slug, None, None, f"{waiting} of {len(pilot)} repeats are to be run first")
    rows = [row for item in pilot if (row := _row(item)) is not None]
    # Repeats that are composed share the time of a step, and one that ran whole beside them says no more of it.
    composed = [row for row in rows if row["composed"]]
    logs = [math.log(length) for row in rows if (length := number(row[SAMPLES if composed else TIME]))]
    if len(logs) < len(pilot):
        missing = len(pilot) - len(logs)
        return Need(point, slug, None, None, f"{missing} of {len(pilot)} repeats have no time to a target")
    spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
    known = Known(spread, asked.at_least, asked.at_least, *_timing(composed))
    half_width = math.log1p(asked.until)
    return Need(point, slug, known.until(half_width, asked.at_most), known.until(half_width, MOST_FORETOLD))


def _row(item: PlannedCell) -> Row | None:
    """What is recorded of a repeat that is done."""
    if item.status != "done":
        return None
    try:
        return cell_row(cell_at(item.folder))
    except RecordError:
        return None


def _timing(composed: Sequence[Row]) -> tuple[float | None, int, int]:
    """``between``, ``timing_pilot`` and as many ``timing_runs``, by the repeat that they say most of."""
    known = [(between, row) for row in composed if (between := number(row["between_share"])) is not None]
    if not known:
        return None, 1, 1
    between, row = max(known, key=lambda pair: pair[0])
    runs = int(number(row["timing_pilot"]) or number(row["timing_runs"]) or 1)
    return between, runs, runs
