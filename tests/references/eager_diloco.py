"""The reference of eager DiLoCo, from the formula of its paper."""

from __future__ import annotations

from typing import Any

from tests.references.compressors import identity
from tests.references.replicas import Replicas, Roundtrip
from tests.references.rules import Tensors


class EagerDiLoCo(Replicas):
    """Eager updates (Kale 2025, arXiv 2502.12996, algorithm 3), of all parameters together.

    After H inner steps, the t-th time, replica m has D_m(t) = ref_m - x_m, and its outer optimizer is given

        d = 1/N D_m(t) + 1/N sum over j != m of D_j(t - 1)        with D(0) = 0,

    so that the sum of round t travels during round t + 1. The outer optimizer is DiLoCo's, torch's SGD with Nesterov
    momentum: b_m <- mu b_m + d, ref_m <- ref_m - eta (d + mu b_m), x_m <- ref_m. Every replica has a ref and a b of its
    own. Inner optimizer states stay local and go on.

    The roundtrip takes the flat vector. The formula says nothing of codecs. Here (docs/algorithms) a replica uses its
    own fresh D as it is, others what was decoded; and once the sum is there, what was decoded stands for the
    own share of the last round, too: d grows by 1/N (roundtrip(D_m(t - 1)) - D_m(t - 1)).
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        roundtrip: Roundtrip = identity,
        **options: Any,
    ) -> None:
        """`period` is H, `outer_lr` eta, `outer_momentum` mu."""
        super().__init__(parameters, lr, **options)
        self.period, self.outer_lr, self.outer_momentum = period, outer_lr, outer_momentum
        self.roundtrip = roundtrip
        self.references = [self.flat(tensors) for tensors in self.parameters]
        self.buffers = [self.zeros() for _ in range(self.ranks)]
        self.before = [self.zeros() for _ in range(self.ranks)]  # D(t - 1)
        self.decoded = [self.zeros() for _ in range(self.ranks)]  # what arrives of it

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        if self.steps_done % self.period != 0:
            return
        fresh = [self.references[rank] - self.flat(self.parameters[rank]) for rank in range(self.ranks)]
        for rank in range(self.ranks):
            d = fresh[rank] / self.ranks
            for other in range(self.ranks):
                if other != rank:
                    d = d + self.decoded[other] / self.ranks
            d = d + (self.decoded[rank] - self.before[rank]) / self.ranks
            self.buffers[rank] = self.outer_momentum * self.buffers[rank] + d
            ahead = d + self.outer_momentum * self.buffers[rank]
            self.references[rank] = self.references[rank] - self.outer_lr * ahead
            self.parameters[rank] = self.unflat(self.references[rank])
        self.before, self.decoded = fresh, [self.roundtrip(change) for change in fresh]
