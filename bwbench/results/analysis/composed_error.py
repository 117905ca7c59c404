"""How far composed times are off: the cells of a composed sweep that ran whole as well."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bwbench.records import CellFolder


@dataclass(frozen=True)
class ComposedError:
    """One cell, both ways. Seconds to the target, or to the end where neither way reached it.

    Attributes:
        inside: whether the whole run's time lies in the interval of the composed one; None where that has none.
    """

    id: str
    slug: str
    arm: str
    composed_s: float
    whole_s: float
    inside: bool | None

    @property
    def error(self) -> float:
        """Share by which the composed time is too long; negative where it is too short."""
        return self.composed_s / self.whole_s - 1


def composed_errors(folders: Iterable[CellFolder]) -> list[ComposedError]:
    """Of every cell that ran whole and was composed as well."""
    found = (composed_error(folder) for folder in folders)
    return [error for error in found if error is not None]


def composed_error(folder: CellFolder) -> ComposedError | None:
    """Of one cell; None where it was not made both ways, where one way reached the target and the other did not, and
    where ``limit.time`` ended it: both ways end there, however far one of them has got."""
    status = folder.status
    if status is None or status.status != "done" or status.composed is not None:
        return None
    composed = folder.composed_beside
    if composed is None:
        return None
    for one, other, ended in (
        (composed.time_to_target_s, status.time_to_target_s, False),
        (composed.censored_at_s, status.censored_at_s, True),
        (composed.training_clock_s, status.training_clock_s, True),
    ):
        if one is None and other is None:
            continue
        if one is None or not other:
            return None
        if ended and "time" in (composed.reason, status.reason):
            return None
        cell, ends = folder.cell, composed.interval_s
        inside = ends[0] <= other <= ends[1] if ends else None
        return ComposedError(cell.id, cell.slug, cell.arm, one, other, inside)
    return None


def composed_note(num_composed: int, num_cells: int, errors: Sequence[float]) -> str | None:
    """What must be said of composed cells wherever they are shown; None where there are none.

    Args:
        num_cells: all that are done.
        errors: ``ComposedError.error`` of those that were made both ways.
    """
    if not num_composed and not errors:
        return None
    text = f"Composed of a run without the link and some steps timed on it: {num_composed} of {num_cells} cells"
    if not errors:
        return f"{text}; none ran whole as well, so their error is not known."
    off = [abs(error) for error in errors]
    middle, most = 100 * statistics.median(off), 100 * max(off)
    measured = f"composed times are off by {middle:.1f} % (median), {most:.1f} % at most"
    return f"{text}; {len(errors)} ran whole as well: {measured}."
