"""Lateness of an emulator: how long after it was due a frame has left, as a compact histogram.

A histogram is a list of ``[upper edge in seconds, frames]`` in the order of the edges, each row what lies between its
edge and the one before; rows without frames may be missing. It only ever grows, so the difference of two tells what
happened between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_QUANTILES = {"p50_s": 0.5, "p99_s": 0.99, "max_s": 1.0}


def lateness_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Lateness of the frames that left between two answers of ``Network.health()``.

    Returns ``{"frames", "p50_s", "p99_s", "max_s", "histogram"}``: quantiles in seconds, each the upper edge of the row
    that it falls into, None where no frame has left. Back ends without such a histogram make it all empty.
    """
    earlier = dict(map(tuple, before.get("lateness_histogram") or ()))
    later = after.get("lateness_histogram") or ()
    histogram = [[edge_s, frames - earlier.get(edge_s, 0)] for edge_s, frames in later]
    histogram = [row for row in histogram if row[1]]
    figures = {name: lateness_quantile(histogram, share) for name, share in _QUANTILES.items()}
    return {"frames": sum(frames for _, frames in histogram), **figures, "histogram": histogram}


def lateness_quantile(histogram: Sequence[Sequence[float]], share: float) -> float | None:
    """The upper edge of the row that holds this quantile, in seconds; None for an empty histogram."""
    wanted = share * sum(frames for _, frames in histogram)
    seen = 0.0
    for edge_s, frames in histogram:
        seen += frames
        if frames and seen >= wanted:
            return edge_s
    return None
