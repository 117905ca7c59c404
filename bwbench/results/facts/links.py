"""Links asked against achieved, over all probes of some cells."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from bwbench.records import CellFolder
from bwbench.records.schema import Measurement

_PROBES = ("achieved_before", "achieved_after")


@dataclass(frozen=True)
class LinkErrors:
    """Every pair of nodes of every probe, once.

    Attributes:
        rate: achieved goodput over the asked one, less 1.
        rtt_s: achieved round trip less the asked one.
        num_probes: probes before or after a training; composed cells share theirs.
    """

    rate: tuple[float, ...]
    rtt_s: tuple[float, ...]
    num_probes: int

    @property
    def rate_median(self) -> float:
        """Median of the absolute errors of rate, as a share."""
        return statistics.median(map(abs, self.rate))

    @property
    def rate_most(self) -> float:
        """The largest error of rate, as a share, without its sign."""
        return max(map(abs, self.rate))

    def rate_share(self, share: float) -> float:
        """The absolute error of rate that so large a share of the pairs does not exceed."""
        ordered = sorted(map(abs, self.rate))
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def link_errors(folders: Iterable[CellFolder]) -> LinkErrors:
    """Of all cells with a shaped link that was probed. Cells composed of one timing run have one probe."""
    probes: dict[tuple[str, str], Measurement] = {}
    for folder in folders:
        run, link = folder.composed.timing if folder.composed is not None else folder.cell.id, folder.link
        for name in _PROBES if link is not None else ():
            if (measured := getattr(link, name)) is not None:
                probes.setdefault((run, name), measured)
    rates, rtts = [], []
    for pair in (pair for probe in probes.values() for pair in probe.pairs):
        if pair.asked_goodput_bps and pair.achieved_goodput_bps is not None:
            rates.append(pair.achieved_goodput_bps / pair.asked_goodput_bps - 1)
        if pair.asked_rtt_s is not None and pair.achieved_rtt_s is not None:
            rtts.append(pair.achieved_rtt_s - pair.asked_rtt_s)
    return LinkErrors(tuple(rates), tuple(rtts), len(probes))
