"""References for gradients of which a part arrives, transformed or late: DeMo, blocks of cosines, delayed top-k."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.references.replicas import Replicas, Roundtrip, mean
from tests.references.rules import Tensors


def dct_2(matrix: Tensor) -> Tensor:
    """X[k, l] = a_k b_l sum over i, j of x[i, j] cos(pi (2i + 1) k / 2R) cos(pi (2j + 1) l / 2C), with
    a_0 = sqrt(1 / R), a_k = sqrt(2 / R), and b likewise for the C columns.
    """
    return cosines(matrix.shape[0], matrix.dtype) @ matrix @ cosines(matrix.shape[1], matrix.dtype).T


def inverse_dct_2(coefficients: Tensor) -> Tensor:
    """x[i, j] = sum over k, l of a_k b_l X[k, l] cos(...) cos(...), as in dct_2."""
    rows, columns = coefficients.shape
    return cosines(rows, coefficients.dtype).T @ coefficients @ cosines(columns, coefficients.dtype)


def cosines(size: int, dtype: torch.dtype) -> Tensor:
    """Row k: a_k cos(pi (2i + 1) k / 2 size) for i = 0, 1, ..."""
    rows = []
    for k in range(size):
        factor = math.sqrt((1 if k == 0 else 2) / size)
        rows.append([factor * math.cos(math.pi * (2 * i + 1) * k / (2 * size)) for i in range(size)])
    return torch.tensor(rows, dtype=dtype)


def smaller_split(length: int, close_to: int) -> int:
    """The largest divisor of a length that is not above close_to, as in DeMo's code."""
    return max(size for size in range(1, close_to + 1) if length % size == 0)


def dct_top_k(tensor: Tensor, k: int, block: int) -> Tensor:
    """What the k largest coefficients of each block of a tensor make (DeMo). A vector is one row, a tensor of more
    dimensions a matrix [first, rest]; a block is as high and as wide as smaller_split says.
    """
    matrix = tensor.reshape(1, -1) if tensor.dim() < 2 else tensor.reshape(tensor.shape[0], -1)
    out = torch.zeros_like(matrix)
    height, width = smaller_split(matrix.shape[0], block), smaller_split(matrix.shape[1], block)
    for row in range(0, matrix.shape[0], height):
        for column in range(0, matrix.shape[1], width):
            place = slice(row, row + height), slice(column, column + width)
            coefficients = dct_2(matrix[place])
            flat = coefficients.reshape(-1)
            kept = torch.argsort(flat.abs(), descending=True, stable=True)[:k]
            chosen = torch.zeros_like(flat)
            chosen[kept] = flat[kept]
            out[place] = inverse_dct_2(chosen.reshape(coefficients.shape))
    return out.reshape(tensor.shape)


class DeMo(Replicas):
    """DeMo (Peng 2024), on each rank and tensor: d <- beta d + lr g, q = top-k of each block's DCT of d, transformed
    back, d <- d - q; then all: x <- (1 - lr wd) x - lr sign(sum over the ranks of q).
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        decay: float = 0.999,
        k: int = 32,
        block: int = 64,
        weight_decay: float = 0.0,
        **options: Any,
    ) -> None:
        """`decay` is beta."""
        super().__init__(parameters, lr, **options)
        self.decay, self.k, self.block, self.weight_decay = decay, k, block, weight_decay
        self.deltas = [[torch.zeros_like(tensor) for tensor in tensors] for tensors in self.parameters]

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for index in range(len(gradients[0])):
            total = torch.zeros_like(self.parameters[0][index])
            for rank, grads in enumerate(gradients):
                delta = self.decay * self.deltas[rank][index] + self.lr * grads[index]
                sent = dct_top_k(delta, self.k, self.block)
                self.deltas[rank][index] = delta - sent
                total = total + sent
            for rank in range(self.ranks):
                kept = (1 - self.lr * self.weight_decay) * self.parameters[rank][index]
                self.parameters[rank][index] = kept - self.lr * torch.sign(total)
        self.steps_done += 1


class DelayedErrorFeedback(Replicas):
    """DD-EF-SGD (Lu 2025): D_i(t) = C(e_i + g_i(t)), e_i <- e_i + g_i(t) - D_i(t), and the rule at step t uses
    (1/N) sum D_i(t - tau). The first tau steps use zero.
    """

    def __init__(
        self, parameters: list[Tensors], lr: float, *, compressor: Roundtrip, staleness: int, **options: Any
    ) -> None:
        """`staleness` is tau."""
        super().__init__(parameters, lr, **options)
        self.compressor, self.staleness = compressor, staleness
        self.errors = [self.zeros() for _ in range(self.ranks)]
        self.means: Tensors = [self.zeros() for _ in range(staleness)]

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        sent = []
        for rank, grads in enumerate(gradients):
            wanted = self.errors[rank] + self.flat(grads)
            sent.append(self.compressor(wanted))
            self.errors[rank] = wanted - sent[rank]
        self.means.append(mean(sent))
        self.use_everywhere(self.unflat(self.means.pop(0)))
        self.steps_done += 1


class Cocktail(Replicas):
    """CocktailSGD's compression (Wang 2023) with error feedback, one way: of p = g + e the entries at indices(t), the
    same on all ranks; of these the k largest; of these `roundtrip`. e <- p - what was sent; the rule uses the mean.
    """

    def __init__(
        self, parameters: list[Tensors], lr: float, *, indices: Any, k: int, roundtrip: Roundtrip, **options: Any
    ) -> None:
        """indices(t) of step t (from 0), ascending; the roundtrip takes the chosen values in that order."""
        super().__init__(parameters, lr, **options)
        self.indices, self.k, self.roundtrip = indices, k, roundtrip
        self.errors = [self.zeros() for _ in range(self.ranks)]

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        seen = self.indices(self.steps_done)
        sent = []
        for rank, grads in enumerate(gradients):
            wanted = self.flat(grads) + self.errors[rank]
            largest = torch.argsort(wanted[seen].abs(), descending=True, stable=True)[: self.k]
            chosen = seen[torch.sort(largest).values]
            message = torch.zeros_like(wanted)
            message[chosen] = self.roundtrip(wanted[chosen])
            self.errors[rank] = wanted - message
            sent.append(message)
        self.use_everywhere(self.unflat(mean(sent)))
        self.steps_done += 1
