"""PowerSGD: each gradient matrix as the product of two thin factors, which are averaged in its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.buffers import empty_fp32
from bwbench.methods.compression.codec import ALIGNMENT_BYTES, AbstractLinearCodec, AverageMessage, Shape, as_flat_fp32
from bwbench.methods.compression.error_feedback import Feedback
from bwbench.methods.deferred import torch


class PowerSgdConfig(ComponentConfig):
    """Options of ``powersgd``.

    Attributes:
        rank: columns of the factors of each matrix.
        error_feedback: keep what the factors do not hold and add it to the next step's gradient.
    """

    rank: int = Field(2, ge=1)
    error_feedback: Feedback = True


class PowerSgd(AbstractLinearCodec):
    """One step of power iteration a call, after Vogels, Karimireddy and Jaggi 2019 (PowerSGD).

    For each gradient matrix M: P = M Q is averaged over the ranks and made orthonormal, Q = Mᵀ P is averaged, P Qᵀ is
    the mean, and this Q begins the next call (warm start). What is no matrix (``LowRankLayout``) travels as it is, in
    front of the P. The residual of a rank is what its own projection P Pᵀ M leaves of M.
    """

    Config = PowerSgdConfig
    biased = True
    options: PowerSgdConfig

    _shapes: tuple[Shape, ...] = ()
    _bucket = 0
    _right: torch.Tensor | None = None  # the factors Q of the call before, flat

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Learn which matrices lie in the vectors to come."""
        super().prepare(shapes, rank, bucket)
        self._shapes, self._bucket = tuple(shapes), bucket

    def message_elements(self, num_elements: int) -> list[int]:
        """What is sent as it is and all P; then all Q, where there is a matrix."""
        layout = self._layout(num_elements)
        first = layout.num_plain + layout.left_elements
        return [first, layout.right_elements] if layout.matrices else [first]

    def payload_bytes(self, num_elements: int) -> int:
        """Both messages behind one another, as a rank on its own packs them."""
        total = 0
        for size in self.payloads(num_elements):
            total += -total % ALIGNMENT_BYTES + size
        return total

    def average(self, x: torch.Tensor, average_message: AverageMessage) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of the plain parts and the product of the averaged factors; and this rank's projection."""
        layout = self._layout(x.numel())
        plain = layout.plain(x)
        random = torch.randn(layout.right_elements, generator=torch.Generator().manual_seed(self._bucket))
        # To begin with, the factors Q of the call before; at first random ones, the same on all ranks.
        start = layout.unit_vectors(random if self._right is None else self._right, random)
        first = torch.cat([plain, layout.left(x, start)])
        average_message(first)
        left = layout.orthonormal(first[layout.num_plain :])
        right = layout.right(x, left)
        sent = layout.whole(plain, left, right)
        if layout.matrices:
            average_message(right)
            self._right = right
        return layout.whole(first[: layout.num_plain], left, right), sent

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The messages of a rank on its own."""
        payloads: list[torch.Tensor] = []
        self.average(as_flat_fp32(x), self._alone(payloads))
        first, *rest = payloads
        padding = -first.numel() % ALIGNMENT_BYTES if rest else 0
        return torch.cat([first, torch.zeros(padding, dtype=torch.uint8), *rest])

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The plain parts and the products of the factors."""
        layout = self._layout(num_elements)
        first, *rest = self._messages(payload, num_elements)
        plain, left = first[: layout.num_plain], layout.orthonormal(first[layout.num_plain :])
        return layout.whole(plain, left, rest[0] if rest else left)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """A copy of the factors Q, where there are some yet."""
        state = super().state_dict()
        return state if self._right is None else {**state, "right": self._right.clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict begins anew."""
        super().load_state_dict({key: value for key, value in state.items() if key != "right"})
        self._right = state["right"].clone() if "right" in state else None

    def _layout(self, num_elements: int) -> LowRankLayout:
        return LowRankLayout.of(self._shapes, num_elements, self.options.rank)


@dataclass(frozen=True)
class Matrix:
    """A stretch of a flat vector, [rows, cols], that is told by two factors, of [rank, rows] and [rank, cols]."""

    begin: int
    rows: int
    cols: int

    @property
    def end(self) -> int:
        """The element after the last one."""
        return self.begin + self.rows * self.cols

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """The matrix inside a vector, sharing its memory."""
        return x[self.begin : self.end].view(self.rows, self.cols)


@dataclass(frozen=True)
class LowRankLayout:
    """What of a vector of ``num_elements`` is told by factors of rank ``rank``; all else is plain.

    Factors are kept transposed, the columns of the literature's P and Q as rows: products with a tall, narrow matrix
    take up to fifty times as long as those with a wide, low one.
    """

    num_elements: int
    rank: int
    matrices: tuple[Matrix, ...]

    @classmethod
    def of(cls, shapes: Sequence[Shape], num_elements: int, rank: int) -> LowRankLayout:
        """By the shapes of the tensors behind one another; where they do not fit, one matrix as square as it gets.

        A tensor of two or more dimensions is a matrix [first dimension, all others]. Plain stay vectors, and matrices
        that their factors would not make smaller.
        """
        if sum(math.prod(shape) for shape in shapes) != num_elements:
            rows = math.isqrt(num_elements)
            shapes = [(rows, num_elements // rows)] if rows else []
        matrices, begin = [], 0
        for shape in shapes:
            matrix = Matrix(begin, shape[0] if shape else 1, math.prod(shape[1:]))
            if rank * (matrix.rows + matrix.cols) < matrix.rows * matrix.cols:
                matrices.append(matrix)
            begin += math.prod(shape)
        return cls(num_elements, rank, tuple(matrices))

    @cached_property
    def plain_spans(self) -> list[tuple[int, int]]:
        """First element and the one after the last of what lies between the matrices."""
        begins = [0, *(matrix.end for matrix in self.matrices)]
        ends = [*(matrix.begin for matrix in self.matrices), self.num_elements]
        return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]

    @property
    def num_plain(self) -> int:
        """Elements that are no part of a matrix."""
        return sum(end - begin for begin, end in self.plain_spans)

    @property
    def left_elements(self) -> int:
        """Length of all factors P behind one another."""
        return self.rank * sum(matrix.rows for matrix in self.matrices)

    @property
    def right_elements(self) -> int:
        """Length of all factors Q behind one another."""
        return self.rank * sum(matrix.cols for matrix in self.matrices)

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        """The plain elements of ``x``, behind one another; a copy."""
        return torch.cat([x[:0], *(x[begin:end] for begin, end in self.plain_spans)])

    def left(self, x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """M Q of every matrix: flat, of ``left_elements``."""
        factors = self._split(right, [matrix.cols for matrix in self.matrices])
        products = [(q @ m.of(x).t()).reshape(-1) for m, q in zip(self.matrices, factors, strict=True)]
        return torch.cat([x[:0], *products])

    def right(self, x: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
        """Mᵀ P of every matrix: flat, of ``right_elements``."""
        factors = self._split(left, [matrix.rows for matrix in self.matrices])
        products = [(p @ m.of(x)).reshape(-1) for m, p in zip(self.matrices, factors, strict=True)]
        return torch.cat([x[:0], *products])

    def orthonormal(self, left: torch.Tensor) -> torch.Tensor:
        """The vectors of each factor P, orthonormal. Depends on the bits of ``left`` alone; zeros stay zeros."""
        factors = self._split(left, [matrix.rows for matrix in self.matrices])
        return torch.cat([left[:0], *(gram_schmidt(factor).reshape(-1) for factor in factors)])

    def unit_vectors(self, right: torch.Tensor, instead: torch.Tensor) -> torch.Tensor:
        """Each vector of each factor Q at length 1, those of zeros alone replaced by the ones of ``instead``.

        The span is the same, but the numbers stay within range from step to step, whatever the scale of the gradient.
        """
        lengths = [matrix.cols for matrix in self.matrices]
        units = [right[:0]]
        for q, other in zip(self._split(right, lengths), self._split(instead, lengths), strict=True):
            q = torch.where(q.abs().amax(1, keepdim=True) == 0.0, other, q).double()
            units.append((q / q.norm(dim=1, keepdim=True)).float().reshape(-1))
        return torch.cat(units)

    def whole(self, plain: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """The vector that plain elements and the products P Qᵀ make up: fp32 of shape [num_elements]."""
        x = empty_fp32(self.num_elements)
        lengths = [end - begin for begin, end in self.plain_spans]
        for (begin, end), part in zip(self.plain_spans, torch.split(plain, lengths), strict=True):
            x[begin:end] = part
        rows, cols = ([m.rows for m in self.matrices], [m.cols for m in self.matrices])
        for m, p, q in zip(self.matrices, self._split(left, rows), self._split(right, cols), strict=True):
            torch.matmul(p.t(), q, out=m.of(x))
        return x

    def _split(self, factors: torch.Tensor, lengths: Sequence[int]) -> list[torch.Tensor]:
        """Factors that lie behind one another, each as [rank, length]."""
        parts = torch.split(factors, [length * self.rank for length in lengths])
        return [part.view(self.rank, -1) for part in parts]


def gram_schmidt(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors [number, length] made orthonormal, one after the other, in double precision.

    Zeros stay zeros. A vector that depends on those before it leaves what rounding makes of nothing, at length 1: any
    orthonormal vectors project without harm.
    """
    result = vectors.double().clone()
    for i, vector in enumerate(result):
        length = vector.norm()
        vector /= torch.where(length == 0.0, 1.0, length)
        rest = result[i + 1 :]
        rest -= torch.outer(rest @ vector, vector)
    return result.float()
