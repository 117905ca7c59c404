"""Codecs of fixed size that work block by block: a few scales for each block, a few bits for each element."""

from __future__ import annotations

import abc
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from bwbench.methods.buffers import PIECE, Scratch, array_of, empty_bytes, empty_fp32, scratch, tensor_of
from bwbench.methods.compression.codec import AbstractCodec, as_flat_fp32
from bwbench.methods.deferred import np, torch

SMALLEST_SCALE = 2.0**-126  # the smallest normal number: the reciprocal of a smaller one would be infinite


class Piece(NamedTuple):
    """Whole blocks that are worked on together, or a part of one block that is larger than a piece.

    Attributes:
        elements: its place in the tensor.
        blocks: its scales among all.
        codes: its bytes behind the scales.
    """

    elements: slice
    blocks: slice
    codes: slice

    def rows(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements of a vector, in the shape [num_blocks, width]."""
        return flat[self.elements].view(self.blocks.stop - self.blocks.start, -1)


class _HasBlock(Protocol):
    block: int


class AbstractBlockCodec(AbstractCodec):
    """Payload: the scales of all blocks, then the codes of all elements, piece by piece. Its size is exact.

    Not for a ring: the scales of a sum differ at every hop, so that everything would be rounded anew N-1 times.
    What happens once a tensor (from measures to scales to factors) and once a piece is kept apart, because a call of
    torch takes as long as a pass over a third of a piece.
    """

    sums_on_ring = False
    scale_type: ClassVar[str] = "float32"  # torch's name for it
    scales_per_block: ClassVar[int] = 1
    measures_per_block: ClassVar[int] = 1

    def _block(self, num_elements: int) -> int:
        """Elements that share scales; larger than a piece only where one block holds everything.

        By default the option ``block``.
        """
        return cast(_HasBlock, self.options).block

    @property
    def _base(self) -> int:
        """How many codes there are for an element; as many elements to a byte as fit."""
        return 256

    def _code_bytes(self, num_elements: int) -> int:
        """Bytes for the codes of one piece."""
        return packed_bytes(num_elements, self._base)

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        """Write what the scales of a piece follow from into ``measures``: by default the largest magnitudes.

        Args:
            rows: fp32 of shape [num_blocks, width]. Not changed. A block larger than a piece comes as a whole.
            measures: fp32 of shape [measures_per_block, num_blocks], to be filled.
            room: to work in.
        """
        torch.amax(room.magnitudes(rows), dim=1, out=measures[0])

    @abc.abstractmethod
    def _encode_piece(self, rows: torch.Tensor, factors: torch.Tensor, codes: Any, room: Scratch, noise: Any) -> None:
        """Write the codes of a piece.

        Args:
            rows: fp32 of shape [num_blocks, width]. Not changed.
            factors: of these blocks: what ``_encoding`` gave, of shape [·, num_blocks, 1].
            codes: numpy uint8 of shape [_code_bytes], to be filled.
            room: to work in.
            noise: what ``_noise`` gave for this piece.
        """

    @abc.abstractmethod
    def _decode_piece(self, codes: Any, factors: torch.Tensor, rows: torch.Tensor, room: Scratch) -> None:
        """Write the values of a piece into ``rows``, fp32 of shape [num_blocks, width], which may be ``room.floats``.

        ``factors`` is what ``_decoding`` gave, of shape [·, num_blocks, 1].
        """

    def _decoded_at_once(self, scales: torch.Tensor, codes: Any, values: torch.Tensor, *, add: bool) -> bool:
        """Write all values, or add them, compiled; false, and nothing is changed, where that does not go.

        ``scales`` as they are stored, of shape [scales_per_block, num_blocks].
        """
        return False

    def _scales(self, measures: torch.Tensor) -> torch.Tensor:
        """The scales of all blocks: fp32 of shape [scales_per_block, num_blocks], exact in ``scale_type``."""
        return measures

    def _encoding(self, scales: torch.Tensor) -> torch.Tensor:
        """What encoding needs of the scales, [·, num_blocks]."""
        return scales

    def _decoding(self, scales: torch.Tensor) -> torch.Tensor:
        """What decoding needs of the scales, [·, num_blocks]."""
        return scales

    def _noise(self, lengths: Sequence[int]) -> Iterator[Any]:
        """Called once a tensor: what each piece of these lengths needs of random numbers. Nothing here."""
        return itertools.repeat(None)

    def payload_bytes(self, num_elements: int) -> int:
        """Scales and packed codes, exactly."""
        block = self._block(num_elements)
        piece = _piece_elements(block)
        full, rest = divmod(num_elements, piece)
        ragged = rest % block if block <= PIECE else 0
        codes = full * self._code_bytes(piece) + self._code_bytes(rest - ragged) + self._code_bytes(ragged)
        return self._scale_bytes(num_elements) + codes

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Scales and codes."""
        x = as_flat_fp32(x)
        num_elements, room = x.numel(), scratch()
        pieces = list(self._pieces(num_elements))
        measures = torch.empty(self.measures_per_block, self._num_blocks(num_elements))
        if self._block(num_elements) > PIECE:
            self._measure(x.view(1, -1), measures, room)
        else:
            for piece in pieces:
                self._measure(piece.rows(x), measures[:, piece.blocks], room)
        scales = self._scales(measures)
        factors = self._encoding(scales).unsqueeze(-1)
        payload = empty_bytes(self.payload_bytes(num_elements))
        stored, codes = self._split(payload, num_elements)
        stored.copy_(scales)
        noises = self._noise([piece.elements.stop - piece.elements.start for piece in pieces])
        for piece, noise in zip(pieces, noises):  # noqa: B905 (noise may have no end)
            self._encode_piece(piece.rows(x), factors[:, piece.blocks], codes[piece.codes], room, noise)
        return payload

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """Codes times scales."""
        values = empty_fp32(num_elements)
        scales, codes = self._split(payload, num_elements)
        if self._decoded_at_once(scales, codes, values, add=False):
            return values
        room, factors = scratch(), self._decoding(scales.float()).unsqueeze(-1)
        for piece in self._pieces(num_elements):
            self._decode_piece(codes[piece.codes], factors[:, piece.blocks], piece.rows(values), room)
        return values

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add the values to ``total``, without room for all of them."""
        scales, codes = self._split(payload, total.numel())
        if self._decoded_at_once(scales, codes, total, add=True):
            return
        room, factors = scratch(), self._decoding(scales.float()).unsqueeze(-1)
        for piece in self._pieces(total.numel()):
            total_rows = piece.rows(total)
            rows = room.like(total_rows)
            self._decode_piece(codes[piece.codes], factors[:, piece.blocks], rows, room)
            total_rows += rows

    def _split(self, payload: torch.Tensor, num_elements: int) -> tuple[torch.Tensor, Any]:
        """Views of a payload: scales of shape [scales_per_block, num_blocks], codes as numpy uint8."""
        scale_bytes = self._scale_bytes(num_elements)
        scales = payload[:scale_bytes].view(getattr(torch, self.scale_type))
        return scales.view(self.scales_per_block, -1), array_of(payload[scale_bytes:])

    def _scale_bytes(self, num_elements: int) -> int:
        bytes_each = {"float32": 4, "bfloat16": 2}[self.scale_type]
        return bytes_each * self.scales_per_block * self._num_blocks(num_elements)

    def _num_blocks(self, num_elements: int) -> int:
        return -(-num_elements // self._block(num_elements))

    def _pieces(self, num_elements: int) -> Iterator[Piece]:
        """Of whole blocks, a shorter last block by itself."""
        block = self._block(num_elements)
        length = _piece_elements(block)
        whole = num_elements if block > PIECE else num_elements // block * block
        spans = [(begin, min(begin + length, whole)) for begin in range(0, whole, length)]
        spans += [(whole, num_elements)] if whole < num_elements else []
        first_byte = 0
        for begin, end in spans:
            blocks = slice(0, 1) if block > PIECE else slice(begin // block, -(-end // block))
            num_bytes = self._code_bytes(end - begin)
            yield Piece(slice(begin, end), blocks, slice(first_byte, first_byte + num_bytes))
            first_byte += num_bytes


def _piece_elements(block: int) -> int:
    """Elements of all pieces but the last ones: as many whole blocks as fit."""
    return PIECE if block > PIECE else PIECE // block * block


def reciprocal(scales: Any) -> Any:
    """1/scale of a numpy array; 0 for a scale of 0 or infinity, NaN for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scales == 0, scales, 1 / scales)


def up_to_bits(values: Any, bits: int) -> Any:
    """The smallest numbers with significands of ``bits`` bits that are not below ``values``.

    numpy fp32, at least 0; NaN stays.
    """
    dropped = np.int32((1 << (24 - bits)) - 1)
    return ((values.view(np.int32) + dropped) & ~dropped).view(np.float32)


def up_to_bf16(scales: torch.Tensor) -> torch.Tensor:
    """The smallest bfloat16 values not below ``scales`` (fp32, >= 0), as fp32; NaN stays.

    Upwards, so that no element lies beyond the largest code. bfloat16 costs as little as fp16 and has the range of
    fp32, which gradients of 1e-20 need. Scales below the smallest normal number become 0.
    """
    rounded = up_to_bits(array_of(scales), 8)
    return tensor_of(np.where(rounded < SMALLEST_SCALE, np.float32(0), rounded))


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
    parts = numbers[: len(out) * digits_per_byte(base)].reshape(digits_per_byte(base), -1)
    out[:] = parts[-1]
    for part in parts[-2::-1]:
        np.multiply(out, np.uint8(base), out=out)
        np.add(out, part, out=out)


def unpack(packed: Any, base: int, numbers: Any) -> None:
    """What ``pack`` was given: ``packed`` to ``numbers``, shapes and types as there."""
    parts = numbers[: len(packed) * digits_per_byte(base)].reshape(digits_per_byte(base), -1)
    rest = packed
    for part in parts[:-1]:
        higher = rest // np.uint8(base)
        np.multiply(higher, np.uint8(base), out=part)
        np.subtract(rest, part, out=part)
        rest = higher
    parts[-1] = rest


def expand_signs(codes: Any, values: torch.Tensor) -> None:
    """Write 1 for each 0 bit and -1 for each 1 bit into ``values``, fp32; of the last byte as many as there is room.

    ``codes`` is numpy uint8, as ``np.packbits`` gives it.
    """
    flat = array_of(values.view(-1))
    whole = len(flat) // 8
    # mode: without "clip" numpy makes a copy first, in case an index is out of range.
    np.take(_signs_of_bytes(), codes[:whole], axis=0, out=flat[: 8 * whole].reshape(-1, 8), mode="clip")
    if whole < len(codes):
        flat[8 * whole :] = _signs_of_bytes()[codes[whole]][: len(flat) - 8 * whole]


@functools.cache
def _signs_of_bytes() -> Any:
    """fp32 of shape [256, 8]."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)
    return np.float32(1) - np.float32(2) * bits.astype(np.float32)
