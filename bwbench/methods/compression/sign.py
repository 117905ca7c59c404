"""One bit an element, the sign, with the mean magnitude of each block; or two, with two magnitudes of it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import PIECE, Scratch, array_of, empty_bytes, tensor_of
from bwbench.methods.compression.blocks import AbstractBlockCodec, expand_signs
from bwbench.methods.compression.codec import as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.deferred import np, torch
from bwbench.methods.native import LARGEST_BLOCK, Native, native


class SignConfig(ComponentConfig):
    """Options of ``sign``.

    Attributes:
        block: elements that share one magnitude; 1024 add 1/32 bit an element.
        error_feedback: keep what the signs leave out and add it to the next gradient.
    """

    block: int = Field(1024, ge=8, le=PIECE)
    error_feedback: Feedback = True


class Sign(AbstractBlockCodec):
    """x becomes sign(x) · mean \\|x\\| of its block; zero counts as positive.

    Payload: an fp32 a block, eight signs a byte. After Karimireddy et al. 2019 (scaled sign with error feedback) and
    Seide et al. 2014 (1-bit SGD). The mean magnitude is the scale that leaves the smallest residual.
    """

    Config = SignConfig
    biased = True
    late_residual = True
    _base = 2
    options: SignConfig

    @property
    def _compiled(self) -> Native | None:
        """What does all of this in one pass; None where blocks do not end with a byte, or it would add up otherwise."""
        block, found = self.options.block, native()
        return found if found is not None and found.sums_alike and block % 8 == 0 and block <= LARGEST_BLOCK else None

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Mean magnitudes and signs."""
        x = as_flat_fp32(x)
        if (compiled := self._compiled) is not None:
            payload = empty_bytes(self.payload_bytes(x.numel()))
            means, codes = self._split(payload, x.numel())
            if compiled.to_signs(x, self.options.block, means, tensor_of(codes)) == x.numel():
                return payload
        return super().encode(x)

    def encode_keeping_excess(self, x: torch.Tensor, excess: torch.Tensor) -> torch.Tensor | None:
        """Mean magnitudes and signs of what is left of ``x``; three passes less over memory."""
        if (compiled := self._compiled) is None:
            return None
        block, payload = self.options.block, empty_bytes(self.payload_bytes(x.numel()))
        means, codes = self._split(payload, x.numel())
        done = compiled.to_signs_with_excess(x, excess, block, means, tensor_of(codes))
        if done < x.numel():  # something not finite, from this block on
            total = torch.sub(x[done:], excess[done:], out=excess[done:])
            rest = super().encode(total)
            means_of_rest, codes[done // 8 :] = self._split(rest, total.numel())
            means[:, done // block :].copy_(means_of_rest)
            self.decode_add(rest, total.neg_())
        return payload

    def _decoded_at_once(self, scales: torch.Tensor, codes: Any, values: torch.Tensor, *, add: bool) -> bool:
        compiled, block = self._compiled, self.options.block
        return compiled is not None and compiled.from_signs(tensor_of(codes), block, scales, values, add=add)

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        torch.mean(room.magnitudes(rows), dim=1, out=measures[0])

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        codes[:] = np.packbits(array_of(rows.view(-1)) < 0)

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        expand_signs(codes, rows)
        rows.mul_(factors[0])


class Int2Config(ComponentConfig):
    """Options of ``int2``.

    Attributes:
        block: elements that share two magnitudes; 512 add 1/8 bit an element.
        error_feedback: keep what is lost and add it to the next gradient.
    """

    block: int = Field(512, ge=8, le=PIECE)
    error_feedback: Feedback = True


class Int2(AbstractBlockCodec):
    """Magnitudes below the mean of a block become the mean of these, all others the mean of those; signs are kept.

    Payload: two fp32 a block, a bit an element for the sign, a bit for the magnitude. The four values follow from the
    block itself, and each is the mean of what it stands for: the residual is shorter than the vector, whatever it looks
    like, which error feedback needs, and of normal values 12 % of the energy remain (the best four values leave
    11.75 %: Max 1960). Three even steps, -1, 0 and 1 times the largest magnitude, would leave some 40 %.
    """

    Config = Int2Config
    biased = True
    scales_per_block = 2  # the smaller and the larger magnitude
    measures_per_block = 2  # the same
    options: Int2Config

    def _code_bytes(self, num_elements: int) -> int:
        return 2 * -(-num_elements // 8)

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        magnitudes = room.magnitudes(rows)
        mean = magnitudes.mean(dim=1, keepdim=True)
        is_large = room.more_floats[: rows.numel()].view(rows.shape)
        is_large.copy_(tensor_of(array_of(magnitudes) >= array_of(mean)))
        count = is_large.sum(dim=1)
        large = magnitudes.mul_(is_large).sum(dim=1)
        measures[0] = (mean.view(-1) * rows.shape[1] - large).clamp_(min=0) / (rows.shape[1] - count).clamp_(min=1)
        measures[1] = large / count

    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        signs, sizes = codes.reshape(2, -1)
        signs[:] = np.packbits(array_of(rows.view(-1)) < 0)
        middle = (factors[0] + factors[1]) / 2
        sizes[:] = np.packbits(array_of(room.magnitudes(rows)) < array_of(middle))

    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        signs, sizes = codes.reshape(2, -1)
        expand_signs(sizes, rows)
        rows.mul_((factors[1] - factors[0]) / 2).add_((factors[0] + factors[1]) / 2)
        plus_or_minus = room.more_floats[: rows.numel()].view(rows.shape)
        expand_signs(signs, plus_or_minus)
        rows.mul_(plus_or_minus)
