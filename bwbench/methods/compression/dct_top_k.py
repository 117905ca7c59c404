"""The largest frequencies of each block: tensors go through a cosine transform block by block, few coefficients go on.

A block of a gradient whose neighbours vary together has most of its energy in few frequencies, wherever in the block it
lies; the largest entries by themselves would be as many as the block is wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import array_of, empty_fp32
from bwbench.methods.compression.codec import Shape, as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.compression.sparse import AbstractSparseCodec, top_k_by_chunk
from bwbench.methods.deferred import np, torch

SMALLEST_SHARE = 8  # a length without a divisor from an eighth of a block up to a whole one is cut unevenly


class DctTopKConfig(ComponentConfig):
    """Options of ``dct-top-k``.

    Attributes:
        k: coefficients of each block that are sent; all of a block that has no more. The paper's 32.
        block: largest height and width of a block, 64 in the paper: 32 of 64 times 64 are 0.8 %.
        error_feedback: keep what is not sent and add it to the next gradient. DeMo's momentum is one that is kept
            ``{in: update, decay: 0.999}``.
    """

    k: int = Field(32, ge=1)
    block: int = Field(64, ge=2, le=512)
    error_feedback: Feedback = True


class DctTopK(AbstractSparseCodec):
    """The ``k`` largest coefficients of each block's DCT-II, after Peng, Quesnelle and Kingma 2024 (DeMo).

    The transform is orthonormal: what is left out is as long in one domain as in the other, and the largest
    coefficients are the best ``k``. Coefficients lie block behind block, and are packed as entries are. Receivers
    transform back. NaN and infinity make their whole block NaN, which is seen.

    What is decoded depends on the order in which a product of matrices sums up: replicas are bit-equal where all nodes
    have the same kind of processor and as many threads.
    """

    Config = DctTopKConfig
    options: DctTopKConfig

    _shapes: tuple[Shape, ...] = ()

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Learn which tensors lie in the vectors to come."""
        super().prepare(shapes, rank, bucket)
        self._shapes = tuple(map(tuple, shapes))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Header, values and places of the coefficients that are sent."""
        x = as_flat_fp32(x)
        coefficients = self._layout(x.numel()).transformed(x)
        return self._packed(coefficients, self._selected(array_of(coefficients)))

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The blocks that these coefficients make."""
        return self._layout(num_elements).restored(super().decode(payload, num_elements))

    def decode_add(self, payload: torch.Tensor, total: torch.Tensor) -> None:
        """Add them to ``total``: as much work as for a whole tensor, however few were sent."""
        total += self.decode(payload, total.numel())

    def _expected_entries(self, num_elements: int) -> int:
        return sum(grid.num_blocks * self._kept(grid) for grid in self._layout(num_elements).grids)

    def _selected(self, x: np.ndarray) -> np.ndarray:
        found = [np.empty(0, np.int64)]
        for grid in self._layout(len(x)).grids:
            chosen = top_k_by_chunk(x[grid.begin : grid.end], self._kept(grid) / grid.block, grid.block)
            found.append(chosen + grid.begin)
        return np.concatenate(found)

    def _kept(self, grid: Grid) -> int:
        """How many coefficients of each block: of a stretch the share that a whole block sends, wherever it was cut."""
        k, block = self.options.k, self.options.block
        return min(grid.block, max(1, round(k * grid.block / block**2)) if grid.of_stretch else k)

    def _layout(self, num_elements: int) -> BlockLayout:
        return layout_of(self._shapes, num_elements, self.options.block)


@dataclass(frozen=True)
class Grid:
    """Blocks of one size, side by side in a matrix; a vector is one row.

    Attributes:
        matrix: first element, rows and columns of the matrix in the vector that holds it.
        row, col: where the blocks begin in the matrix.
        down, across: how many blocks there are in each direction.
        height, width: of a block.
        begin: of their coefficients among all; they lie behind one another, block by block.
        of_stretch: they hold no tensor but a stretch of something.
    """

    matrix: tuple[int, int, int]
    row: int
    col: int
    down: int
    across: int
    height: int
    width: int
    begin: int
    of_stretch: bool

    @property
    def block(self) -> int:
        """Elements of a block."""
        return self.height * self.width

    @property
    def num_blocks(self) -> int:
        """How many there are."""
        return self.down * self.across

    @property
    def end(self) -> int:
        """The coefficient after the last one."""
        return self.begin + self.num_blocks * self.block

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """The blocks inside a vector, sharing its memory: [down, across, height, width]."""
        first, rows, cols = self.matrix
        matrix = x[first : first + rows * cols].view(rows, cols)
        part = matrix[self.row : self.row + self.down * self.height, self.col : self.col + self.across * self.width]
        return part.view(self.down, self.height, self.across, self.width).transpose(1, 2)


@dataclass(frozen=True)
class BlockLayout:
    """How a vector of ``num_elements`` is cut into blocks."""

    num_elements: int
    grids: tuple[Grid, ...]

    def transformed(self, x: torch.Tensor) -> torch.Tensor:
        """The coefficients of all blocks: fp32 of shape [num_elements], as ``x``."""
        coefficients = empty_fp32(self.num_elements)
        for grid in self.grids:
            blocks = dct_matrix(grid.height) @ (_to_multiply(grid.of(x)) @ dct_matrix(grid.width).t())
            coefficients[grid.begin : grid.end] = blocks.reshape(-1)
        return coefficients

    def restored(self, coefficients: torch.Tensor) -> torch.Tensor:
        """The inverse."""
        x = empty_fp32(self.num_elements)
        for grid in self.grids:
            blocks = _to_multiply(coefficients[grid.begin : grid.end])
            blocks = blocks.view(grid.down, grid.across, grid.height, grid.width)
            grid.of(x).copy_(dct_matrix(grid.height).t() @ (blocks @ dct_matrix(grid.width)))
        return x


def _to_multiply(blocks: torch.Tensor) -> torch.Tensor:
    """These blocks so that their product has the same bits wherever they lie and in every thread of such a machine.

    MKL sums up by where operands lie: so they are copied into torch's own memory, which begins at a multiple of 64
    bytes. And by how many threads it has: a thread's first product would have as many as there are processors, until
    torch is asked for their number.
    """
    torch.get_num_threads()  # for its effect
    return blocks.clone(memory_format=torch.contiguous_format)


@cache
def layout_of(shapes: tuple[Shape, ...], num_elements: int, block: int) -> BlockLayout:
    """By the shapes of the tensors behind one another. Pure.

    A tensor of two or more dimensions is a matrix [first dimension, all others], a vector one row. A vector alone, or
    of another length than those tensors, is a stretch of something, such as a collective's part of a bucket: it is read
    as rows of ``block`` elements, in whole blocks, and what is left.
    """
    fits = sum(map(math.prod, shapes)) == num_elements
    is_stretch = not fits or [len(shape) for shape in shapes] == [1]
    whole = num_elements // block**2 * block
    pieces = [(whole, block), (num_elements // block - whole, block), (1, num_elements % block)]
    if not is_stretch:
        pieces = [(shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape)) for shape in shapes]
    grids: list[Grid] = []
    first = begin = 0
    for rows, cols in pieces:
        for row, down, height in cuts(rows, block) if cols else ():
            for col, across, width in cuts(cols, block):
                grids.append(Grid((first, rows, cols), row, col, down, across, height, width, begin, is_stretch))
                begin = grids[-1].end
        first += rows * cols
    return BlockLayout(num_elements, tuple(grids))


def cuts(length: int, block: int) -> list[tuple[int, int, int]]:
    """A length in stretches of at most ``block``: begin, how many of one size, and that size. Pure.

    Equal ones of the largest size that divides it, as in DeMo. Where that would be tiny, of a prime a single element,
    full ones and a shorter last: all of a block that has no more than ``k`` coefficients would be sent.
    """
    size = max((divisor for divisor in range(1, min(block, length) + 1) if length % divisor == 0), default=0)
    if size == 0:
        return []
    if size == length or (size > 1 and size * SMALLEST_SHARE >= block):
        return [(0, length // size, size)]
    whole, rest = divmod(length, block)
    return [(0, whole, block), *([(whole * block, 1, rest)] if rest else [])]


@cache
def dct_matrix(size: int) -> torch.Tensor:
    """The orthonormal DCT-II, fp32 of shape [size, size]; its transpose is its inverse.

    Row k holds sqrt(2/n) cos(pi (2j + 1) k / 2n), row 0 the same over sqrt(2).
    """
    places = torch.arange(size, dtype=torch.float64)
    matrix = torch.cos(math.pi / (2 * size) * torch.outer(places, 2 * places + 1)) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.float()
