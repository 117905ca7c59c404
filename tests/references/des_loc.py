"""The reference of DES-LOC's Adam, from the algorithm of its paper."""

from __future__ import annotations

from typing import Any

import torch

from tests.references.compressors import identity
from tests.references.replicas import Replicas, Roundtrip, mean
from tests.references.rules import Tensors


class DesLoc(Replicas):
    """DES-LOC with Adam (Iacob 2025, arXiv 2505.22549, algorithm 1): three periods, of x, of m (their u) and of v.

    The paper, in step t (from 0) on every worker: g at x; m <- E[m] when t mod K_u = 0, then Adam's m from g; v <- E[v]
    when t mod K_v = 0, then Adam's v; x <- E[x] when t mod K_x = 0, then x - lr m / (sqrt(v) + eps). E is the mean over
    the workers, K_u = a K_x, K_v = b K_x.

    All three means are of what the step before has left. So they stand here after the update of step s, counted from
    1, when s mod K = 0 (docs/algorithms): from given gradients the same numbers, but that g is one at the mean of x. At
    t = 0 all is equal. No clipping; correction of the bias and weight decay are those of the rule.

    The roundtrip takes the flat vector of what a worker has moved from the last mean of x: x <- ref - E[Q(ref - x)],
    which is E[x] when Q is exact. Moments are averaged as they are.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        first_moment: int = 3,
        second_moment: int = 6,
        roundtrip: Roundtrip = identity,
        **options: Any,
    ) -> None:
        """`period` is K_x, `first_moment` a, `second_moment` b; the rule is "adam" or "adamw"."""
        super().__init__(parameters, lr, **options)
        self.period, self.roundtrip = period, roundtrip
        self.periods_of_moments = {"m": first_moment * period, "v": second_moment * period}
        self.reference = self.flat(self.parameters[0])

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        if self.steps_done % self.period == 0:
            sent = [self.roundtrip(self.reference - self.flat(tensors)) for tensors in self.parameters]
            self.reference = self.reference - mean(sent)
            self.parameters = [self.unflat(self.reference) for _ in range(self.ranks)]
        for moment, period in self.periods_of_moments.items():
            if self.steps_done % period == 0:
                self.average_moment(moment)

    def average_moment(self, moment: str) -> None:
        """E over the ranks, tensor by tensor."""
        for index in range(len(self.parameters[0])):
            average = mean([torch.as_tensor(self.states[rank][index][moment]) for rank in range(self.ranks)])
            for rank in range(self.ranks):
                self.states[rank][index][moment] = average.clone()
