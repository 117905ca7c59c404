"""What the network between the ranks does, seen from the ranks: round trips, and what TCP carries while all send.

For networks that nobody here has shaped. It uses the connections that training will use, so that a firewall, a busy
access point and a slow host count as they will then.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from bwbench.network.probe.measurement import LinkMeasurement, PairMeasurement
from bwbench.train.control import ControlPath

ROUND_TRIPS = 20
FIRST_BYTES = 64 * 1024
MOST_BYTES = 64 * 1024 * 1024
LONG_ENOUGH_S = 1.0  # what a rate rests on; the last transfer takes up to twice that where TCP speeds up late
_GROWTH = 8
_PING_TAG, _PONG_TAG, _STREAM_TAG = 9001, 9002, 9003


def measure(data: dist.ProcessGroup, control: ControlPath) -> LinkMeasurement:
    """Probe every rank and the next one, all ranks at a time for the rate; the same result on all ranks.

    Round trips are the median of messages of one number from process to process; rates are bytes received by TCP.
    """
    size, rank = control.size, control.rank
    found = torch.zeros(2, size, dtype=torch.float64)  # own row: round trip to the next, rate from the one before
    for src in range(size):
        control.barrier()
        if rank == src:
            found[0, rank] = _ping(data, (src + 1) % size)
        elif rank == (src + 1) % size:
            _answer(data, src)
    found[1, (rank - 1) % size] = _rate_bps(data, control)
    total = control.total(found)
    pairs = [
        PairMeasurement(
            src,
            (src + 1) % size,
            achieved_goodput_bps=float(total[1, src]),
            achieved_rtt_s=float(total[0, src]),
        )
        for src in range(size)
    ]
    return LinkMeasurement("none", tuple(pairs), "ok", (), 0.0)


def _ping(data: dist.ProcessGroup, peer: int) -> float:
    """Seconds of a round trip, the median; the first one opens connections and does not count."""
    taken_s, message = [], torch.zeros(1)
    for _ in range(ROUND_TRIPS + 1):
        begin_s = time.monotonic()
        data.send([message], peer, _PING_TAG).wait()
        data.recv([message], peer, _PONG_TAG).wait()
        taken_s.append(time.monotonic() - begin_s)
    return statistics.median(taken_s[1:])


def _answer(data: dist.ProcessGroup, peer: int) -> None:
    message = torch.zeros(1)
    for _ in range(ROUND_TRIPS + 1):
        data.recv([message], peer, _PING_TAG).wait()
        data.send([message], peer, _PONG_TAG).wait()


def _rate_bps(data: dist.ProcessGroup, control: ControlPath) -> float:
    """Bits per second from the rank before, all ranks sending at once: of the first transfer that takes long enough."""
    size, rank, num_bytes = control.size, control.rank, FIRST_BYTES
    while True:
        sent, received = torch.zeros(num_bytes, dtype=torch.uint8), torch.empty(num_bytes, dtype=torch.uint8)
        control.barrier()
        begin_s = time.monotonic()
        sending = data.send([sent], (rank + 1) % size, _STREAM_TAG)
        data.recv([received], (rank - 1) % size, _STREAM_TAG).wait()
        taken_s = time.monotonic() - begin_s
        sending.wait()
        slowest = control.mean({"taken_s": taken_s})["taken_s"]  # the same number everywhere, so that all go on alike
        if slowest >= LONG_ENOUGH_S or num_bytes >= MOST_BYTES:
            return 8 * num_bytes / taken_s
        num_bytes = min(num_bytes * _GROWTH, MOST_BYTES)


def to_json(measurement: LinkMeasurement) -> dict[str, Any]:
    """As link.json has it, with how it was found."""
    return {**measurement.to_json(), "method": "tcp, from process to process", "tries": 1, "rejected": []}
