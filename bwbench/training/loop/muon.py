"""Muon: momentum made orthogonal for matrices, AdamW for all else, as one optimizer of torch's kind.

M <- mu M + G; the update of a matrix has M's singular vectors, and all its singular values are about 1. Jordan et al.
2024 find it by an iteration of Newton and Schulz, which multiplies matrices and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim.adamw import adamw

Triple = tuple[float, float, float]
# Of X <- aX + (bA + cA²)X with A = XXᵀ, one triple a step; a table that ends is gone on with its last.
COEFFICIENTS: dict[str, tuple[Triple, ...]] = {
    "jordan": ((3.4445, -4.7750, 2.0315),),  # Jordan et al. 2024: steepest at zero, singular values end in 0.7 to 1.2
    "muloco": (  # Thérien et al. 2025: another polynomial in each step, singular values end nearer to 1
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
}
SCALES: dict[str, Callable[[int, int], float]] = {
    "spectral-norm": lambda fan_out, fan_in: math.sqrt(fan_out / fan_in),
    "original": lambda fan_out, fan_in: math.sqrt(max(1.0, fan_out / fan_in)),
    "match-rms-adamw": lambda fan_out, fan_in: 0.2 * math.sqrt(max(fan_out, fan_in)),
}
LEAST_NORM = 1e-7  # a gradient of zeros is divided by this; as torch's own


def triples(coefficients: str, steps: int) -> list[Triple]:
    """The coefficients of each of so many steps."""
    table = COEFFICIENTS[coefficients]
    return [table[min(step, len(table) - 1)] for step in range(steps)]


def orthogonalized(matrix: torch.Tensor, coefficients: Sequence[Triple]) -> torch.Tensor:
    """The matrix with singular values that have come near to 1; those near to 0 before have the longest way.

    Args:
        matrix: ``[rows, columns]``, in the type that is computed in; not changed.
        coefficients: of each step.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]  # A is as small as can be
    x = matrix.mT if is_tall else matrix
    x = x / x.norm().clamp(min=LEAST_NORM)  # Frobenius': no singular value is above 1
    for a, b, c in coefficients:
        gram = x @ x.mT  # A, [fewer, fewer]
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Two groups: matrices, and what is none, which AdamW steps; either may be missing.

    A tensor of more than two dimensions is a matrix of its first against all others: filters by what they look at.
    Weight decay is decoupled in both groups, at the rate as it is, without ``scale``.

    Args:
        params: parameters of a model.
        matrices: those of them that are matrices; None for all with two dimensions or more.
        adamw_ratio: rate of the second group as a multiple of ``lr``; it is also the group's ``lr_ratio``.

    The other arguments are those of ``optimizers.MuonConfig``.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 0.02,
        *,
        matrices: Sequence[torch.nn.Parameter] | None = None,
        momentum: float = 0.95,
        nesterov: bool = False,
        weight_decay: float = 0.01,
        coefficients: str = "muloco",
        steps: int = 5,
        scale: str = "spectral-norm",
        adamw_ratio: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ) -> None:
        parameters = list(params)
        chosen = {id(p) for p in (parameters if matrices is None else matrices) if p.dim() >= 2}
        of_matrices = {
            "params": [p for p in parameters if id(p) in chosen],
            "matrices": True,
            "momentum": momentum,
            "nesterov": nesterov,
            "coefficients": coefficients,
            "steps": steps,
            "scale": scale,
        }
        of_others = {
            "params": [p for p in parameters if id(p) not in chosen],
            "matrices": False,
            "lr": adamw_ratio * lr,
            "lr_ratio": adamw_ratio,
            "betas": betas,
            "eps": eps,
        }
        groups = [group for group in (of_matrices, of_others) if group["params"]]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; parameters without a gradient stay as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if group["matrices"]:
                for parameter in parameters:
                    self._step_of_matrix(parameter, group)
            elif parameters:
                self._step_of_others(parameters, group)
        return loss

    def _step_of_matrix(self, parameter: torch.nn.Parameter, group: dict[str, Any]) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"].mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        matrix = direction.reshape(len(direction), -1)  # [fan out, fan in]
        update = orthogonalized(matrix, triples(group["coefficients"], group["steps"]))
        rate = group["lr"] * SCALES[group["scale"]](*matrix.shape)
        parameter.mul_(1.0 - group["lr"] * group["weight_decay"])
        parameter.add_(update.reshape(parameter.shape), alpha=-rate)

    def _step_of_others(self, parameters: list[torch.nn.Parameter], group: dict[str, Any]) -> None:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            list(parameters),
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
