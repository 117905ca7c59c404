"""Plain formulas of published gradient compressors: encode and decode in one function, on one vector.

Every function gives back what the receiver decodes, in the shape and the dtype of what it was given. Random
rounding takes its uniform numbers in [0, 1) as an argument, so that a test can hand both sides the same ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cut_rounded_up(length: int, parts: int) -> list[tuple[int, int]]:
    """(start, end) of `parts` chunks of ceil(length / parts) each; the last are shorter, if need be empty."""
    size = math.ceil(length / parts)
    return [(min(part * size, length), min((part + 1) * size, length)) for part in range(parts)]


def cut_balanced(length: int, parts: int) -> list[tuple[int, int]]:
    """(start, end) of `parts` chunks as torch.tensor_split: the first (length mod parts) have one element more."""
    small, rest = divmod(length, parts)
    cuts, start = [], 0
    for part in range(parts):
        end = start + small + (1 if part < rest else 0)
        cuts.append((start, end))
        start = end
    return cuts


def blocks(length: int, block: int | None) -> list[tuple[int, int]]:
    """(start, end) of successive blocks of `block` elements, the last shorter; None: one block."""
    if block is None:
        return [(0, length)] if length else []
    return [(start, min(start + block, length)) for start in range(0, length, block)]


def identity(x: Tensor) -> Tensor:
    """No compression."""
    return x.clone()


def minmax_uint8(x: Tensor, epsilon: float = 1e-7, relative: bool = False) -> Tensor:
    """Bagua's MinMaxUInt8: scale = 255 / (max - min + e), top = rint(max scale), bottom = top - 255,
    q = min(rint(x scale), top) - bottom, decoded (q + bottom) / scale.

    e = epsilon, or epsilon (max - min) when `relative`; then a constant vector (range 0) is given back exactly.
    Halves round to even. Unlike Bagua q is also held at 0 from below, where its cast to a byte would wrap.
    """
    if x.numel() == 0:
        return x.clone()
    low, high = x.min(), x.max()
    spread = high - low
    if relative and spread == 0:
        return x.clone()
    scale = 255.0 / (spread + (epsilon * spread if relative else epsilon))
    top = torch.round(high * scale)
    bottom = top - 255.0
    level = torch.minimum(torch.round(x * scale), top)
    level = torch.maximum(level, bottom)
    code = level - bottom
    return (code + bottom) / scale


def minmax_uint8_relative(x: Tensor) -> Tensor:
    """MinMaxUInt8 with e = 1e-7 of the range of the values."""
    return minmax_uint8(x, 1e-7, True)


def top_k(x: Tensor, k: int) -> Tensor:
    """The k entries of largest magnitude of the whole vector, zero elsewhere (Aji 2017; Stich 2018)."""
    flat = x.reshape(-1)
    kept = torch.argsort(flat.abs(), descending=True, stable=True)[: max(0, min(k, flat.numel()))]
    out = torch.zeros_like(flat)
    out[kept] = flat[kept]
    return out.reshape(x.shape)


def top_k_chunked(x: Tensor, k: int, chunk: int) -> Tensor:
    """The k (or all, when fewer) entries of largest magnitude of each chunk of `chunk` successive entries."""
    flat = x.reshape(-1)
    out = torch.zeros_like(flat)
    for start, end in blocks(flat.numel(), chunk):
        out[start:end] = top_k(flat[start:end], k)
    return out.reshape(x.shape)


def threshold(x: Tensor, bound: float) -> Tensor:
    """Entries with |x| >= bound go with their values, zero elsewhere."""
    return torch.where(x.abs() >= bound, x, torch.zeros_like(x))


def sign_block(x: Tensor, block: int | None = None, scale: str = "mean", zero_is_plus: bool = True) -> Tensor:
    """Scaled sign: in each block s sign(x). s = mean |x| (Karimireddy 2019, EF-signSGD) or, scale = "rms",
    ||x||_2 / sqrt(n) (DeepSpeed's 1-bit Adam). One bit an entry: sign(0) = +1, else 0 with zero_is_plus False.
    """
    flat = x.reshape(-1)
    out = torch.zeros_like(flat)
    for start, end in blocks(flat.numel(), block):
        part = flat[start:end]
        size = part.abs().mean() if scale == "mean" else (part * part).mean().sqrt()
        signs = torch.where(part >= 0, 1.0, -1.0).to(part.dtype) if zero_is_plus else torch.sign(part)
        out[start:end] = size * signs
    return out.reshape(x.shape)


def one_bit_seide(x: Tensor, block: int | None = None, by_column: bool = False, border: float = 0.0) -> Tensor:
    """1-bit SGD (Seide 2014): entries >= border become the mean of those, entries < border the mean of those.

    One pair of means for each block of the flat vector, or for each column of a matrix when `by_column`.
    """
    if by_column:
        return torch.stack([one_bit_seide(x[:, column], None, False, border) for column in range(x.shape[1])], dim=1)
    flat = x.reshape(-1)
    out = torch.zeros_like(flat)
    for start, end in blocks(flat.numel(), block):
        part = flat[start:end].clone()
        above = part >= border
        for group in (above, ~above):
            if group.any():
                part[group] = part[group].mean()
        out[start:end] = part
    return out.reshape(x.shape)


def qsgd(x: Tensor, uniform: Tensor, levels: int, bucket: int | None = None, norm: str = "l2") -> Tensor:
    """QSGD (Alistarh 2017): ||v|| sign(v_i) xi_i, with a = |v_i| levels / ||v||, l = floor(a),
    xi = (l + 1) / levels when u < a - l, else l / levels. ||v|| of each bucket: l2, or the largest |v| ("max").
    """
    flat, chance = x.reshape(-1), uniform.reshape(-1)
    out = torch.zeros_like(flat)
    for start, end in blocks(flat.numel(), bucket):
        part = flat[start:end]
        size = (part * part).sum().sqrt() if norm == "l2" else part.abs().max()
        if size == 0:
            continue
        exact = part.abs() / size * levels
        below = torch.floor(exact)
        level = below + (chance[start:end] < exact - below).to(part.dtype)
        out[start:end] = size * torch.sign(part) * level / levels
    return out.reshape(x.shape)


def terngrad(x: Tensor, uniform: Tensor, scale: float | None = None, clip_sigmas: float | None = None) -> Tensor:
    """TernGrad (Wen 2017): s sign(g_i) b_i, b_i = 1 when u < |g_i| / s, s = max |g| or the given (shared) scale.

    With clip_sigmas = c (theirs 2.5) g is held within +- c sigma first; sigma is the population's, about the mean.
    """
    value = x
    if clip_sigmas is not None:
        bound = float(clip_sigmas * (x - x.mean()).pow(2).mean().sqrt())
        value = x.clamp(-bound, bound)
    size = value.abs().max() if scale is None else torch.tensor(scale, dtype=x.dtype)
    if size == 0:
        return torch.zeros_like(x)
    return size * torch.sign(value) * (uniform < value.abs() / size).to(x.dtype)


def natural(x: Tensor, uniform: Tensor) -> Tensor:
    """Natural compression (Horvath 2019): |x| to 2^floor(log2 |x|), or to twice that when
    u < |x| / 2^floor(log2 |x|) - 1; the sign stays, 0 stays 0.
    """
    _, exponent = torch.frexp(x)  # |x| = m 2^exponent, 1/2 <= m < 1
    below = torch.ldexp(torch.ones_like(x), exponent - 1)
    up = uniform < x.abs() / below - 1.0
    return torch.where(x == 0, torch.zeros_like(x), torch.sign(x) * torch.where(up, 2.0 * below, below))


def clip_by_norm(tensors: list[Tensor], bound: float, epsilon: float = 1e-6) -> list[Tensor]:
    """As torch's clip_grad_norm_: all times min(1, bound / (norm + epsilon)), norm = l2 over all tensors together."""
    total = torch.stack([(tensor * tensor).sum() for tensor in tensors]).sum().sqrt()
    factor = torch.clamp(bound / (total + epsilon), max=1.0)
    return [tensor * factor for tensor in tensors]


def exponential_share(step: int, start: float, end: float, steps: int) -> float:
    """DGC's sparsity warm-up: start (end / start)^(step / steps) while step < steps (from 0), then end."""
    return end if step >= steps else start * (end / start) ** (step / steps)


def count_rounded_up(share: float, length: int) -> int:
    """How many entries a share is, as DGC's code: ceil(share length), at least 1."""
    return max(1, math.ceil(share * length))


def gram_schmidt(matrix: Tensor, epsilon: float = 0.0) -> Tensor:
    """Orthonormal columns, left to right (modified Gram-Schmidt, as in the PowerSGD code): each column over
    (its norm + epsilon), then its share taken out of all columns to its right. A column of zeros stays.
    """
    out = matrix.clone()
    for column in range(out.shape[1]):
        norm = out[:, column].norm() + epsilon
        if norm == 0:
            continue
        out[:, column] = out[:, column] / norm
        for later in range(column + 1, out.shape[1]):
            out[:, later] = out[:, later] - (out[:, column] @ out[:, later]) * out[:, column]
    return out
