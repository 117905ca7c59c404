"""References for gradients that are sent in part, the rest later: error feedback, DGC, PowerSGD, random-k."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.references.compressors import clip_by_norm, count_rounded_up, exponential_share, gram_schmidt, top_k
from tests.references.replicas import Replicas, Roundtrip, mean
from tests.references.rules import Tensors


class ErrorFeedback(Replicas):
    """Error feedback (Stich 2018; Karimireddy 2019): what was not sent is added to the next step's message.

    units "update":   p = lr_t g + e, c = C(p), e = p - c, x <- x - mean c (rule with lr 1; no weight decay).
    units "gradient": p = g + e, c = C(p), e = p - c, rule with mean c and lr_t.
    units "gradient-rescaled": as gradient, with e lr_(t-1) / lr_t for e; it equals "update" (plain SGD, C(ax) = aC(x)).
    C takes the one flat vector, or each tensor (per_tensor). feedback False: e stays 0.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        compressor: Roundtrip,
        units: str = "update",
        per_tensor: bool = False,
        feedback: bool = True,
        **options: Any,
    ) -> None:
        """compressor: for example lambda x: top_k(x, 10), or sign_block, or threshold."""
        super().__init__(parameters, lr, **options)
        if units == "update" and self.rule_options.get("weight_decay"):
            raise ValueError("with units 'update' the rule's learning rate is 1: no weight decay")
        self.compressor, self.units, self.per_tensor, self.feedback = compressor, units, per_tensor, feedback
        self.errors = [self.zeros() for _ in range(self.ranks)]
        self.sent: Tensors = []
        self.previous_lr: float | None = None

    def step(self, gradients: list[Tensors], lr: float | None = None) -> None:
        """One step at learning rate lr (None: self.lr). self.sent[rank] is what the rank sent, decoded."""
        rate = self.lr if lr is None else lr
        self.sent = []
        for rank, grads in enumerate(gradients):
            error = self.errors[rank]
            if self.units == "gradient-rescaled" and self.previous_lr is not None:
                error = error * (self.previous_lr / rate)
            wanted = self.flat(grads) * (rate if self.units == "update" else 1.0) + error
            message = torch.cat([self.compressor(wanted[start:end]) for start, end in self.spans(self.per_tensor)])
            if self.feedback:
                self.errors[rank] = wanted - message
            self.sent.append(message)
        self.use_everywhere(self.unflat(mean(self.sent)), 1.0 if self.units == "update" else rate)
        self.previous_lr = rate
        self.steps_done += 1


def top_k_share(share: float, count: Callable[[float, int], int] = count_rounded_up) -> Roundtrip:
    """A compressor that keeps a share of the entries, for ErrorFeedback."""
    return lambda x: top_k(x, count(share, x.numel()))


class DeepGradientCompression(Replicas):
    """DGC (Lin 2018): momentum correction, local clipping, momentum factor masking, sparsity warm-up.

    Each rank: g clipped to the norm clip / sqrt(N) over all tensors; u = mu u + g; v = v + u; the k entries of largest
    |v| go out and are set to zero in v and (masking) in u. All: x <- x - lr mean(sent). No Nesterov, no weight decay.
    Share at step t (from 0): start (end / start)^(t / W) for t < W = share_steps, then end; k = count(share, length).
    The share 1/4, 1/16, 1/64, 1/256 of the paper's four warm-up epochs is share_at(t), which replaces the formula.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        share_start: float = 0.25,
        share_end: float = 0.001,
        share_steps: int = 0,
        share_at: Callable[[int], float] | None = None,
        count: Callable[[float, int], int] = count_rounded_up,
        momentum: float = 0.9,
        masking: bool = True,
        clip: float | None = None,
        per_tensor: bool = False,
        order: list[int] | None = None,
    ) -> None:
        """per_tensor: k entries of each tensor by itself, as in the authors' code."""
        super().__init__(parameters, lr, order=order)
        self.share_at = share_at or (lambda step: exponential_share(step, share_start, share_end, share_steps))
        self.count, self.momentum, self.masking, self.clip = count, momentum, masking, clip
        self.per_tensor = per_tensor
        self.u = [self.zeros() for _ in range(self.ranks)]
        self.v = [self.zeros() for _ in range(self.ranks)]
        self.sent: Tensors = []

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        share = self.share_at(self.steps_done)
        self.sent = []
        for rank, grads in enumerate(gradients):
            clipped = grads if self.clip is None else clip_by_norm(grads, self.clip / math.sqrt(self.ranks))
            self.u[rank] = self.momentum * self.u[rank] + self.flat(clipped)
            self.v[rank] = self.v[rank] + self.u[rank]
            mask = torch.zeros_like(self.v[rank], dtype=torch.bool)
            for start, end in self.spans(self.per_tensor):
                magnitude = self.v[rank][start:end].abs()
                kept = torch.argsort(magnitude, descending=True, stable=True)
                mask[start + kept[: self.count(share, end - start)]] = True
            self.sent.append(torch.where(mask, self.v[rank], 0.0))
            self.v[rank] = torch.where(mask, 0.0, self.v[rank])
            if self.masking:
                self.u[rank] = torch.where(mask, 0.0, self.u[rank])
        self.use_everywhere(self.unflat(mean(self.sent)))
        self.steps_done += 1


class PowerSGD(Replicas):
    """PowerSGD (Vogels 2019): for each matrix M_i = g_i + e_i: P = orthogonal(mean M_i Q), Q = mean M_i^T P,
    all use P Q^T, e_i = M_i - P Q^T (the averaged product, as the authors' and torch's code).

    initial_q[tensor] is [rest, rank], its columns give the rank; None: the tensor goes uncompressed, and no error is
    kept. A tensor of more dimensions is [first, rest]. warm_start: Q goes on from step to step, else every step
    begins with initial_q. plain_steps: so many first steps average the gradients themselves (errors and Q stay).
    rule "powersgd" is the paper's momentum; "sgd" torch's.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        initial_q: list[Tensor | None],
        warm_start: bool = True,
        feedback: bool = True,
        epsilon: float = 0.0,
        plain_steps: int = 0,
        **options: Any,
    ) -> None:
        """`epsilon` is added to the norms in Gram-Schmidt (the authors' code: 1e-8)."""
        super().__init__(parameters, lr, **options)
        self.initial_q = initial_q
        self.q = [None if q is None else q.clone() for q in initial_q]
        self.warm_start, self.feedback, self.epsilon, self.plain_steps = warm_start, feedback, epsilon, plain_steps
        self.errors = [[torch.zeros_like(tensor) for tensor in tensors] for tensors in self.parameters]
        self.decoded: Tensors = []

    def step(self, gradients: list[Tensors]) -> None:
        """One step. self.decoded[tensor] is P Q^T in the tensor's shape, or the mean gradient."""
        self.decoded = []
        for index, tensor in enumerate(self.parameters[0]):
            q = (self.q if self.warm_start else self.initial_q)[index]
            if q is None or self.steps_done < self.plain_steps:
                self.decoded.append(mean([grads[index] for grads in gradients]))
                continue
            wanted = [grads[index] + self.errors[rank][index] for rank, grads in enumerate(gradients)]
            matrices = [value.reshape(tensor.shape[0], -1) for value in wanted]
            p = gram_schmidt(mean([matrix @ q for matrix in matrices]), self.epsilon)
            q = mean([matrix.T @ p for matrix in matrices])
            product = (p @ q.T).reshape(tensor.shape)
            if self.feedback:
                for rank in range(self.ranks):
                    self.errors[rank][index] = wanted[rank] - product
            self.q[index] = q
            self.decoded.append(product)
        self.use_everywhere(self.decoded)
        self.steps_done += 1


class RandomK(Replicas):
    """Random-k, one mask for all ranks: p_i = g_i + e_i, sent p_i on indices(t), e_i = the rest; rule with the mean.

    indices(t) are those of step t (from 0) in the flat vector. unbiased: what is sent is times length / k (then
    without feedback). units "update": p = lr g + e and the rule's learning rate is 1.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        indices: Callable[[int], Tensor],
        feedback: bool = True,
        unbiased: bool = False,
        units: str = "gradient",
        **options: Any,
    ) -> None:
        """units: "gradient" or "update"."""
        super().__init__(parameters, lr, **options)
        self.indices, self.feedback, self.unbiased, self.units = indices, feedback, unbiased, units
        self.errors = [self.zeros() for _ in range(self.ranks)]
        self.sent: Tensors = []

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        chosen = self.indices(self.steps_done)
        self.sent = []
        for rank, grads in enumerate(gradients):
            wanted = self.flat(grads) * (self.lr if self.units == "update" else 1.0) + self.errors[rank]
            message = torch.zeros_like(wanted)
            message[chosen] = wanted[chosen]
            if self.feedback:
                self.errors[rank] = wanted - message
            if self.unbiased:
                message = message * (wanted.numel() / len(chosen))
            self.sent.append(message)
        self.use_everywhere(self.unflat(mean(self.sent)), 1.0 if self.units == "update" else None)
        self.steps_done += 1
