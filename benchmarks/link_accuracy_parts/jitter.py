"""Standard deviation of the one-way delay, and whether anything is overtaken."""

from __future__ import annotations

import itertools
import statistics
from functools import partial

from bwbench.network.link.chance import SCALE, Distribution, quantiles
from bwbench.network.network import open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.numbered import Arrivals, exchange
from link_accuracy_parts.rows import Row, row

DISTRIBUTIONS: tuple[Distribution, ...] = ("normal", "uniform", "pareto")
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))  # side by side, since datagrams far enough apart take their time
DATAGRAMS = 20_000  # of all pairs together
LATENCY, JITTER, JITTER_S = "15 ms", "2 ms", 0.002
# Datagrams that keep their order wait for each other where a delay differs by more than the spacing, which narrows the
# distribution: four standard deviations apart that happens to some 0.2 % of them. Dense ones always wait.
SPARSE_S, DENSE_S = 0.008, 0.0004
TOLERANCE = 0.10


def cases(options: Options) -> list[Case]:
    """A case a distribution, and one in which overtaking is asked for."""
    total = DATAGRAMS // 40 if options.quick else DATAGRAMS
    each = total // len(PAIRS)
    distributions = DISTRIBUTIONS[:1] if options.quick else DISTRIBUTIONS
    seconds = 8 + each * (SPARSE_S + DENSE_S)
    found = [Case(f"jitter {name}", seconds, partial(_measure, options, name, each)) for name in distributions]
    if not options.quick:
        found.append(Case("jitter reorder", 5 + each * DENSE_S, partial(_overtaking, options, each)))
    return found


def _measure(options: Options, distribution: Distribution, each: int) -> list[Row]:
    link = options.link(
        bandwidth="100 Mbit/s",
        latency=LATENCY,
        jitter=JITTER,
        jitter_kind="independent",
        jitter_distribution=distribution,
    )
    with open_network(link, 2 * len(PAIRS)) as network:
        sparse = exchange(network, PAIRS, each, SPARSE_S)
        dense = exchange(network, PAIRS, each, DENSE_S)
    delays_s = list(itertools.chain.from_iterable(flow.delays_s for flow in sparse))
    deviation_s = statistics.stdev(delays_s)
    mean_s = statistics.fmean(delays_s)
    more = {"datagrams": len(delays_s), "mean_s": mean_s, "histogram": _histogram(delays_s, link.latency_s)}
    more["deviation_by_quartiles_s"] = _by_quartiles(delays_s, distribution)
    setting = f"{distribution}, deviation"
    rows = [row("jitter", setting, link.backend, "s", JITTER_S, deviation_s, TOLERANCE, **more)]
    for spacing_s, flows in ((SPARSE_S, sparse), (DENSE_S, dense)):
        setting = f"{distribution}, overtaken at {spacing_s * 1e3:g} ms"
        rows.append(_count(setting, link.backend, flows, wanted=False))
    return rows


def _overtaking(options: Options, each: int) -> list[Row]:
    link = options.link(bandwidth="100 Mbit/s", latency=LATENCY, jitter=JITTER, jitter_kind="independent", reorder=True)
    with open_network(link, 2 * len(PAIRS)) as network:
        flows = exchange(network, PAIRS, each, DENSE_S)
    return [_count(f"reorder: true, overtaken at {DENSE_S * 1e3:g} ms", link.backend, flows, wanted=True)]


def _count(setting: str, backend: str, flows: list[Arrivals], wanted: bool) -> Row:
    """How many were overtaken: none, or (where that is asked for) at least some."""
    reordered = sum(flow.reordered for flow in flows)
    more = {"datagrams": sum(len(flow.numbers) for flow in flows), "lost": sum(flow.lost for flow in flows)}
    ok = reordered > 0 if wanted else reordered == 0
    return row("jitter", setting, backend, "datagrams", 0, reordered, 0, absolute=True, ok=ok, **more)


def _by_quartiles(delays_s: list[float], distribution: Distribution) -> float:
    """The deviation that the distance of the quartiles speaks of: delays made by a busy machine hardly show in it."""
    table = sorted(quantiles(distribution))
    quarter = len(table) // 4
    of_one_s = (table[3 * quarter] - table[quarter]) / SCALE
    low_s, _, high_s = statistics.quantiles(delays_s, n=4)
    return (high_s - low_s) / of_one_s


def _histogram(delays_s: list[float], latency_s: float) -> list[int]:
    """How many delays lie in each of 32 bins of half a standard deviation, from 8 below the latency on."""
    bins = [0] * 32
    for delay_s in delays_s:
        number = int((delay_s - latency_s) / (JITTER_S / 2) + 16)
        bins[min(max(number, 0), 31)] += 1
    return bins
