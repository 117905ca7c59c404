"""A link in words, for tables and captions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bwbench.base.units import BANDWIDTH, DURATION

if TYPE_CHECKING:
    from bwbench.network.link.link import Link


def describe(link: Link, short: bool) -> str:
    """One line for tables; ``short`` gives the round trip alone."""
    if not link.shaped:
        return "unshaped"
    up_bps, down_bps = link.base.up_bps, link.base.down_bps
    rate = BANDWIDTH.format(_rounded(up_bps))
    if up_bps != down_bps:
        rate += f" up, {BANDWIDTH.format(_rounded(down_bps))} down"
    if link.trace is not None:
        rate = f"trace of {rate} on average"
    rtt = f"RTT {DURATION.format(link.rtt_s)}"
    words = [rate, rtt if short else f"{DURATION.format(link.latency_s)} one way ({rtt})"]
    medium = link.medium if link.medium == "switched" else "shared air"
    words.append(medium if link.standard is None else f"{medium} ({link.standard})")
    if link.fairness == "airtime":
        words.append("airtime-fair")
    if link.jitter_s:
        kind = "" if link.jitter_distribution == "normal" else f" ({link.jitter_distribution})"
        words.append(f"jitter {DURATION.format(link.jitter_s)}{kind}")
    if link.loss:
        words.append(f"loss {link.loss:.3g}" + (f" in bursts of {link.loss_burst:g}" if link.loss_burst else ""))
    if link.queue is not None:
        words.append(f"queue {link.queue}")
    if link.outages:
        words.append(f"{len(link.outages)} outage(s)")
    if link.overrides:
        words.append(f"node(s) {', '.join(map(str, sorted(link.overrides)))} differ")
    return ", ".join(words)


def _rounded(value_bps: float) -> float:
    return float(f"{value_bps:.4g}")
