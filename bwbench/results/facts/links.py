"""Links asked against achieved, over all probes of some cells."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bwbench.records import CellFolder

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
    probes: dict[tuple[str, str], Mapping[str, Any]] = {}
    for folder in folders:
        link = folder.link or {}
        run = str((folder.composed or {}).get("timing") or folder.cell["id"])
        for name in _PROBES:
            if isinstance(link.get(name), Mapping):
                probes.setdefault((run, name), link[name])
    rates, rtts = [], []
    for probe in probes.values():
        for pair in probe.get("pairs") or []:
            if pair.get("asked_goodput_bps") and pair.get("achieved_goodput_bps") is not None:
                rates.append(float(pair["achieved_goodput_bps"]) / float(pair["asked_goodput_bps"]) - 1)
            if pair.get("asked_rtt_s") is not None and pair.get("achieved_rtt_s") is not None:
                rtts.append(float(pair["achieved_rtt_s"]) - float(pair["asked_rtt_s"]))
    return LinkErrors(tuple(rates), tuple(rtts), len(probes))
