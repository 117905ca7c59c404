"""Random numbers for stochastic rounding, cheap, repeatable, and different on every rank and in every call."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

TABLE_LENGTHS = (32_768, 32_749)  # a power of two and a prime: the sums repeat after 10^9


class Dither:
    """Where a codec's random numbers come from: a generator seeded by rank, bucket, stream and number of the call.

    So nothing but the number of calls has to be kept for a training to go on as if it had not been interrupted.

    Attributes:
        stream: tells several codecs of one rank and bucket apart.
        calls: drawn from so far.
    """

    def __init__(self) -> None:
        self.rank = self.bucket = self.stream = self.calls = 0

    def other(self, stream: int) -> Dither:
        """The same rank and bucket, no call made yet."""
        other = copy.copy(self)
        other.stream, other.calls = stream, 0
        return other

    def integers(self, lengths: Sequence[int], dtype: Literal["int16", "int32"]) -> Iterator[Any]:
        """The numbers for one tensor, piece by piece, uniform over the whole range of their type.

        Drawing costs as much as ten passes over a tensor. So two short tables are drawn, both are repeated again and
        again, and their sums, modulo 2^bits, are the numbers. That is as good for rounding: each number is uniform, and
        any two are independent, because the lengths of the tables have no common divisor.

        Args:
            lengths: of the pieces, at most ``PIECE`` each.
            dtype: numpy's name for the type.

        Yields:
            numpy arrays of these lengths, each valid until the next one.
        """
        import numpy as np

        generator = np.random.SFC64(np.random.SeedSequence((self.rank, self.bucket, self.stream, self.calls)))
        self.calls += 1
        longest, total, begin = max(lengths, default=0), sum(lengths), 0
        per_word = 8 // np.dtype(dtype).itemsize
        tables = []
        for period in TABLE_LENGTHS:
            table = generator.random_raw(-(-min(period, total) // per_word)).view(dtype)[:period]
            tables.append(np.tile(table, 1 + -(-longest // period)) if total > period else table)
        numbers = np.empty(longest, dtype)
        for length in lengths:
            first, second = (tables[i][begin % TABLE_LENGTHS[i] :][:length] for i in range(2))
            yield np.add(first, second, out=numbers[:length])
            begin += length

    def state_dict(self) -> dict[str, torch.Tensor]:
        """How many calls have been made."""
        import torch

        return {"calls": torch.tensor(self.calls, dtype=torch.int64)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Go on behind as many calls; from the start again where ``state`` is empty."""
        self.calls = int(state["calls"]) if state else 0
