"""What records say beside times to accuracy: how well links did as asked, and on which machines cells ran."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from bwbench.records import CellFolder
from bwbench.records.schema import Environment, LinkRecord, Measurement
from bwbench.results.analysis.provenance import commit_of, host_of

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


@dataclass(frozen=True)
class Machines:
    """Each distinct value once, sorted; empty where nothing was recorded."""

    hosts: tuple[str, ...]
    processors: tuple[str, ...]
    cores: tuple[int, ...]
    kernels: tuple[str, ...]
    torch: tuple[str, ...]
    commits: tuple[str, ...]
    backends: tuple[str, ...]
    congestion_control: tuple[str, ...]


def machines_of(folders: Iterable[CellFolder]) -> Machines:
    """What environment.json and link.json say; of composed cells, those of the timing run."""
    found: dict[str, set[str]] = {name: set() for name in Machines.__dataclass_fields__ if name != "cores"}
    cores: set[int] = set()
    for folder in folders:
        environment, link = folder.environment or Environment(), folder.link or LinkRecord()
        tcp = link.applied.tcp if link.applied is not None else {}
        found["hosts"].add(host_of(environment))
        found["commits"].add(commit_of(environment))
        found["processors"].add(environment.cpu or "")
        found["kernels"].add(environment.kernel or "")
        found["torch"].add(environment.packages.get("torch", ""))
        found["backends"].add(link.backend or "")
        found["congestion_control"].add(tcp.get("tcp_congestion_control", ""))
        if environment.cores:
            cores.add(environment.cores)
    words = {name: tuple(sorted(values - {""})) for name, values in found.items()}
    return Machines(cores=tuple(sorted(cores)), **words)
