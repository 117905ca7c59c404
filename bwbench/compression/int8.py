"""8 bits an element on a grid between the smallest and the largest value, as Bagua's ByteGrad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from bwbench.compression.blocks import AbstractBlockCodec, reciprocal
from bwbench.compression.memory import PIECE, Scratch
from bwbench.config.component import ComponentConfig

if TYPE_CHECKING:
    import torch

LARGEST_CODE = 255
EPSILON = 1e-7  # of Bagua: keeps a constant tensor from dividing by zero
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
    error_feedback: bool = False


class Int8(AbstractBlockCodec):
    """MinMaxUInt8 of Bagua (Gan et al. 2021): zero lies on the grid, so that zeros stay zeros.

    scale = 255 / (max - min + epsilon), upper = rint(max·scale), lower = upper - 255, and a value x is sent as
    rint(x·scale) - lower. With Bagua's absolute epsilon gradients of 1e-9 keep some 20 levels only and smaller ones
    none; the relative one keeps all 256 down to 1e-36. Rounding to nearest is unbiased enough that no residual is kept.
    """

    Config = Int8Config
    scales_per_block = 2  # lower, and 1/scale
    measures_per_block = 2  # largest and smallest value
    options: Int8Config

    def _block(self, num_elements: int) -> int:
        return self.options.block or max(1, num_elements)

    def _code_bytes(self, num_elements: int) -> int:
        return num_elements

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        import torch

        torch.amax(rows, dim=1, out=measures[0])
        torch.amin(rows, dim=1, out=measures[1])

    def _merge(self, measures: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.stack([measures[0].amax(), measures[1].amin()]).view(2, 1)

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        import torch

        high, low = measures.double()
        epsilon = EPSILON * torch.maximum(high, -low) if self.options.epsilon == "relative" else EPSILON
        step = (high - low + epsilon) / LARGEST_CODE
        step = torch.where(step < SMALLEST_STEP, (step > 0) * SMALLEST_STEP, step).float()
        upper = (measures[0] * reciprocal(step)).round()
        return torch.stack([upper - LARGEST_CODE, step])

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.stack([0.5 - scales[0], reciprocal(scales[1])])  # a half above, then cut off: rounding

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        import torch

        values = torch.mul(rows, factors[1], out=room.like(rows)).add_(factors[0])
        values.clamp_(0, LARGEST_CODE)  # also where fp32 no longer tells the steps of a nearly constant tensor apart
        shorts = room.shorts[: rows.numel()].copy_(values.view(-1))  # torch is slow from fp32 to 8 bits directly
        torch.from_numpy(codes).copy_(shorts)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        import torch

        rows.view(-1).copy_(torch.from_numpy(codes))
        # Not as one product and one offset: this way the code of zero gives zero, to the last bit.
        rows.add_(factors[0]).mul_(factors[1])
