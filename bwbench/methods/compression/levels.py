"""Stochastic rounding to a few levels of a scale: what QSGD and TernGrad have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from bwbench.methods.compression.base import Shape
from bwbench.methods.compression.blocks import AbstractBlockCodec, reciprocal, up_to_bf16
from bwbench.methods.compression.digits import pack, packed_bytes, unpack
from bwbench.methods.compression.memory import Scratch
from bwbench.methods.compression.rounding import Dither

if TYPE_CHECKING:
    import torch


class AbstractStochasticCodec(AbstractBlockCodec):
    """Unbiased by rounding at random: the mean of many decoded payloads of a tensor is that tensor.

    Random numbers differ between ranks, so that errors average out over nodes as well as over steps. The only memory
    is the number of calls.
    """

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._dither = Dither()

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Take rank and bucket for the seed."""
        self._dither.rank, self._dither.bucket = rank, bucket

    def fresh(self) -> Self:
        """A codec that has not been called yet and will draw the same numbers."""
        return self._with(self._dither.stream)

    def answering(self) -> Self:
        """A codec that draws other numbers: the rounding of a mean must not follow that of its summands."""
        return self._with(self._dither.stream + 1)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """``calls``: how often this codec has drawn random numbers."""
        return self._dither.state_dict()

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Go on where that count was; from the start where ``state`` is empty."""
        self._dither.load_state_dict(state)

    def _with(self, stream: int) -> Self:
        other = copy.copy(self)
        other._dither = self._dither.other(stream)
        return other


class AbstractLevelsCodec(AbstractStochasticCodec):
    """A value x of a block with the scale c becomes a multiple of c/s: the one below or above, x on average.

    s is the number of levels a sign. Payload: a bfloat16 scale a block, then numbers from 0 to 2s, as many to a byte as
    fit. Rounding the scale up to bfloat16 costs nothing in bias, because values are rounded relative to what is sent.
    """

    scale_type = "bfloat16"

    @property
    def _levels(self) -> int:
        raise NotImplementedError

    @property
    def _base(self) -> int:
        return 2 * self._levels + 1

    def _code_bytes(self, num_elements: int) -> int:
        return packed_bytes(num_elements, self._base)

    def _noise(self, lengths: Sequence[int]) -> Iterator[Any]:
        return self._dither.integers(lengths, "int16")

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        return up_to_bf16(measures)

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        import numpy as np
        import torch

        return torch.from_numpy(reciprocal(scales.numpy()) * np.float32(self._levels))

    def _decoding(self, scales: torch.Tensor) -> torch.Tensor:
        return scales / self._levels

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        import torch

        values = torch.mul(rows, factors[0], out=room.like(rows)).view(-1)
        uniform = room.more_floats[: rows.numel()].copy_(torch.from_numpy(noise))
        # The integer below (value + a random number from 0 to 1). Shifted by s, which makes cutting off rounding down.
        values.add_(uniform, alpha=2.0**-16).add_(torch.tensor(self._levels + 0.5 + 2.0**-17)).clamp_(0, self._base - 1)
        pack(room.to_numbers(values), self._base, codes)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        unpack(codes, self._base, room.numbers.numpy())
        room.from_numbers(self._levels, rows)
        rows.mul_(factors[0])
