"""Small numbers packed into bytes: as many to a byte as fit, as digits of one number."""

from __future__ import annotations

from typing import Any


def digits_per_byte(base: int) -> int:
    """How many numbers below ``base`` (2 to 256) one byte holds: 8 of base 2, 5 of 3, 4 of 4, 2 of up to 16."""
    count = 1
    while base ** (count + 1) <= 256:
        count += 1
    return count


def packed_bytes(count: int, base: int) -> int:
    """Bytes of ``count`` numbers below ``base``."""
    return -(-count // digits_per_byte(base))


def pack(numbers: Any, base: int, out: Any) -> None:
    """Write ``numbers`` into ``out``.

    A byte holds one number of each part of ``numbers``, cut into as many equal parts as there are digits: so packing
    needs a few operations on long vectors, where neighbours in one byte would need slow strided ones.

    Args:
        numbers: numpy uint8 of shape [packed_bytes · digits_per_byte] or longer, below ``base``. Behind the last of
            them comes what fills up the last byte, below ``base`` as well.
        base: 2 to 256.
        out: numpy uint8 of shape [packed_bytes].
    """
    import numpy as np

    parts = numbers[: len(out) * digits_per_byte(base)].reshape(digits_per_byte(base), -1)
    out[:] = parts[-1]
    for part in parts[-2::-1]:
        np.multiply(out, np.uint8(base), out=out)
        np.add(out, part, out=out)


def unpack(packed: Any, base: int, numbers: Any) -> None:
    """What ``pack`` was given: ``packed`` to ``numbers``, shapes and types as there."""
    import numpy as np

    parts = numbers[: len(packed) * digits_per_byte(base)].reshape(digits_per_byte(base), -1)
    rest = packed
    for part in parts[:-1]:
        higher = rest // np.uint8(base)
        np.multiply(higher, np.uint8(base), out=part)
        np.subtract(rest, part, out=part)
        rest = higher
    parts[-1] = rest
