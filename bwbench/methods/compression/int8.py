"""8 bits an element on a grid between the smallest and the largest value; 4 bits on one around zero."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import PIECE, Scratch, array_of, empty_bytes, tensor_of
from bwbench.methods.compression.blocks import AbstractBlockCodec, pack, reciprocal, unpack, up_to_bf16, up_to_bits
from bwbench.methods.compression.codec import as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.deferred import np, torch
from bwbench.methods.native import native

LARGEST_CODE = 255
EPSILON = 1e-7  # of Bagua: keeps a constant tensor from dividing by zero
# Of the significand of a step: its product with a number of 8 bits is then exact, and the code of zero gives zero.
STEP_BITS = 16
SMALLEST_STEP = 1e-38  # a smaller one would have no reciprocal in fp32


class Int8Config(ComponentConfig):
    """Options of ``int8``.

    Attributes:
        block: elements that share one smallest and one largest value; None: the whole tensor.
        epsilon: what is added to the range: 1e-7 times the largest magnitude, or 1e-7 itself as Bagua does.
        error_feedback: keep what rounding loses and add it to the next gradient.
    """

    block: int | None = Field(None, ge=8, le=PIECE)
    epsilon: Literal["relative", "bagua"] = "relative"
    error_feedback: Feedback = False


class Int8(AbstractBlockCodec):
    """MinMaxUInt8 of Bagua (Gan et al. 2021): zero lies on the grid, so that zeros stay zeros.

    scale = 255 / (max - min + epsilon), upper = rint(max·scale), lower = upper - 255, and a value x is sent as
    rint(x·scale) - lower. With Bagua's absolute epsilon gradients of 1e-9 keep some 20 levels only and smaller ones
    none; the relative one keeps all 256 down to 1e-36. 1/scale is rounded up to 16 bits. Rounding to nearest is
    unbiased enough that no residual is kept.
    """

    Config = Int8Config
    scales_per_block = 2  # lower, and 1/scale
    measures_per_block = 2  # largest and smallest value
    options: Int8Config

    def _block(self, num_elements: int) -> int:
        return self.options.block or max(1, num_elements)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Lower ends and steps, and the codes."""
        x = as_flat_fp32(x)
        if (compiled := native()) is not None and compiled.fuses:
            payload = empty_bytes(self.payload_bytes(x.numel()))
            scales, codes = self._split(payload, x.numel())
            block, relative = self._block(x.numel()), self.options.epsilon == "relative"
            separate = self._blocks_in_company(x.numel())
            if compiled.to_codes(x, block, EPSILON, scales, tensor_of(codes), relative=relative, separate=separate):
                return payload
        return super().encode(x)

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        torch.amax(rows, dim=1, out=measures[0])
        torch.amin(rows, dim=1, out=measures[1])

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        # numpy, because a call of torch takes twice as long, and with one block all of this is calls.
        high, low = array_of(measures).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            epsilon = EPSILON * np.maximum(high, -low) if self.options.epsilon == "relative" else EPSILON
            step = (high - low + epsilon) / LARGEST_CODE
            step = up_to_bits(np.where(step == 0, 0, np.maximum(step, SMALLEST_STEP)).astype(np.float32), STEP_BITS)
            upper = np.rint(array_of(measures[0]) * reciprocal(step))
        return tensor_of(np.stack([upper - np.float32(LARGEST_CODE), step]))

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        lower, step = array_of(scales)
        return tensor_of(np.stack([np.float32(0.5) - lower, reciprocal(step)]))  # half above, cut off: rounding

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        values = room.like(rows)
        if len(rows) == 1:
            torch.add(factors[0], rows, alpha=factors[1].item(), out=values)
        else:
            torch.mul(rows, factors[1], out=values).add_(factors[0])
        shorts = room.shorts[: rows.numel()].copy_(values.view(-1))  # torch is slow from fp32 to 8 bits directly
        # One beyond either end by rounding, more where fp32 cannot tell the steps of a nearly constant tensor apart.
        tensor_of(codes).copy_(shorts.clamp_(0, LARGEST_CODE))

    def _blocks_in_company(self, num_elements: int) -> int:
        """How many blocks, from the first one on, share a piece with others: their products are rounded first."""
        block = self._block(num_elements)
        a_piece, whole = PIECE // block, num_elements // block
        return 0 if a_piece < 2 else whole - (whole % a_piece == 1)

    def _decoding(self, scales: torch.Tensor) -> torch.Tensor:
        return torch.stack([scales[0] * scales[1], scales[1]])

    def _decoded_at_once(self, scales: torch.Tensor, codes: Any, values: torch.Tensor, *, add: bool) -> bool:
        compiled, block = native(), self._block(values.numel())
        return compiled is not None and compiled.from_codes(tensor_of(codes), block, scales, values, add=add)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        rows.view(-1).copy_(tensor_of(codes))
        if len(rows) == 1:
            torch.add(factors[0], rows, alpha=factors[1].item(), out=rows)
        else:
            rows.mul_(factors[1]).add_(factors[0])


_LARGEST_NIBBLE = 7


class Int4Config(ComponentConfig):
    """Options of ``int4``.

    Attributes:
        block: elements that share a scale. 128: the scales add 1/8 bit an element; the largest of 128 normal values is
            2.7 standard deviations, so that a step is 0.39 of them.
        error_feedback: keep what rounding loses and add it to the next gradient.
    """

    block: int = Field(128, ge=8, le=PIECE)
    error_feedback: Feedback = True


class Int4(AbstractBlockCodec):
    """Rounds to the nearest of -7 … 7 times the block's scale. Payload: a bfloat16 scale a block, two values a byte.

    Symmetric rather than between minimum and maximum, because gradients are, because zero is then sent as zero and
    because one scale a block suffices. No error is larger than the value itself, so error feedback converges
    (Karimireddy et al. 2019: a contraction). Values below half a step, a fifth of a standard deviation, would be lost
    in every step: hence the residual.
    """

    Config = Int4Config
    biased = True
    scale_type = "bfloat16"
    _base = 16
    options: Int4Config

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        return up_to_bf16(measures / _LARGEST_NIBBLE)

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        return tensor_of(reciprocal(array_of(scales)))

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        values = torch.mul(rows, factors[0], out=room.like(rows))
        values.add_(torch.tensor(_LARGEST_NIBBLE + 0.5))  # cutting off is then rounding: all are positive
        pack(room.to_numbers(values), self._base, codes)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        unpack(codes, self._base, array_of(room.numbers))
        room.from_numbers(_LARGEST_NIBBLE, rows)
        rows.mul_(factors[0])
