"""References for averaging gradients in every step: plain, ByteGrad, and by a server with errors kept both ways."""

from __future__ import annotations

from typing import Any

import torch

from tests.references.compressors import cut_rounded_up, identity, minmax_uint8
from tests.references.replicas import Cut, Replicas, Roundtrip, mean, scatter_gather
from tests.references.rules import Tensors


class GradientAllReduce(Replicas):
    """Every rank uses the mean gradient: g = (1/N) sum g_i, then SGD, Adam or AdamW."""

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        self.use_everywhere([mean([grads[index] for grads in gradients]) for index in range(len(gradients[0]))])
        self.steps_done += 1


class ByteGrad(Replicas):
    """Bagua's ByteGrad: one bucket in N chunks, each compressed; the owner decodes, means, compresses, all decode.

    `pad_multiple` lays zeros at the bucket's end up to that multiple, as Bagua does with N; they count in the
    last chunk's minimum and maximum. Without rest `cut_rounded_up` and `cut_balanced` are the same.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        roundtrip: Roundtrip = minmax_uint8,
        cut: Cut = cut_rounded_up,
        pad_multiple: int = 1,
        **options: Any,
    ) -> None:
        """roundtrip(chunk) = decode(encode(chunk)); it is used both ways."""
        super().__init__(parameters, lr, **options)
        self.roundtrip, self.cut, self.pad_multiple = roundtrip, cut, pad_multiple

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        vectors = [self.flat(grads) for grads in gradients]
        length = vectors[0].numel()
        padding = vectors[0].new_zeros(-length % self.pad_multiple)
        vectors = [torch.cat([vector, padding]) for vector in vectors]
        cuts = self.cut(vectors[0].numel(), self.ranks)
        result = scatter_gather(vectors, cuts, self.roundtrip, self.roundtrip)[:length]
        self.use_everywhere(self.unflat(result))
        self.steps_done += 1


class ParameterServer(Replicas):
    """A server with a compressed way up and down and error feedback on both (DoubleSqueeze, Tang 2019).

    p_i = g_i + e_i, sent up c_i = up(p_i), e_i = p_i - c_i; server s = mean c_i + E, sent down d = down(s), E = s - d;
    all ranks (also one that is the server) use d. `shards` cuts the vector (cut), each shard compressed alone.
    units "update": p_i = lr g_i + e_i and the rule's learning rate is 1.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        up: Roundtrip = identity,
        down: Roundtrip = identity,
        feedback_up: bool = True,
        feedback_down: bool = True,
        shards: int = 1,
        cut: Cut = cut_rounded_up,
        units: str = "gradient",
        **options: Any,
    ) -> None:
        """`up` and `down` are roundtrips of one shard."""
        super().__init__(parameters, lr, **options)
        self.up, self.down, self.shards, self.cut, self.units = up, down, shards, cut, units
        self.up_error = [self.zeros() for _ in range(self.ranks)] if feedback_up else None
        self.down_error = self.zeros() if feedback_down else None

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        factor = self.lr if self.units == "update" else 1.0
        vectors = [self.flat(grads) * factor for grads in gradients]
        cuts = self.cut(vectors[0].numel(), self.shards)
        result = scatter_gather(vectors, cuts, self.up, self.down, self.up_error, self.down_error)
        self.use_everywhere(self.unflat(result), 1.0 if self.units == "update" else None)
        self.steps_done += 1
