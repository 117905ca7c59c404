"""DiLoCo: local training with any optimizer, and a Nesterov step on what it has changed, every so many steps.

MuLoCo: the same with Muon, and the defaults that go with it.

Streaming DiLoCo: a fragment of the parameters at a time, on its way while the nodes go on computing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.algorithm import Agreement
from bwbench.methods.algorithms.periodic import AbstractPeriodic, BucketLayout, OuterStep, PeriodicConfig, SharedBucket
from bwbench.methods.compression.codec import Shape
from bwbench.methods.roles import Role


class DilocoConfig(PeriodicConfig):
    """Options of ``diloco``.

    Attributes:
        period: optimizer steps from one outer step to the next.
        overlap: steps that the nodes go on computing while pseudo-gradients are averaged; what they learn meanwhile is
            kept. 0 waits at once, ``period`` is the most; ``auto`` applies the outer step as soon as it is there.
        outer_lr: rate of the outer step; 1 without momentum takes the mean of the replicas.
        outer_momentum: Nesterov momentum of the outer step.
    """

    period: int = Field(50, ge=1)
    outer_lr: float = Field(0.7, gt=0)
    outer_momentum: float = Field(0.9, ge=0, lt=1)


class Diloco(AbstractPeriodic):
    """Inner steps with the optimizer of the experiment, outer Nesterov steps with the mean pseudo-gradient.

    After Douillard et al. 2023, who use AdamW inside; any optimizer works here.
    """

    Config = DilocoConfig
    options: DilocoConfig
    virtual = True
    copies = 6.0  # of all that agree now and then, and the outer momentum
    replicas_equal: ClassVar[Agreement] = "after a round"

    @property
    def outer_step(self) -> OuterStep:
        """Nesterov SGD."""
        return OuterStep(self.options.outer_lr, self.options.outer_momentum)


class MulocoConfig(DilocoConfig):
    """Options of ``muloco``: those of ``diloco``, with the defaults of its authors."""

    period: int = Field(30, ge=1)
    outer_momentum: float = Field(0.6, ge=0, lt=1)


class Muloco(Diloco):
    """DiLoCo with Muon inside (Thérien et al. 2025): steps of one size, whose mean loses less than that of AdamW's.

    What it has of its own is the optimizer, and the outer momentum: a lower one is enough.
    """

    Config = MulocoConfig
    optimizers = ("muon",)


class Muloco1(Muloco):
    """The same on one node alone, whose outer steps are a momentum over what it has changed in a round."""

    needs_peers = False
    sends = False
    role: ClassVar[Role] = "reference"


class StreamingDilocoConfig(DilocoConfig):
    """Options of ``streaming-diloco``.

    Attributes:
        period: optimizer steps from one round of a fragment to its next.
        overlap: steps that the nodes go on computing while a fragment is on its way. 0 waits at once, ``period`` is
            the most; ``auto`` applies a fragment as soon as it is there.
        fragments: parts of nearly equal size that the parameters are cut into; their rounds are spread evenly over the
            period.
        mix: share of the local values when a fragment is applied; the rest are the agreed ones. 0 drops what was
            learnt while it was on its way. Without overlap the agreed values are taken as they are.
    """

    overlap: int | Literal["auto"] = 5
    fragments: int = Field(4, ge=1)
    mix: float = Field(0.5, ge=0, lt=1)

    @model_validator(mode="after")
    def _a_step_for_each_fragment(self) -> StreamingDilocoConfig:
        if self.fragments > self.period:
            text = f"{self.fragments} fragments have no step each in a period of {self.period}; ask for fewer"
            raise PydanticCustomError("fragments", "{text}", {"text": text})
        return self

    @model_validator(mode="after")
    def _fragments_are_its_buckets(self) -> StreamingDilocoConfig:
        if self.bucket_bytes is not None:
            text = "bucket: each of its fragments is one; ask for more or fewer fragments"
            raise PydanticCustomError("bucket", "{text}", {"text": text})
        return self


class StreamingDiloco(Diloco):
    """Each fragment p of P has rounds of its own, p·H/P steps apart: the peak of the load falls to 1/P.

    After Douillard et al. 2025: a fragment leaves after step t, the outer step is taken with what came back after step
    t+τ, and the local values become α·x + (1−α)·x_agreed (``mix`` is α).
    """

    Config = StreamingDilocoConfig
    options: StreamingDilocoConfig
    replicas_equal = "never"

    def layout(self, parameter_shapes: Sequence[Shape], shrink: float = 1.0) -> BucketLayout:
        """One bucket a fragment, however large that is."""
        return in_fragments(parameter_shapes, self.options.fragments)

    def for_timing(self) -> ComponentConfig:
        """No more rounds to a step than there are: they would meet on the link."""
        return self.options

    def apply(self, bucket: SharedBucket) -> None:
        """Mix local and agreed values."""
        if self.options.overlap == 0:
            bucket.adopt()
        else:
            bucket.mix(self.options.mix)


def in_fragments(parameter_shapes: Sequence[Shape], count: int) -> BucketLayout:
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
    return BucketLayout(tuple(range(len(parameter_shapes))), tuple((tuple(shapes),) for shapes in fragments if shapes))


def _pieces(shape: Shape, limits: Sequence[float]) -> Iterator[Shape | None]:
    """``shape`` cut at the rows nearest to ``limits``, which are counted in elements; None for an empty piece."""
    rows = shape[0] if shape else 1
    row_elements = math.prod(shape[1:])
    begin = 0
    for limit in (*limits, None):
        end = rows if limit is None or not row_elements else min(rows, math.floor(limit / row_elements + 0.5))
        if end - begin == rows:
            yield shape
        else:
            yield (end - begin, *shape[1:]) if end > begin else None
        begin = max(begin, end)
