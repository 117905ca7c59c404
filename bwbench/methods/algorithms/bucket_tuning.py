"""Which bucket size ends a step first: the exchange of every bucket played through, for several sizes.

Small buckets leave early in the backward pass and pay the latency of a whole exchange each; large ones pay it once and
leave late. Which is better depends on the link and on how long a backward pass takes, both of which are known once the
warm-up has measured one. Bagua tunes the size by trying (Gan et al. 2021); on a slow link a trial would take minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from bwbench.methods.algorithms.buckets import assign
from bwbench.methods.algorithms.communicator import NUM_THREADS
from bwbench.methods.traffic import Traffic, transfer_time_s
from bwbench.network.link import Link

CANDIDATES_BYTES = tuple(64 * 1024 * 4**power for power in range(7))  # 64 kB to 256 MB
SOFTWARE_S = 1e-3  # of one exchange, beside what the link takes: threads, messages, codec calls


def best_bucket_bytes(
    parameter_elements: Sequence[int],
    backward_s: float,
    link: Link,
    traffic_of_bucket: Callable[[int], Traffic],
) -> int:
    """The candidate with which the last bucket is averaged first; the largest of equals. Pure.

    Args:
        parameter_elements: elements of each parameter, in the model's order.
        backward_s: a backward pass without communication.
        link: the shaped link that the buckets cross.
        traffic_of_bucket: what the exchange of a bucket of so many elements moves.
    """
    ends = {
        size: end_of_exchange_s(parameter_elements, size, backward_s, link, traffic_of_bucket)
        for size in CANDIDATES_BYTES
    }
    shortest_s = min(ends.values())
    best: int = max(size for size, end_s in ends.items() if math.isclose(end_s, shortest_s, rel_tol=1e-3))
    return best


def end_of_exchange_s(
    parameter_elements: Sequence[int],
    bucket_bytes: float,
    backward_s: float,
    link: Link,
    traffic_of_bucket: Callable[[int], Traffic],
) -> float:
    """Seconds from the begin of the backward pass to the last average.

    Gradients are taken to appear at an even pace, last parameter first. Buckets share the link one after the other;
    the latencies of as many as there are threads overlap.
    """
    buckets = [sum(parameter_elements[i] for i in bucket) for bucket in assign(parameter_elements, bucket_bytes)]
    total, ready, now_s = max(1, sum(buckets)), 0, 0.0
    lanes = min(NUM_THREADS, len(buckets)) or 1
    for elements in buckets:
        ready += elements
        traffic = traffic_of_bucket(elements)
        latency_s = transfer_time_s(link, traffic.without_bytes())
        sending_s = transfer_time_s(link, traffic) - latency_s
        now_s = max(now_s, backward_s * ready / total) + sending_s + (latency_s + SOFTWARE_S) / lanes
    return now_s
