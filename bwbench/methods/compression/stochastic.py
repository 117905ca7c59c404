"""Rounding at random, right on average: to a few levels of a block's scale (QSGD, TernGrad), or to powers of two."""

from __future__ import annotations

import abc
import copy
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field
from typing_extensions import Self

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import PIECE, Scratch, array_of, tensor_of
from bwbench.methods.compression.blocks import AbstractBlockCodec, pack, reciprocal, unpack, up_to_bf16
from bwbench.methods.compression.codec import Shape
from bwbench.methods.deferred import np, torch

TABLE_LENGTHS = (32_768, 32_749)  # a power of two and a prime: the sums repeat after 10^9


class AbstractStochasticCodec(AbstractBlockCodec):
    """Unbiased by rounding at random: the mean of many decoded payloads of a tensor is that tensor.

    Random numbers differ between ranks, so that errors average out over nodes as well as over steps. They come from a
    generator that is seeded by rank, bucket, stream (which tells several codecs of one rank and bucket apart) and
    number of the call: nothing but the number of calls has to be kept for a training to go on as if it had not been
    interrupted.
    """

    _rank = _bucket = _stream = _calls = 0

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Take rank and bucket for the seed."""
        self._rank, self._bucket = rank, bucket

    def answering(self) -> Self:
        """A codec that draws other numbers: the rounding of a mean must not follow that of its summands."""
        other = copy.copy(self)
        other._stream, other._calls = self._stream + 1, 0
        return other

    def state_dict(self) -> dict[str, torch.Tensor]:
        """``calls``: how often this codec has drawn random numbers."""
        return {"calls": torch.tensor(self._calls, dtype=torch.int64)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Go on where that count was; from the start where ``state`` is empty."""
        self._calls = int(state["calls"]) if state else 0

    def _integers(self, lengths: Sequence[int], dtype: Literal["int16", "int32"]) -> Iterator[Any]:
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
        generator = np.random.SFC64(np.random.SeedSequence((self._rank, self._bucket, self._stream, self._calls)))
        self._calls += 1
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


class AbstractLevelsCodec(AbstractStochasticCodec):
    """A value x of a block with the scale c becomes a multiple of c/s: the one below or above, x on average.

    s is the number of levels a sign. Payload: a bfloat16 scale a block, then numbers from 0 to 2s, as many to a byte as
    fit. Rounding the scale up to bfloat16 costs nothing in bias, because values are rounded relative to what is sent.
    """

    scale_type = "bfloat16"

    @property
    @abc.abstractmethod
    def _levels(self) -> int: ...

    @property
    def _base(self) -> int:
        return 2 * self._levels + 1

    def _noise(self, lengths: Sequence[int]) -> Iterator[Any]:
        return self._integers(lengths, "int16")

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        return up_to_bf16(measures)

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        return tensor_of(reciprocal(array_of(scales)) * np.float32(self._levels))

    def _decoding(self, scales: torch.Tensor) -> torch.Tensor:
        return scales / self._levels

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        values = torch.mul(rows, factors[0], out=room.like(rows)).view(-1)
        uniform = room.more_floats[: rows.numel()].copy_(tensor_of(noise))
        # The integer below (value + a random number from 0 to 1). Shifted by s, which makes cutting off rounding down.
        values.add_(uniform, alpha=2.0**-16).add_(torch.tensor(self._levels + 0.5 + 2.0**-17)).clamp_(0, self._base - 1)
        pack(room.to_numbers(values), self._base, codes)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        unpack(codes, self._base, array_of(room.numbers))
        room.from_numbers(self._levels, rows)
        rows.mul_(factors[0])


class QsgdConfig(ComponentConfig):
    """Options of ``qsgd``.

    Attributes:
        levels: s, of each sign; with zero 2s + 1 different values: 7 take 4 bits an element, 1 takes 1.6, 127 take 8.
        block: elements that share a norm; 512 as in the paper's experiments (there a bucket).
        norm: what levels are parts of: the largest magnitude, as in the paper's experiments, or the Euclidean norm of
            its theory.
    """

    levels: int = Field(7, ge=1, le=127)
    block: int = Field(512, ge=8, le=PIECE)
    norm: Literal["max", "l2"] = "max"


class Qsgd(AbstractLevelsCodec):
    """Alistarh et al. 2017: x becomes norm · sign(x) · l/s, l one of the two integers around s|x|/norm, x on average.

    Levels are packed at a fixed size where the paper uses Elias codes, whose length depends on the values.
    """

    Config = QsgdConfig
    options: QsgdConfig

    @property
    def _levels(self) -> int:
        return self.options.levels

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        if self.options.norm == "max":
            super()._measure(rows, measures, room)
        else:
            # Of fp64 sums, as the square of 1e-20 or 1e20 is none of fp32's numbers.
            measures[0].copy_(torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64))


class TernGradConfig(ComponentConfig):
    """Options of ``terngrad``.

    Attributes:
        block: elements that share a scale.
        clip: first cut values off at so many standard deviations of their block, 2.5 in the paper: less noise, but
            what is cut off is lost for good. None: nothing is cut off, and the codec is unbiased.
    """

    block: int = Field(512, ge=8, le=PIECE)
    clip: float | None = Field(None, gt=0.0)


class TernGrad(AbstractLevelsCodec):
    """Wen et al. 2017: sign(x)·c with probability \\|x\\|/c, else 0, where c is the largest magnitude of the block.

    Five elements share a byte (3^5 = 243).
    """

    Config = TernGradConfig
    options: TernGradConfig
    _levels = 1

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        super()._measure(rows, measures, room)
        if self.options.clip is not None and rows.shape[1] > 1:
            deviation = rows.double().std(dim=1, correction=0)
            # A constant block has no deviation; nothing of it is an outlier.
            limit = torch.where(deviation > 0, self.options.clip * deviation, float("inf"))
            torch.where(measures[0].isfinite(), torch.minimum(measures[0], limit.float()), measures[0], out=measures[0])


_NATURAL_BLOCK = 4096  # elements that share a range of exponents; 2 bytes of scale for 4096 of codes


class Natural(AbstractStochasticCodec):
    """Horváth et al. 2019: \\|x\\| becomes the power of two below or above it, x on average; variance at most x²/8.

    A byte holds the sign and 7 bits of exponent, relative to a power of two above the block's largest magnitude, which
    is sent as bfloat16. Values 2^126 times smaller than that become zero, zero stays zero. Finite values beyond 2^127
    become 2^127; a block with an infinity or NaN becomes infinite or NaN throughout.
    """

    scale_type = "bfloat16"

    def _block(self, num_elements: int) -> int:
        return _NATURAL_BLOCK

    def _noise(self, lengths: Sequence[int]) -> Iterator[Any]:
        return self._integers(lengths, "int32")

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        exponents = torch.frexp(measures).exponent.clamp(-126, 127)
        powers = ((exponents + 127) << 23).view(torch.float32)
        return torch.where(measures.isfinite(), powers, measures)

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        return 1.0 / scales  # exact: powers of two

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        values = torch.mul(rows, factors[0], out=room.like(rows)).clamp_(-1.0, 1.0)
        bits = array_of(values.view(-1)).view(np.int32)
        # 23 random bits carry from the mantissa into the exponent with the probability that the mantissa says.
        np.add(bits, np.right_shift(noise.view(np.uint32), 9, out=noise.view(np.uint32)), out=bits)
        np.right_shift(bits, 23, out=bits)  # sign and exponent; the exponent is at most 127, of power 0
        shorts = array_of(room.shorts[: rows.numel()].copy_(tensor_of(bits)))
        signs = np.bitwise_and(np.right_shift(shorts, 1), np.int16(0x80))
        np.bitwise_or(shorts, signs, out=shorts)
        tensor_of(codes).copy_(tensor_of(shorts))

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        # Bits of a bfloat16: sign, exponent, an empty mantissa. The sign's copies come from reading it as an int8.
        shorts = room.shorts[: rows.numel()]
        bits = array_of(shorts.copy_(tensor_of(codes.view(np.int8))))
        np.left_shift(bits, 7, out=bits)
        np.bitwise_and(bits, np.int16(~0x4000), out=bits)
        rows.view(-1).copy_(shorts.view(torch.bfloat16))
        rows.mul_(factors[0])
