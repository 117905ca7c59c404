"""Lost datagrams: each by itself (by iperf3's numbers), and in bursts (by our own, as iperf3 does not tell which)."""

from __future__ import annotations

import statistics
from functools import partial

from bwbench.network.network import Network, open_network
from link_accuracy_parts.case import Case, Options
from link_accuracy_parts.iperf import Flow, run_flows
from link_accuracy_parts.numbered import exchange
from link_accuracy_parts.rows import Row, row
from link_accuracy_parts.statistics_of_loss import binomial_interval, burst_interval
from link_accuracy_parts.tools import MeasurementError, program, run

LOSSES = (0.001, 0.01, 0.05)
# Enough bursts that chance moves their mean length by less than 4 %.
BURSTS = ((0.05, 4.0), (0.10, 10.0))
PAYLOAD_BYTES = 100
DATAGRAMS_PER_S = {"relay": 5_000, "netem": 2_500}  # well below what either machine forwards
SECONDS = 20.0
BURST_DATAGRAMS = 100_000
BURST_SPACING_S = {"relay": 0.00025, "netem": 0.0005}
BURST_TOLERANCE = 0.10
LINK = {"bandwidth": "100 Mbit/s", "latency": "2.5 ms"}


def cases(options: Options) -> list[Case]:
    """A case a loss."""
    losses = LOSSES[1:2] if options.quick else LOSSES
    seconds = 3.0 if options.quick else SECONDS
    found = [Case(f"loss {loss:.1%}", 3 + seconds, partial(_independent, options, loss, seconds)) for loss in losses]
    if not options.quick:
        seconds = 6 + BURST_DATAGRAMS * BURST_SPACING_S[options.backend] * 1.4
        for loss, burst in BURSTS:
            found.append(
                Case(f"loss {loss:.1%} in bursts of {burst:g}", seconds, partial(_bursts, options, loss, burst))
            )
    return found


def _independent(options: Options, loss: float, seconds: float) -> list[Row]:
    link = options.link(**LINK, loss=loss)
    udp_bps = DATAGRAMS_PER_S[options.backend] * PAYLOAD_BYTES * 8
    with open_network(link, 2) as network:
        before = _overflows(network, 1)
        (outcome,) = run_flows(network, [Flow(0, 1, seconds, udp_bps=udp_bps, payload_bytes=PAYLOAD_BYTES)])
        overflows = _overflows(network, 1) - before
    lost = outcome.lost - overflows
    low, high = binomial_interval(outcome.packets, loss)
    return [_share(f"{loss:.1%}", options, loss, lost, outcome.packets, (low, high), overflows)]


def _bursts(options: Options, loss: float, burst: float) -> list[Row]:
    link = options.link(**LINK, loss=loss, loss_burst=burst)
    with open_network(link, 2) as network:
        (arrivals,) = exchange(network, [(0, 1)], BURST_DATAGRAMS, BURST_SPACING_S[options.backend])
    if arrivals.overflows:
        raise MeasurementError(f"the receiver had no room for {arrivals.overflows} datagrams: the machine is too busy")
    lengths = arrivals.bursts()
    if not lengths or link.burst_loss is None:
        raise MeasurementError(f"none of {arrivals.sent} datagrams was lost")
    interval = burst_interval(arrivals.sent, link.burst_loss)
    setting = f"{loss:.1%} in bursts of {burst:g}"
    mean = statistics.fmean(lengths)
    return [
        row("loss", f"{setting}, length", link.backend, "frames", burst, mean, BURST_TOLERANCE, bursts=len(lengths)),
        _share(f"{setting}, share", options, loss, arrivals.lost, arrivals.sent, interval, 0),
    ]


def _share(
    setting: str, options: Options, loss: float, lost: int, sent: int, interval: tuple[float, float], overflows: int
) -> Row:
    """The share lost; well if it lies where 99 of 100 fair experiments do."""
    low, high = interval
    more = {"lost": lost, "sent": sent, "lowest": low / sent, "highest": high / sent, "overflows": overflows}
    tolerance = max(high / sent / loss - 1, 1 - low / sent / loss)
    return row("loss", setting, options.backend, "1", loss, lost / sent, tolerance, ok=low <= lost <= high, **more)


def _overflows(network: Network, node: int) -> int:
    """Datagrams that sockets of a node had no room for, by the kernel's own count: they are not the link's."""
    names, values = (
        line.split() for line in run(network, node, program("cat"), "/proc/net/snmp").splitlines() if "Udp:" in line
    )
    return int(values[names.index("RcvbufErrors")])
