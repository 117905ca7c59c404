"""What a shared air carries while everybody sends more than it can: closed forms, as all transmissions are full."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from bwbench.network.link import ETHERNET_FRAME_BYTES, Link
from bwbench.network.link.air import Air


@dataclass(frozen=True)
class AirRates:
    """Rates of full frames from a node to its neighbour, in bit/s; infinite between two wired nodes.

    Attributes:
        all_bps: what arrives while every node sends; None where there is no closed form.
        all_sent_bps: what a sender gets onto the air meanwhile.
        alone_bps: what arrives while nobody else sends.
        alone_sent_bps: what the sender gets onto the air meanwhile.
    """

    all_bps: float | None
    all_sent_bps: float
    alone_bps: float
    alone_sent_bps: float


def air_rates(link: Link, air: Air, num_nodes: int) -> list[AirRates]:
    """For each node and its neighbour.

    Packet fairness: in a round every station makes one transmission and the access point one, to each station in its
    turn. So each of N stations has N times as much on the air as the access point passes on for it: the starvation of
    access points that send no more often than anyone else. Airtime fairness: every queue, the stations' and those
    of the access point, has the same time.
    """
    full_bits = air.aggregation * ETHERNET_FRAME_BYTES * 8
    stations = [node for node in range(num_nodes) if node not in air.wired]
    transmission_s = {node: air.transmission_s(full_bits / 8, link.node(node).up_bps) for node in stations}
    # Every station sends, and the access point has a frame for every station.
    round_s = sum(transmission_s.values()) * (1 + 1 / len(stations))
    rates = []
    for src in range(num_nodes):
        dst = (src + 1) % num_nodes
        up_s, down_s = transmission_s.get(src), transmission_s.get(dst)
        if up_s is None and down_s is None:
            rates.append(AirRates(math.inf, math.inf, math.inf, math.inf))
            continue
        alone = _alone(air, full_bits, up_s, down_s)
        if air.fairness == "packet":
            passed_bps = full_bits / round_s
            all_bps: float | None = passed_bps if down_s is None else passed_bps / len(stations)
            sent_bps = passed_bps if up_s is not None else all_bps or passed_bps
        else:
            share = 1 / (2 * len(stations))
            sent_bps = share * full_bits / (up_s or down_s or 1.0)
            all_bps = down_bps = share * full_bits / down_s if down_s else sent_bps
            if up_s is not None and sent_bps < down_bps:
                all_bps = None  # what the access point does not need for one station goes to the others, in turn
        rates.append(AirRates(all_bps, sent_bps, *alone))
    if any(rate.all_bps is None for rate in rates):
        return [replace(rate, all_bps=None) for rate in rates]
    return rates


def _alone(air: Air, full_bits: float, up_s: float | None, down_s: float | None) -> tuple[float, float]:
    """What arrives and what is sent where one node sends alone, through the access point or from or to its wire."""
    if up_s is None or down_s is None:
        rate_bps = full_bits / (up_s or down_s or 1.0)
        return rate_bps, rate_bps
    if air.fairness == "packet" or up_s >= down_s:  # who needs less than half of the time leaves the rest
        rate_bps = full_bits / (up_s + down_s)
        return rate_bps, rate_bps
    return full_bits / down_s / 2, full_bits / up_s / 2
