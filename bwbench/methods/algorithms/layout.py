"""Which parameters are exchanged together: the parameters in one row, cut into parts and buckets. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bwbench.methods.algorithms.buckets import assign
from bwbench.methods.compression.base import Shape


@dataclass(frozen=True)
class Layout:
    """All parameters behind one another, cut into buckets.

    Attributes:
        order: indices of the parameters, in the order in which they lie.
        parts: what is exchanged together: by part and bucket, the shapes of the tensors in it. A tensor may be cut
            between two of its rows; its pieces then count as tensors.
    """

    order: tuple[int, ...]
    parts: tuple[tuple[tuple[Shape, ...], ...], ...]

    @property
    def buckets(self) -> list[tuple[Shape, ...]]:
        """Of all parts, in order."""
        return [bucket for part in self.parts for bucket in part]


def in_one_part(parameter_shapes: Sequence[Shape]) -> Layout:
    """Everything is exchanged together, in buckets of whole tensors as large as those of gradients."""
    buckets = assign([math.prod(shape) for shape in parameter_shapes], None)
    shapes = tuple(tuple(parameter_shapes[index] for index in bucket) for bucket in buckets)
    return Layout(tuple(index for bucket in buckets for index in bucket), (shapes,))


def in_fragments(parameter_shapes: Sequence[Shape], count: int) -> Layout:
    """``count`` consecutive fragments of a bucket each, as equal in size as cuts between rows allow.

    Fewer where there are not enough rows.
    """
    total = sum(math.prod(shape) for shape in parameter_shapes)
    limits = [total * number / count for number in range(1, count)]
    fragments: list[list[Shape]] = [[]]
    position = 0
    for shape in parameter_shapes:
        length = math.prod(shape)
        inside = [limit - position for limit in limits if position < limit <= position + length]
        for number, piece in enumerate(_pieces(shape, inside)):
            if number:
                fragments.append([])
            if piece is not None:
                fragments[-1].append(piece)
        position += length
    return Layout(tuple(range(len(parameter_shapes))), tuple((tuple(shapes),) for shapes in fragments if shapes))


def _pieces(shape: Shape, limits: Sequence[float]) -> Iterator[Shape | None]:
    """``shape`` cut at the rows nearest to ``limits``, which are counted in elements; None for an empty piece."""
    rows = shape[0] if shape else 1
    row_elements = math.prod(shape[1:])
    begin = 0
    for limit in (*limits, None):
        end = rows if limit is None or not row_elements else min(rows, math.floor(limit / row_elements + 0.5))
        yield _rows(shape, end - begin, rows)
        begin = max(begin, end)


def _rows(shape: Shape, count: int, rows: int) -> Shape | None:
    if count == rows:
        return shape
    return (count, *shape[1:]) if count > 0 else None
