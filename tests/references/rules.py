"""How a replica uses the direction that it ends up with: the steps of torch's optimizers, and that of PowerSGD."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Tensors = list[Tensor]
State = dict[str, Any]


def sgd(
    parameter: Tensor,
    direction: Tensor,
    state: State,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Tensor:
    """torch.optim.SGD: d = g + wd x; b = d the first time, else mu b + (1 - damp) d; x - lr (b or d + mu b)."""
    d = direction + weight_decay * parameter
    if momentum != 0:
        state["b"] = momentum * state["b"] + (1 - dampening) * d if "b" in state else d.clone()
        d = d + momentum * state["b"] if nesterov else state["b"]
    return parameter - lr * d


def powersgd_momentum(parameter: Tensor, direction: Tensor, state: State, lr: float, momentum: float = 0.9) -> Tensor:
    """PowerSGD's algorithm 2 (Vogels 2019): m = lambda m + d; x - lr (d + m). Not torch's Nesterov."""
    state["m"] = momentum * state.get("m", torch.zeros_like(direction)) + direction
    return parameter - lr * (direction + state["m"])


def adam(
    parameter: Tensor,
    direction: Tensor,
    state: State,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Tensor:
    """torch.optim.Adam, or AdamW when decoupled: m and v with bias correction from step 1,
    x - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps); decoupled: x (1 - lr wd) comes first.
    """
    if decoupled:
        parameter = parameter * (1 - lr * weight_decay)
    else:
        direction = direction + weight_decay * parameter
    state["t"] = state.get("t", 0) + 1
    state["m"] = betas[0] * state.get("m", torch.zeros_like(direction)) + (1 - betas[0]) * direction
    state["v"] = betas[1] * state.get("v", torch.zeros_like(direction)) + (1 - betas[1]) * direction * direction
    corrected = state["v"].sqrt() / math.sqrt(1 - betas[1] ** state["t"]) + eps
    return parameter - lr / (1 - betas[0] ** state["t"]) * state["m"] / corrected


def adamw(parameter: Tensor, direction: Tensor, state: State, lr: float, **options: Any) -> Tensor:
    """torch.optim.AdamW; its default weight decay is 0.01."""
    return adam(parameter, direction, state, lr, decoupled=True, **{"weight_decay": 0.01, **options})


# (a, b, c) of the Newton-Schulz step X <- a X + (b A + c A^2) X with A = X X^T.
JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
MULOCO = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]


def spread_evenly(matrix: Tensor, table: list[tuple[float, float, float]]) -> Tensor:
    """X = M / |M|, then a step for each line of the table, in terms of singular values: X = U diag(s) V^T gives
    A = U diag(s^2) U^T, so that a step is s <- a s + b s^3 + c s^5, and U and V stay.
    """
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / max(float(s.square().sum().sqrt()), 1e-7)
    for a, b, c in table:
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ v


def muon(
    parameter: Tensor,
    direction: Tensor,
    state: State,
    lr: float,
    momentum: float = 0.95,
    nesterov: bool = False,
    weight_decay: float = 0.01,
    coefficients: str = "muloco",
    scale: str = "spectral-norm",
    adamw_ratio: float = 1.0,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
) -> Tensor:
    """Algorithm 1 of MuLoCo (Therien 2025), inner step: M = mu M + g, O = the five steps of M (Nesterov: of g + mu M),
    x (1 - lr wd) - lr sqrt(out / in) O for matrices, AdamW for all else. A filter's row is all that it looks at.
    """
    if parameter.dim() < 2:
        return adamw(parameter, direction, state, adamw_ratio * lr, betas=betas, eps=eps, weight_decay=weight_decay)
    state["M"] = momentum * state.get("M", torch.zeros_like(direction)) + direction
    chosen = direction + momentum * state["M"] if nesterov else state["M"]
    matrix = chosen.flatten(1)
    fan_out, fan_in = matrix.shape
    factors = {
        "spectral-norm": math.sqrt(fan_out / fan_in),
        "original": math.sqrt(max(1.0, fan_out / fan_in)),
        "match-rms-adamw": 0.2 * math.sqrt(max(fan_out, fan_in)),
    }
    update = spread_evenly(matrix, {"jordan": JORDAN, "muloco": MULOCO}[coefficients]).reshape(parameter.shape)
    return parameter * (1 - lr * weight_decay) - lr * factors[scale] * update


RULES: dict[str, Callable[..., Tensor]] = {
    "sgd": sgd,
    "adam": adam,
    "adamw": adamw,
    "powersgd": powersgd_momentum,
    "muon": muon,
}
