"""What was asked of a link, what was set, and what came of it, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from bwbench.base.units import BANDWIDTH
from bwbench.cli.output import new_table
from bwbench.network.probe.measurement import LinkMeasurement, PairMeasurement


def measured_table(applied: Mapping[str, Any], measured: LinkMeasurement) -> Table:
    """asked | applied | achieved | error: the goodput of every pair, then the round trips, then the losses.

    Args:
        applied: of the network.
    """

    def goodput(pair: PairMeasurement) -> tuple[str, ...]:
        error = _show(pair.goodput_error, "{:+.2%}")
        return _mbit(pair.asked_goodput_bps), _rate(applied, pair), _mbit(pair.achieved_goodput_bps), error

    def round_trip(pair: PairMeasurement) -> tuple[str, ...]:
        latencies_s = _of_both(applied, pair, "latency_s", "latency_s")
        delay = "-" if latencies_s is None else f"2 x {sum(latencies_s) / 2 * 1e3:.4g} ms"
        return _ms(pair.asked_rtt_s), delay, _ms(pair.achieved_rtt_s), _ms(pair.rtt_error_s, "+")

    def lost(pair: PairMeasurement) -> tuple[str, ...]:
        losses = _of_both(applied, pair, "loss", "loss")
        loss = None if losses is None else 1 - math.sqrt((1 - losses[0]) * (1 - losses[1]))
        error = None if pair.achieved_loss is None else pair.achieved_loss - pair.asked_loss
        return _percent(pair.asked_loss), _percent(loss), _percent(pair.achieved_loss), _show(error, "{:+.2%}")

    numbers = ("asked", "applied", "achieved", "error")
    table = new_table("pair", "quantity", *numbers, right=numbers)
    if measured.alone is not None:
        asked_bps, achieved_bps = measured.alone
        alone = PairMeasurement(0, 1, asked_goodput_bps=asked_bps, achieved_goodput_bps=achieved_bps)
        table.add_row("0 > 1 alone", "UDP goodput", *goodput(alone))
    for quantity, row in (("UDP goodput", goodput), ("round trip", round_trip), ("loss", lost)):
        for pair in measured.pairs:
            table.add_row(f"{pair.src} > {pair.dst}", quantity, *row(pair))
    return table


def _of_both(applied: Mapping[str, Any], pair: PairMeasurement, of_src: str, of_dst: str) -> tuple[float, float] | None:
    """What was set at both ends; None where the back end has different qdiscs for them instead of such a figure."""
    if len(applied.get("shapes", ())) > 1:
        return None
    nodes = applied.get("nodes", {})
    src, dst = ({**applied, **nodes.get(str(node), {})} for node in (pair.src, pair.dst))
    return (src[of_src], dst[of_dst]) if of_src in src and of_dst in dst else None


def _rate(applied: Mapping[str, Any], pair: PairMeasurement) -> str:
    rates_bps = _of_both(applied, pair, "up_bps", "down_bps")
    if rates_bps is None:
        return "-"
    kind = "PHY" if applied.get("medium") == "shared" else "of frames"
    return f"{BANDWIDTH.show(min(rates_bps), 6)} {kind}"


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _mbit(value_bps: float | None) -> str:
    return "-" if value_bps is None else f"{value_bps / 1e6:.4g} Mbit/s"


def _ms(value_s: float | None, sign: str = "") -> str:
    return "-" if value_s is None else f"{value_s * 1e3:{sign}.2f} ms"


def _percent(value: float | None) -> str:
    return _show(value, "{:.2%}")
