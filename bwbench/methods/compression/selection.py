"""Which entries of a vector are large: above a threshold, or the largest so many, without sorting the whole of it.

Magnitudes are compared as the bits of the numbers without their sign, read as integers: the same order, in which
infinity stands above all numbers and NaN above infinity, so that what has diverged is always among the largest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

MAGNITUDE_BITS = 0x7FFFFFFF
SMALLEST = 1  # bits of the smallest magnitude above zero: zeros are never large
PART = 1 << 17  # elements compared at a time: their magnitudes stay in the processor's cache
SAMPLED_ABOVE = 128  # elements of the sample that are expected above the threshold
MARGIN_SIGMAS = 3.0  # how far below the expected threshold the first guess lies, in deviations of the sample
TOLERANCE = 0.1  # share of the asked entries that may be missing where an unlucky sample gave too high a threshold


def bits_of(value: float) -> int:
    """A threshold as bits, for ``at_least``: those of the smallest fp32 number that is not below ``value``."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        nearest = np.float32(value)
    if float(nearest) < value:
        nearest = np.nextafter(nearest, np.float32(np.inf))
    return max(SMALLEST, int(nearest.view(np.int32)))


def at_least(x: np.ndarray, threshold_bits: int) -> np.ndarray:
    """Indices, int64 and ascending, of the entries of ``x`` (fp32, flat) whose magnitude is the threshold or more."""
    import numpy as np

    bits = x.view(np.int32)
    magnitudes, large = np.empty(min(PART, len(x)), np.int32), np.empty(min(PART, len(x)), np.bool_)
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(x), PART):
        part = bits[begin : begin + PART]
        np.bitwise_and(part, MAGNITUDE_BITS, out=magnitudes[: len(part)])
        np.greater_equal(magnitudes[: len(part)], threshold_bits, out=large[: len(part)])
        found.append(np.flatnonzero(large[: len(part)]) + begin)
    return np.concatenate(found)


def largest(x: np.ndarray, count: int, exact: bool = False) -> np.ndarray:
    """Indices of the ``count`` largest entries by magnitude that are not zero; of equal ones all, or none are left out.

    By default a sample gives a threshold that lies somewhat too low; the entries above it, few as they are, are then
    ranked exactly. So the result is exact, but for a sample that misled: fewer entries then come out, at least 90 % of
    ``count``. Where even that is missed everything is ranked.

    Args:
        x: fp32 of shape [num_elements].
        count: how many entries are asked for, from 1 to ``num_elements``.
        exact: rank all entries.

    Returns:
        int64, ascending. More than ``count`` only where several entries are as large as the smallest one returned.
    """
    if not exact and (guess := _guess(x, count)) is not None:
        indices = at_least(x, guess)
        if len(indices) > count:
            magnitudes = _magnitudes(x[indices])
            return indices[magnitudes >= _rank(magnitudes, count)]
        if len(indices) >= (1.0 - TOLERANCE) * count or guess == SMALLEST:
            return indices
    return at_least(x, max(SMALLEST, _rank(_magnitudes(x), count)))


def _guess(x: np.ndarray, count: int) -> int | None:
    """A threshold that nearly always lets ``count`` entries pass, and not many more; None: rank them all at once."""
    import numpy as np

    size = math.ceil(SAMPLED_ABOVE * len(x) / count)
    if 4 * size > len(x):
        return None
    passing = math.ceil(SAMPLED_ABOVE + MARGIN_SIGMAS * math.sqrt(SAMPLED_ABOVE))
    # Steps of the golden ratio spread evenly over any length and fall in with no period that a tensor's shape may have.
    steps = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places = (steps >> np.uint64(32)) * np.uint64(len(x)) >> np.uint64(32)
    return max(SMALLEST, _rank(_magnitudes(x[places.astype(np.int64)]), passing))


def _magnitudes(x: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.asarray(x.view(np.int32) & MAGNITUDE_BITS)


def _rank(magnitudes: np.ndarray, count: int) -> int:
    """The ``count``-th largest."""
    import numpy as np

    position = len(magnitudes) - count
    return int(np.partition(magnitudes, position)[position])
