"""Gradients that nobody has computed, with the spectrum and the tails of real ones: for models of which only the shapes
are real.

Codecs take as long as their values make them: how many entries are large decides what ``threshold`` sends, and how
fast singular values fall what PowerSGD keeps. Gradients of real models are of low effective rank (Vogels et al. 2019,
"PowerSGD"; Zhao et al. 2024, "GaLore") and heavy-tailed (Simsekli et al. 2019, "A tail-index analysis of stochastic
gradient noise"). Both are options here, and ``spectrum_of`` measures them on any matrix, a real gradient's as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bwbench.base.model_shapes import Shape, pattern_shape
from bwbench.methods.deferred import torch

COMPONENTS = 32  # of the power law that are made one by one; what is left of its energy is white
_SEED = 7_368_787  # the same patterns on all ranks and for all seeds


class SyntheticGradients:
    """A pattern for every shape, and each gradient one of its rows-rolled copies.

    Rolled by whole rows, since that keeps every singular value and every entry. It is by another number of rows for
    each tensor, each step and each rank, so that large entries of two ranks lie at different places.

    Args:
        shapes: of the parameters.
        decay: the i-th singular value is i to the power of minus ``decay``; 0 is white noise.
        tail: standard deviation of the logarithm of a scale for each row and for each column; 0 leaves values nearly
            normal. The kurtosis of the entries is about 3·exp(8·tail²), where they are many and ``decay`` is 0.
        rms: root of the mean square of every tensor's entries.
    """

    def __init__(self, shapes: Sequence[Shape], decay: float, tail: float, rms: float) -> None:
        self._rows = [(shape[0], math.prod(shape[1:])) if shape else (1, 1) for shape in shapes]
        self._patterns: dict[tuple[int, int], torch.Tensor] = {}
        for rows, cols in self._rows:
            key = pattern_shape((rows, cols))
            if key not in self._patterns:
                self._patterns[key] = pattern(*key, decay, tail).mul_(rms)

    def write(self, index: int, step: int, rank: int, out: torch.Tensor) -> None:
        """Put the gradient of parameter number ``index`` in a step of a rank into an fp32 vector of its length."""
        rows, cols = self._rows[index]
        source = self._patterns[pattern_shape((rows, cols))]
        period = len(source)
        shift = (31 * index + 7 * step + 101 * rank) % period
        matrix = out.view(rows, cols)
        for begin in range(-shift, rows, period):  # where whole patterns would begin
            first = max(0, begin)
            last = min(rows, begin + period)
            matrix[first:last].copy_(source[first - begin : last - begin])


def pattern(rows: int, cols: int, decay: float, tail: float) -> torch.Tensor:
    """A matrix ``[rows, cols]`` of this spectrum and these tails, with a mean square of 1."""
    generator = torch.Generator().manual_seed(_SEED + 1_000_003 * rows + cols)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    rank = min(rows, cols)
    kept = min(rank, COMPONENTS)
    energies = [index ** (-2 * decay) for index in range(1, rank + 1)]
    left, right = normal(rows, kept), normal(cols, kept)
    scales = torch.tensor(energies[:kept]).sqrt_()
    made = (left * scales) @ right.T
    if kept < rank:
        made += normal(rows, cols) * math.sqrt(sum(energies[kept:]))
    if tail:
        made *= (normal(rows, 1) * tail).exp_()
        made *= (normal(1, cols) * tail).exp_()
    return made.div_(made.square().mean().sqrt().clamp_(min=1e-30))


class Spectrum(NamedTuple):
    """What a gradient is like.

    Attributes:
        effective_rank: exp of the entropy of the singular values as shares of their sum (Roy and Vetterli 2007).
        rank: the most that it could be.
        kurtosis: of the entries; 3 where they are normal.
        top_percent: share of the energy in the largest 1 % of the entries.
    """

    effective_rank: float
    rank: int
    kurtosis: float
    top_percent: float


def spectrum_of(matrix: torch.Tensor) -> Spectrum:
    """Of a gradient ``[rows, ...]``; what follows the first dimension is taken as one."""
    matrix = matrix.detach().reshape(matrix.shape[0], -1).double()
    singular = torch.linalg.svdvals(matrix)
    shares = singular / singular.sum()
    entropy = -(shares * shares.clamp_min(1e-300).log()).sum()
    entries = matrix.flatten() - matrix.mean()
    squares = matrix.flatten().square().sort(descending=True).values
    largest = squares[: max(1, len(squares) // 100)].sum() / squares.sum()
    kurtosis = entries.pow(4).mean() / entries.square().mean().square()
    return Spectrum(float(entropy.exp()), min(matrix.shape), float(kurtosis), float(largest))
