"""How far links were from what was asked: every pair of nodes in every measurement, before and after a training."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
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
