"""Ascending indices in few bits: the gaps between them, in a Rice code.

An entry of a tensor of which a share p is sent takes 1.01 bytes at p = 1 %, 1.44 at 0.1 % and 0.59 at 10 %, where the
entries lie at random: within 2 % of the entropy H(p)/p. Entries in clusters take up to 7 % more, since the short gaps
between them take as many low bits as long ones. A plain 32-bit index takes 4 bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

MOST_LOW_BITS = 31  # of a gap; a tensor has fewer than 2^32 elements


def most_bytes(num_entries: int, num_elements: int) -> int:
    """The code of ``num_entries`` indices below ``num_elements`` is no longer, wherever they lie. Pure.

    The largest entries of a gradient lie in clusters, and come within some 2 % of it; entries at random stay 4 to 7 %
    below.
    """
    if num_entries <= 0 or num_elements <= 0:
        return 0
    low_bits = best_low_bits(min(1.0, num_entries / num_elements))
    unary_bits = num_entries + (max(0, num_elements - num_entries) >> low_bits)
    return low_bits * math.ceil(num_entries / 8) + math.ceil(unary_bits / 8)


def best_low_bits(density: float) -> int:
    """How many bits of a gap to send as they are, for entries at random (Kiely 2004, "Selecting the Golomb parameter").

    The bits above them are counted off in unary, which is short where they are seldom more than 0 or 1.
    """
    if density >= 1.0:
        return 0
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    return min(MOST_LOW_BITS, max(0, 1 + math.floor(math.log2(math.log(golden) / math.log1p(-density)))))


def encode(indices: np.ndarray, num_elements: int) -> tuple[np.ndarray, int]:
    """The code of ascending indices.

    Args:
        indices: int64 of shape [num_entries], strictly ascending, below ``num_elements``.
        num_elements: length of the tensor that they point into.

    Returns:
        uint8 of shape [num_bytes], and the number of low bits, which a receiver has to know. The code is the highest of
        the low bits of all gaps, padded to a byte, the next lower bit, and so on; then what is left of each gap in
        unary, so many zeros and a one. A gap counts the empty places before an entry.
    """
    import numpy as np

    if len(indices) == 0:
        return np.empty(0, np.uint8), 0
    gaps = np.diff(indices, prepend=-1) - 1
    low_bits = best_low_bits(len(indices) / num_elements)
    quotients = gaps >> low_bits
    ends = np.cumsum(quotients + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1, np.uint8)
    unary[ends] = 1
    return np.concatenate([_pack_low(gaps, low_bits), np.packbits(unary)]), low_bits


def decode(code: np.ndarray, num_entries: int, low_bits: int) -> np.ndarray:
    """The indices, int64 of shape [num_entries], that ``encode`` was given.

    Raises ValueError where the code holds another number of them.
    """
    import numpy as np

    if num_entries == 0:
        return np.empty(0, np.int64)
    low_bytes = low_bits * -(-num_entries // 8)
    ends = np.flatnonzero(np.unpackbits(code[low_bytes:]).view(np.bool_))
    if len(ends) != num_entries:
        raise ValueError(f"a code of {num_entries} indices holds {len(ends)}")
    entry = np.arange(num_entries)
    # The sum of all rests up to an entry is the number of zeros before its one.
    low = np.cumsum(_unpack_low(code[:low_bytes], num_entries, low_bits), dtype=np.int64)
    return ((ends - entry) << low_bits) + low + entry


def _pack_low(gaps: np.ndarray, low_bits: int) -> np.ndarray:
    """One plane of bits behind the other: contiguous work, where the bits of each gap side by side would scatter it."""
    import numpy as np

    small = gaps.astype(_word(low_bits))
    planes = [np.packbits(small & small.dtype.type(1 << bit)) for bit in reversed(range(low_bits))]
    return np.concatenate([np.empty(0, np.uint8), *planes])


def _unpack_low(code: np.ndarray, num_entries: int, low_bits: int) -> np.ndarray:
    import numpy as np

    low = np.zeros(num_entries, _word(low_bits))
    for plane in code.reshape(low_bits, -1) if low_bits else ():
        low += low  # doubled: cheaper than shifting
        low |= np.unpackbits(plane, count=num_entries)
    return low


def _word(low_bits: int) -> str:
    """A type that holds so many bits; what a gap has beyond them is cut off."""
    return "u1" if low_bits <= 8 else "i4"
