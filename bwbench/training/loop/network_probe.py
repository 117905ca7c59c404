"""What the network between the ranks does, seen from the ranks: round trips, and what TCP carries while all send.

For the networks between real hosts, shaped or not. It uses the connections that training will use, so that a firewall,
a busy access point and a slow host count as they will then.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.distributed as dist

from bwbench.network.link import Link
from bwbench.network.probe.probe_plan import Pair, pairs_of
from bwbench.network.probe.verification import LinkMeasurement, PairMeasurement
from bwbench.training.loop.control import ControlPath

METHOD = "tcp, from process to process"  # as link.json has it
ROUND_TRIPS = 20
FIRST_BYTES = 64 * 1024
MOST_BYTES = 64 * 1024 * 1024
LONG_ENOUGH_S = 1.0  # what a rate rests on
AIMED_AT_S = 1.5  # by what the last transfer took: the next one is long enough even where TCP has become faster
# Of the rate. Nothing makes TCP faster than its link; slower is what it makes of one whose queue is short, and whose
# acknowledgements wait behind the data of the other direction. That the qdiscs are as asked the kernel itself is asked.
MOST_ABOVE, MOST_BELOW = 0.05, 0.3
RTT_TOLERANCE = 0.1
WAKING_S = 5e-3  # of two processes in turn, on machines that do something else as well
_GROWTH = 8
_PING_TAG, _PONG_TAG, _STREAM_TAG = 9001, 9002, 9003


def measure(data: dist.ProcessGroup, control: ControlPath, link: Link) -> LinkMeasurement:
    """Probe every rank and the next one, all ranks at a time for the rate; the same result on all ranks.

    Round trips are the median of messages of one number from process to process; rates are bytes received by TCP. Where
    ``link`` is shaped the verdict says whether they are what it asks, as far as TCP between processes can tell: a round
    trip holds the time that two processes take to wake, and of a link that loses frames TCP gets less than it is.
    """
    size, rank = control.size, control.rank
    found = torch.zeros(2, size, dtype=torch.float64)  # own row: round trip to the next, rate from the one before
    for src in range(size):
        control.barrier()
        if rank == src:
            found[0, rank] = _ping(data, (src + 1) % size)
        elif rank == (src + 1) % size:
            message = torch.zeros(1)
            for _ in range(ROUND_TRIPS + 1):
                data.recv([message], src, _PING_TAG).wait()
                data.send([message], src, _PONG_TAG).wait()
    found[1, (rank - 1) % size] = rate_bps(data, control)
    total = control.total(found)
    pairs = [
        PairMeasurement(
            src, (src + 1) % size, achieved_goodput_bps=float(total[1, src]), achieved_rtt_s=float(total[0, src])
        )
        for src in range(size)
    ]
    if not link.shaped:
        return LinkMeasurement("none", tuple(pairs), "ok", (), 0.0)
    pairs = [_beside_asked(pair, asked) for pair, asked in zip(pairs, pairs_of(link, size), strict=True)]
    reasons = tuple(reason for pair in pairs for reason in unlike(pair))
    return LinkMeasurement("interface", tuple(pairs), "out-of-tolerance" if reasons else "ok", reasons, MOST_ABOVE)


def unlike(pair: PairMeasurement) -> Iterator[str]:
    """What the ranks have found beyond what TCP between two processes makes of the link that was asked for."""
    who, error = f"node {pair.src} to node {pair.dst}", pair.goodput_error
    if error is not None and not -MOST_BELOW <= error <= MOST_ABOVE:
        yield (
            f"{who}: TCP carries {pair.achieved_goodput_bps / 1e6:.3f} Mbit/s where it could carry "
            f"{(pair.asked_goodput_bps or 0) / 1e6:.3f} Mbit/s ({error:+.1%}, allowed {-MOST_BELOW:.0%} to "
            f"{MOST_ABOVE:+.0%})"
        )
    asked_s, achieved_s = pair.asked_rtt_s or 0.0, pair.achieved_rtt_s or 0.0
    allowed_s = max(RTT_TOLERANCE * asked_s, WAKING_S) + pair.asked_jitter_s
    if abs(achieved_s - asked_s) > allowed_s:
        yield (
            f"{who}: a round trip takes {achieved_s * 1e3:.2f} ms instead of {asked_s * 1e3:.2f} ms "
            f"(allowed {allowed_s * 1e3:.2f} ms more or less)"
        )


def _beside_asked(found: PairMeasurement, asked: Pair) -> PairMeasurement:
    tcp_bps = (asked.frames_bps or 0.0) / asked.full.wire_per_payload
    return replace(
        found,
        asked_bps=asked.frames_bps,
        asked_goodput_bps=tcp_bps if tcp_bps and not asked.loss else None,
        asked_rtt_s=asked.rtt_s,
        asked_jitter_s=asked.jitter_s,
    )


def _ping(data: dist.ProcessGroup, peer: int) -> float:
    """Seconds of a round trip, the median; the first one opens connections and does not count."""
    taken_s, message = [], torch.zeros(1)
    for _ in range(ROUND_TRIPS + 1):
        begin_s = time.monotonic()
        data.send([message], peer, _PING_TAG).wait()
        data.recv([message], peer, _PONG_TAG).wait()
        taken_s.append(time.monotonic() - begin_s)
    return statistics.median(taken_s[1:])


def rate_bps(data: dist.ProcessGroup, control: ControlPath, weight: float = 1.0) -> float:
    """Bits per second from the rank before, all ranks sending at once: of the first transfer that takes long enough.

    Args:
        weight: of this rank's time in the mean that decides that; over all ranks their number.
    """
    size, rank, num_bytes = control.size, control.rank, FIRST_BYTES
    while True:
        sent, received = torch.zeros(num_bytes, dtype=torch.uint8), torch.empty(num_bytes, dtype=torch.uint8)
        control.barrier()
        begin_s = time.monotonic()
        # Of two ranks one connection carries both ways, and gloo asks for data on it: behind that of the other way, if
        # that had begun before.
        receiving = data.recv([received], (rank - 1) % size, _STREAM_TAG)
        sending = data.send([sent], (rank + 1) % size, _STREAM_TAG)
        receiving.wait()
        taken_s = time.monotonic() - begin_s
        sending.wait()
        slowest = control.mean({"taken_s": weight * taken_s})[
            "taken_s"
        ]  # the same number everywhere, so that all go on alike
        if slowest >= LONG_ENOUGH_S or num_bytes >= MOST_BYTES:
            return 8 * num_bytes / taken_s
        num_bytes = next_bytes(num_bytes, slowest)


def next_bytes(num_bytes: int, taken_s: float) -> int:
    """What to send after ``num_bytes``, which took too little time for a rate to rest on."""
    return min(int(num_bytes * min(_GROWTH, AIMED_AT_S / taken_s)), MOST_BYTES)
