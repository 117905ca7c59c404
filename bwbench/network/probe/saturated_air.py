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
    stations = {node: link.node(node).up_bps for node in range(num_nodes) if node not in air.wired}
    full_s = {node: air.full_s(phy_bps) for node, phy_bps in stations.items()}
    # Every station sends, and the access point has a frame for every station.
    round_s = sum(full_s.values()) * (1 + 1 / len(stations))
    rates = []
    for src in range(num_nodes):
        dst = (src + 1) % num_nodes
        if src not in stations and dst not in stations:
            rates.append(AirRates(math.inf, math.inf, math.inf, math.inf))
            continue
        turn_s = {node: round_s if air.fairness == "packet" else 2 * len(stations) * full_s[node] for node in stations}
        passed_bps = sent_bps = math.inf
        if src in stations:
            sent_bps = _full_bits(air, stations[src]) / turn_s[src]
        if dst in stations:
            passed_bps = _full_bits(air, stations[dst]) / turn_s[dst]
            passed_bps /= len(stations) if air.fairness == "packet" else 1
        # What the access point does not need for one station goes to the others, in turn: no closed form.
        all_bps = None if sent_bps < passed_bps < math.inf else min(passed_bps, sent_bps)
        alone = _alone(air, stations.get(src), stations.get(dst))
        rates.append(AirRates(all_bps, sent_bps if src in stations else passed_bps, *alone))
    if any(rate.all_bps is None for rate in rates):
        return [replace(rate, all_bps=None) for rate in rates]
    return rates


def _alone(air: Air, up_bps: float | None, down_bps: float | None) -> tuple[float, float]:
    """What arrives and what is sent where one node sends alone, through the access point or from or to its wire."""
    if up_bps is None or down_bps is None:
        rate_bps = air.capacity_bps(up_bps or down_bps or math.inf)
        return rate_bps, rate_bps
    up_bits, down_bits, up_s = _full_bits(air, up_bps), _full_bits(air, down_bps), air.full_s(up_bps)
    passed_bits = min(up_bits, down_bits)
    down_s = air.transmission_s(passed_bits / 8, down_bps)
    if air.fairness == "packet" or down_s <= up_s:  # who needs less than half of the time leaves the rest
        return passed_bits / (up_s + down_s), up_bits / (up_s + down_s)
    return down_bits / air.full_s(down_bps) / 2, up_bits / up_s / 2


def _full_bits(air: Air, phy_bps: float) -> float:
    return air.most_frames(phy_bps) * ETHERNET_FRAME_BYTES * 8
