"""Sites and the lines between them, drawn as a tree for each site."""

from __future__ import annotations

from collections.abc import Iterator

from bwbench.base.units import BANDWIDTH, DURATION, rounded
from bwbench.network.link import Link
from bwbench.network.link.site_network import SharedLine, SiteNetwork


def drawn_sites(link: Link, sites: SiteNetwork) -> Iterator[str]:
    """Each site with its nodes, the line that they share, and under it the ways to all others.

    bern    2 nodes (0, 1); among them 1 Gbit/s, 100 us
      │     shared: up 50 Mbit/s (queue 312.5 kB, 50 ms), down 200 Mbit/s (queue 1250 kB, 50 ms)
      └───▶ oslo: 50 Mbit/s, 10.1 ms one way
    """
    inside = _rates(link.base.up_bps, link.base.down_bps)
    for number, (name, members) in enumerate(zip(sites.names, sites.members, strict=True)):
        nodes = f"1 node ({members[0]})" if len(members) == 1 else f"{len(members)} nodes ({_numbers(members)})"
        lan = "; its own link" if len(members) == 1 else "; among them"
        yield f"{name:<7} {nodes}{lan} {inside}, {DURATION.format(link.latency_s)}"
        shared = [
            f"{way} {_line(line)}" for way, line in (("up", sites.up[number]), ("down", sites.down[number])) if line
        ]
        if shared:
            yield f"  │     {'its line outside' if len(members) == 1 else 'shared'}: {', '.join(shared)}"
        others = [other for other in range(len(sites.names)) if other != number]
        for other in others:
            branch = "└" if other == others[-1] else "├"
            rate = BANDWIDTH.show(sites.rate_bps(link.base, number, other), 4)
            path = sites.paths[number][other]
            own = f" (queue {_queue(path)})" if path is not None else ""
            delay = DURATION.format(float(f"{link.latency_s + sites.latency_s[number][other]:.6g}"))
            yield f"  {branch}───▶ {sites.names[other]}: {rate}{own}, {delay} one way"


def _numbers(members: range) -> str:
    return ", ".join(map(str, members)) if len(members) < 3 else f"{members[0]} to {members[-1]}"


def _rates(up_bps: float, down_bps: float) -> str:
    up, down = BANDWIDTH.show(up_bps, 4), BANDWIDTH.show(down_bps, 4)
    return up if up == down else f"{up} up, {down} down"


def _line(line: SharedLine) -> str:
    return f"{BANDWIDTH.show(line.rate_bps, 4)} (queue {_queue(line)})"


def _queue(line: SharedLine) -> str:
    held = f"{line.queue_packets} packets" if line.queue_packets else f"{rounded(line.queue_bytes / 1e3, 4)} kB"
    return f"{held}, {rounded(line.queue_bytes * 8e3 / line.rate_bps, 4)} ms"
