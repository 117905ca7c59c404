"""The shared air: who gets how much of it, against the closed form of ``link.air``.

Saturating UDP, so that nothing but the air decides; each station offers 1.3 times what it should get.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bwbench.network.link import ETHERNET_FRAME_BYTES, UDP_PAYLOAD_BYTES, Link
from bwbench.network.link.air import Air
from bwbench.network.network import open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import Flow, run_flows
from link_accuracy_parts.rows import Row, not_measured, row

PLAIN = {"bandwidth": "20 Mbit/s"}  # what is carried: no overhead
OLD = {"standard": "802.11g", "bandwidth": "54 Mbit/s"}
NEW = {"standard": "802.11n", "bandwidth": "72 Mbit/s"}
SLOW = {"overrides": {1: {"bandwidth": "6 Mbit/s"}}}
WIRED, SECONDS, LATENCY = 0, 10.0, "2.5 ms"
OVERLOAD = 1.3
TOLERANCE = 0.03
PAYLOAD_SHARE = UDP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES

Pair = tuple[int, int]  # who sends to whom
Shares = Callable[[Air, Link], list[float]]


def cases(options: Options) -> list[Case]:
    """Two stations to a wired node, station to station, and one slow station under either fairness."""
    if options.backend == "netem":
        return []
    up, across = [(1, WIRED), (2, WIRED)], [(1, 2)]
    asked: list[tuple[str, dict[str, Any], Sequence[Pair], Shares]] = [
        ("two stations, plain", PLAIN, up, _equal),
        ("two stations, 802.11g", OLD, up, _equal),
        ("two stations, 802.11n", NEW, up, _equal),
        ("station to station, 802.11g", OLD, across, _twice),
        ("station to station, 802.11n", NEW, across, _twice),
        ("one slow, 802.11g, packet-fair", OLD | SLOW, up, _packet_fair),
        ("one slow, 802.11g, airtime-fair", OLD | SLOW | {"fairness": "airtime"}, up, _airtime_fair),
        ("one slow, 802.11n, packet-fair", NEW | SLOW, up, _packet_fair),
    ]
    seconds = 3.0 if options.quick else SECONDS
    if options.quick:
        asked = asked[1:2]
    return [
        Case(f"air {setting}", 1.5 + seconds, partial(_measure, options, setting, keys, flows, shares, seconds))
        for setting, keys, flows, shares in asked
    ]


def _equal(air: Air, link: Link) -> list[float]:
    return [air.capacity_bps(link.base.up_bps) / 2] * 2


def _twice(air: Air, link: Link) -> list[float]:
    """Up to the access point and down again: half of it."""
    return [air.capacity_bps(link.base.up_bps) / 2]


def _packet_fair(air: Air, link: Link) -> list[float]:
    """As many transmissions for each, whatever they take; a slow station's may hold fewer frames."""
    rates_bps = [link.node(station).up_bps for station in (1, 2)]
    turn_s = sum(air.full_s(rate_bps) for rate_bps in rates_bps)
    return [air.most_frames(rate_bps) * ETHERNET_FRAME_BYTES * 8 / turn_s for rate_bps in rates_bps]


def _airtime_fair(air: Air, link: Link) -> list[float]:
    """Half of the time for each: half of what it would get alone."""
    return [air.capacity_bps(link.node(station).up_bps) / 2 for station in (1, 2)]


def _measure(
    options: Options,
    setting: str,
    keys: dict[str, Any],
    pairs: Sequence[tuple[int, int]],
    shares: Shares,
    seconds: float,
) -> list[Row]:
    link = options.link(medium="shared", latency=LATENCY, wired=[WIRED], **keys)
    air = link.air
    if air is None:
        return [not_measured("air", setting, options.backend, "the link has no air", False)]
    asked_bps = [share_bps * PAYLOAD_SHARE for share_bps in shares(air, link)]
    flows = [Flow(*pair, seconds, udp_bps=OVERLOAD * bps) for pair, bps in zip(pairs, asked_bps, strict=True)]
    with open_network(link, 3) as network:
        measured_bps = [outcome.goodput_bps for outcome in run_flows(network, flows)]
        late_s = network.health().get("lateness_p99_s")
    figure = partial(row, "air", backend=options.backend, unit="bit/s", tolerance=TOLERANCE, lateness_p99_s=late_s)
    rows = [figure(setting=f"{setting}, sum", asked=sum(asked_bps), measured=sum(measured_bps))]
    if len(flows) > 1:
        for (station, _), asked, measured in zip(pairs, asked_bps, measured_bps, strict=True):
            rows.append(figure(setting=f"{setting}, node {station}", asked=asked, measured=measured))
    return rows
