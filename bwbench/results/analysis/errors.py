"""How far links were from what was asked, and composed times from those of cells that ran whole as well."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bwbench.records import CellFolder
from bwbench.records.schema import LinkRecord, Measurement

BEFORE, AFTER = "before", "after"
_HIGH = 0.95


@dataclass(frozen=True)
class PairError:
    """One pair of nodes in one measurement: achieved over asked, less 1; None where one of the two is not known.

    Attributes:
        rtt_off_s: seconds that a round trip took longer than asked.
    """

    src: int
    dst: int
    goodput: float | None
    rtt: float | None
    rtt_off_s: float | None


@dataclass(frozen=True)
class Spread:
    """Sizes of errors, as shares without sign; None without any."""

    num: int
    median: float | None
    p95: float | None
    worst: float | None

    @classmethod
    def of(cls, errors: Iterable[float | None]) -> Spread:
        """Of signed shares; those that are not known do not count."""
        off = sorted(abs(error) for error in errors if error is not None)
        if not off:
            return cls(0, None, None, None)
        return cls(len(off), statistics.median(off), off[math.ceil(_HIGH * len(off)) - 1], off[-1])


def measured_links(folders: Iterable[CellFolder]) -> Iterator[tuple[CellFolder, LinkRecord]]:
    """Every link that was there, with its first cell: cells that are composed of one timing run share its link."""
    seen: set[str] = set()
    for folder in folders:
        composed = folder.status.composed if folder.status is not None else None
        run = composed.timing if composed is not None else folder.cell.id
        if run not in seen and folder.link is not None:
            seen.add(run)
            yield folder, folder.link


def measurements_of(link: LinkRecord) -> list[tuple[str, Measurement]]:
    """Those that there are, BEFORE and AFTER the training."""
    both = ((BEFORE, link.achieved_before), (AFTER, link.achieved_after))
    return [(when, measured) for when, measured in both if measured is not None]


def pair_errors(measured: Measurement) -> Iterator[PairError]:
    """The errors of every pair of nodes."""
    for pair in measured.pairs:
        asked_s, achieved_s = pair.asked_rtt_s, pair.achieved_rtt_s
        off_s = None if asked_s is None or achieved_s is None else achieved_s - asked_s
        goodput = _error(pair.achieved_goodput_bps, pair.asked_goodput_bps)
        yield PairError(pair.src, pair.dst, goodput, _error(achieved_s, asked_s), off_s)


def link_errors(folders: Iterable[CellFolder]) -> list[PairError]:
    """Of all links of these cells, each once."""
    links = [link for _, link in measured_links(folders)]
    return [error for link in links for _, measured in measurements_of(link) for error in pair_errors(measured)]


def _error(achieved: float | None, asked: float | None) -> float | None:
    return None if achieved is None or not asked else achieved / asked - 1


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
