"""The reference of SPARTA, and of LOSCAR, which is SPARTA in rounds whose means come late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tests.references.replicas import Replicas, mean
from tests.references.rules import Tensors


class SparseAveraging(Replicas):
    """Of the weights some places are averaged, others in each round, the same on all replicas.

    SPARTA (Beton 2025; exo-explore/gym, SparseCommunicator): after the optimizer's step a mask M is drawn for all
    replicas, x_i,j <- 1/N sum_k x_k,j for j in M, and all other places stay as they are. In every step.

    LOSCAR-SGD (Maziane 2026, arXiv 2605.20866, the merge rule of its algorithm): y_i are the weights that leave, z_i
    those after Q more local steps. Then x_i,j <- 1/N sum_k y_k,j + (z_i,j - y_i,j) for j in M, x_i,j <- z_i,j for all
    others. With as many steps on all replicas.

    A round leaves after every H-th step, its mean arrives after the inner update Q steps later (at once with Q = 0, so
    that SPARTA is H = 1), what is due before the next round leaves. Masks are those of the round that leaves. In the
    paper a round begins with the merge and y is taken Q steps before the next one: the same but for the first round.
    Optimizer states stay local.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        places: Callable[[int], Tensor],
        period: int = 1,
        overlap: int = 0,
        **options: Any,
    ) -> None:
        """places(round), counted from 0, are indices into the flat vector; `period` is H, `overlap` Q."""
        super().__init__(parameters, lr, **options)
        self.places, self.period, self.overlap = places, period, overlap
        self.rounds = 0
        self.travelling: list[tuple[int, Tensor, Tensors]] = []

    def merge(self, mask: Tensor, left: Tensors) -> None:
        """Of one round: `left` are the y of all replicas, whole."""
        average = mean(left)
        for rank in range(self.ranks):
            z, y = self.flat(self.parameters[rank]), left[rank]
            x = z.clone()
            x[mask] = average[mask] + (z[mask] - y[mask])  # the bracket is exactly zero without overlap
            self.parameters[rank] = self.unflat(x)

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        while self.travelling and self.travelling[0][0] == self.steps_done:
            _, mask, left = self.travelling.pop(0)
            self.merge(mask, left)
        if self.steps_done % self.period == 0:
            self.travelling.append(
                (
                    self.steps_done + self.overlap,
                    self.places(self.rounds),
                    [self.flat(tensors) for tensors in self.parameters],
                )
            )
            self.rounds += 1
            if self.overlap == 0:
                _, mask, left = self.travelling.pop(0)
                self.merge(mask, left)
