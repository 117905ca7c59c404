"""References for Adam with a frozen variance: QAdam and 1-bit Adam."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from tests.references.compressors import clip_by_norm, cut_rounded_up, minmax_uint8, sign_block
from tests.references.replicas import Cut, Replicas, Roundtrip, mean, scatter_gather
from tests.references.rules import Tensors


class QAdam(Replicas):
    """Adam whose variance is frozen after `warmup_steps` and whose momentum is averaged compressed (Bagua QAdam).

    Steps t = 1 .. W (W = warmup_steps >= 1): g = mean g_i, m and v as Adam (v last changes at t = W). Steps t > W:
    m_i = b1 m + (1 - b1) g_i with the rank's own gradient, m = compressed mean of m_i, the same on all ranks
    afterwards. Update in both phases x - lr m / c1 / (sqrt(v) / sqrt(c2) + eps).
    bias_m: "on" c1 = 1 - b1^t, "none" c1 = 1. bias_v: "frozen" c2 = 1 - b2^min(t, W), "on" c2 = 1 - b2^t (Bagua),
    "none" c2 = 1. clip: each rank's own gradient by its global norm, in every step, before all else.
    Weight decay: coupled g_i + wd x (Adam; after the clip), decoupled x (1 - lr wd) first (AdamW; DeepSpeed).
    Bagua's own code (from memory) leaves m and v alone in the step t = W and compresses from W + 1: not done here.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        warmup_steps: int,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled: bool = False,
        bias_m: str = "on",
        bias_v: str = "frozen",
        clip: float | None = None,
        roundtrip: Roundtrip = minmax_uint8,
        two_way: bool = True,
        cut: Cut = cut_rounded_up,
        order: list[int] | None = None,
    ) -> None:
        """two_way: scatter-gather, compressed both ways by chunk; False: mean of roundtrip(whole m_i)."""
        super().__init__(parameters, lr, order=order)
        self.warmup_steps, self.betas, self.eps = warmup_steps, betas, eps
        self.weight_decay, self.decoupled = weight_decay, decoupled
        self.bias_m, self.bias_v, self.clip = bias_m, bias_v, clip
        self.roundtrip, self.two_way, self.cut = roundtrip, two_way, cut
        self.m, self.v = self.zeros(), self.zeros()

    def average(self, momenta: Tensors) -> Tensor:
        """The compressed mean of the momenta."""
        if not self.two_way:
            return mean([self.roundtrip(momentum) for momentum in momenta])
        return scatter_gather(momenta, self.cut(momenta[0].numel(), self.ranks), self.roundtrip, self.roundtrip)

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        t = self.steps_done + 1
        b1, b2 = self.betas
        local = []
        for rank, grads in enumerate(gradients):
            vector = self.flat(clip_by_norm(grads, self.clip) if self.clip is not None else grads)
            if not self.decoupled:
                vector = vector + self.weight_decay * self.flat(self.parameters[rank])
            local.append(vector)
        if t <= self.warmup_steps:
            gradient = mean(local)
            self.m = b1 * self.m + (1 - b1) * gradient
            self.v = b2 * self.v + (1 - b2) * gradient * gradient
        else:
            self.m = self.average([b1 * self.m + (1 - b1) * vector for vector in local])
        c1 = 1 - b1**t if self.bias_m == "on" else 1.0
        powers = {"frozen": 1 - b2 ** min(t, self.warmup_steps), "on": 1 - b2**t, "none": 1.0}
        direction = self.m / c1 / (self.v.sqrt() / math.sqrt(powers[self.bias_v]) + self.eps)
        for rank in range(self.ranks):
            weights = self.flat(self.parameters[rank])
            if self.decoupled:
                weights = weights * (1 - self.lr * self.weight_decay)
            self.parameters[rank] = self.unflat(weights - self.lr * direction)
        self.steps_done = t


class OneBitAdam(QAdam):
    """1-bit Adam (Tang 2021): as QAdam with sign compression and error feedback on both ways.

    Up: p_i = m_i + e_i, c_i = C(p_i), e_i = p_i - c_i; at the owner of a chunk s = mean c_i + E, d = C(s),
    E = s - d; m = d. C is s sign(p) with one scale for each block of `block` entries (None: the chunk); blocks
    begin anew at each chunk. up_whole: the way up is compressed over the whole vector, as DeepSpeed does.
    scale "mean" is mean |p|, "rms" DeepSpeed's ||p|| / sqrt(n). No bias correction by default, as DeepSpeed.
    Errors are zero when compression begins; the mask for always-zero momenta of DeepSpeed is left out.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        warmup_steps: int,
        block: int | None = None,
        scale: str = "mean",
        up_whole: bool = False,
        bias_m: str = "none",
        bias_v: str = "none",
        feedback_up: bool = True,
        feedback_down: bool = True,
        roundtrip: Roundtrip | None = None,
        **options: Any,
    ) -> None:
        """The other options are QAdam's; `roundtrip` replaces the scaled sign."""
        sign = roundtrip if roundtrip is not None else lambda x: sign_block(x, block, scale)
        super().__init__(
            parameters, lr, warmup_steps=warmup_steps, bias_m=bias_m, bias_v=bias_v, roundtrip=sign, **options
        )
        self.up_whole = up_whole
        self.up_error = [self.zeros() for _ in range(self.ranks)] if feedback_up else None
        self.down_error = self.zeros() if feedback_down else None

    def average(self, momenta: Tensors) -> Tensor:
        """The compressed mean of the momenta, with both errors."""
        cuts = self.cut(momenta[0].numel(), self.ranks)
        return scatter_gather(
            momenta, cuts, self.roundtrip, self.roundtrip, self.up_error, self.down_error, self.up_whole
        )
