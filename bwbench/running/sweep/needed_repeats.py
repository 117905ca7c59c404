"""How many repeats each arm of an experiment needs until its ratios are known as well as asked (``repeats: until``).

Two stages, after Stein (1945). The first repeats of an arm are its pilot. When they have ended, the spread of their
log times says how many repeats bring the interval of a ratio down to the asked width, and these are run. The pilot
alone decides: what comes later is not looked at, so that no sweep stops because a result looks good, and one that was
interrupted decides the same again. benchmarks/repeats.py simulates how often the intervals then cover.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bwbench.base.errors import RecordError
from bwbench.base.units import rounded
from bwbench.experiment.config.experiment import UntilKnown
from bwbench.experiment.plan.assess import ENDED_UNDONE, PlannedCell
from bwbench.records import cell_at
from bwbench.records.cell_identity import identity
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.statistics import number
from bwbench.results.analysis.student import student_t

MOST_NAMED = 8
ARMS_OF_A_RATIO = 2  # each may take up half of the variance that the asked interval leaves


@dataclass(frozen=True)
class Need:
    """What one arm needs under one condition.

    Attributes:
        point: id of its first cell; slug: of that cell, without its seed.
        spread: standard deviation of the log times of the pilot; None where it is not known.
        repeats: to be run in all, the pilot included.
        wanted: as many as the asked interval takes, whether or not ``at_most`` allows them; None as ``spread``.
        why: why nothing can be said; empty where ``spread`` is known.
    """

    point: str
    slug: str
    spread: float | None
    repeats: int
    wanted: int | None
    why: str = ""

    @property
    def capped(self) -> bool:
        """Whether the interval will be wider than asked, for want of repeats."""
        return self.wanted is not None and self.wanted > self.repeats

    def half_width(self, pilot: int) -> float | None:
        """Half-width, as a share, of the interval of a ratio with another arm that is as uncertain."""
        if self.spread is None:
            return None
        variance = ARMS_OF_A_RATIO * self.spread**2 / self.repeats
        return math.expm1(student_t(pilot - 1) * math.sqrt(variance))


def repeats_for(spread: float, asked: UntilKnown) -> int:
    """Repeats that bring an arm's share of the interval down to what is asked, with the quantile of its pilot."""
    error = student_t(asked.at_least - 1) * spread / math.log1p(asked.until)
    return max(asked.at_least, math.ceil(ARMS_OF_A_RATIO * error**2 - 1e-9))


def needs(asked: UntilKnown, planned: Iterable[PlannedCell]) -> list[Need]:
    """What each point of an experiment needs, in the order of its first cells.

    Args:
        planned: cells of the experiment, at least those of all pilots, with what is recorded of them.
    """
    points: dict[str, list[PlannedCell]] = {}
    for item in planned:
        if item.cell.repeat < asked.at_least:
            points.setdefault(_point_of(item), []).append(item)
    return [_need(asked, point, sorted(items, key=lambda item: item.cell.repeat)) for point, items in points.items()]


def more_repeats(found: Sequence[Need]) -> Mapping[str, int]:
    """For ``build_plan``: the repeats of each point, by the id of its first cell."""
    return {need.point: need.repeats for need in found}


def in_words(found: Sequence[Need], asked: UntilKnown) -> str:
    """For people: what was asked, which arms need more than their pilot, and which will not get that many."""
    known = sum(need.spread is not None and need.repeats == asked.at_least and not need.capped for need in found)
    more = [need for need in found if need.repeats > asked.at_least or need.capped]
    parts = [f"{known} of {len(found)} arms are known with the {asked.at_least} of their pilot"] if known else []
    for need in more[:MOST_NAMED]:
        width = need.half_width(asked.at_least) or 0.0
        wide = f" of the {need.wanted} that it needs: ± {rounded(100 * width, 3)} %" if need.capped else ""
        parts.append(f"{need.slug} takes {need.repeats}{wide}")
    if len(more) > MOST_NAMED:
        parts.append(f"{len(more) - MOST_NAMED} others take more too")
    unknown = Counter(need.why for need in found if need.spread is None)
    parts += [f"{number} cannot be said yet ({why})" for why, number in unknown.items()]
    return f"repeats until ratios are known to ± {rounded(100 * asked.until, 3)} %: {'; '.join(parts)}"


def _point_of(item: PlannedCell) -> str:
    config = item.cell.config
    first = config if item.cell.repeat == 0 else config.model_copy(update={"seed": config.seed - item.cell.repeat})
    return identity(first)


def _need(asked: UntilKnown, point: str, pilot: Sequence[PlannedCell]) -> Need:
    slug = pilot[0].cell.slug.rpartition("-s")[0]
    waiting = sum(item.status != "done" and item.status not in ENDED_UNDONE for item in pilot)
    if waiting:
        return Need(point, slug, None, asked.at_least, None, f"{waiting} of {len(pilot)} repeats are to be run first")
    logs = [log for item in pilot if (log := _log_time(item)) is not None]
    if len(logs) < len(pilot):
        missing = len(pilot) - len(logs)
        return Need(
            point, slug, None, asked.at_least, None, f"{missing} of {len(pilot)} repeats have no time to a target"
        )
    spread = statistics.stdev(logs) if len(logs) > 1 else 0.0
    wanted = repeats_for(spread, asked)
    return Need(point, slug, spread, min(wanted, asked.at_most), wanted)


def _log_time(item: PlannedCell) -> float | None:
    """Logarithm of what a repeat took: of a composed one samples, since all repeats share the time of a step."""
    if item.status != "done":
        return None
    try:
        row = cell_row(cell_at(item.folder))
    except RecordError:
        return None
    found = number(row["samples_to_target"] if row["composed"] else row["time_to_target_s"])
    return math.log(found) if found else None
