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


RULES: dict[str, Callable[..., Tensor]] = {"sgd": sgd, "adam": adam, "adamw": adamw, "powersgd": powersgd_momentum}
