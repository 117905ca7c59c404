"""Adam whose momentum is averaged: QAdam and 1-bit Adam."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.references.case import INT8, Case, Make, even_cut
from tests.references.compressors import clip_by_norm
from tests.references.momentum_methods import OneBitAdam, QAdam
from tests.references.replicas import Replicas, mean
from tests.references.rules import Tensors
from tests.references.side_by_side import ADAM, ADAMW, Method, Setting

WARM_UP = 8


def adam_options(s: Setting) -> dict[str, Any]:
    return {"decoupled": s.optimizer.rule == "adamw", **s.optimizer.options}


def qadam(**options: Any) -> Make:
    return lambda s: s.plain(QAdam, warmup_steps=WARM_UP, cut=even_cut, **adam_options(s), **options)


class ScaledOneBitAdam(OneBitAdam):
    """As published, but for what the signs are of: the momentum over the deviation, as ``send: scaled-momentum``."""

    def average(self, momenta: Tensors) -> Tensor:
        deviation = self.v.sqrt() / (1 - self.betas[1] ** self.warmup_steps) ** 0.5 + self.eps
        return super().average([momentum / deviation for momentum in momenta]) * deviation


def one_bit(kind: type[OneBitAdam], block: int) -> Make:
    """With the correction of m going on and that of v frozen, which docs/algorithms/one-bit-adam.md says of ours."""
    options = {"block": block, "bias_m": "on", "bias_v": "frozen", "cut": even_cut}
    return lambda s: s.plain(kind, warmup_steps=WARM_UP, **options, **adam_options(s))


CLIP = 0.7


def clipped_by_the_user(reference: Replicas, gradients: list[Tensors]) -> list[Tensors]:
    """``p.grad`` between backward pass and step: the mean of all ranks in the warm-up, the rank's own after it."""
    if reference.steps_done >= WARM_UP:
        return [clip_by_norm(tensors, CLIP) for tensors in gradients]
    means = [mean([tensors[index] for tensors in gradients]) for index in range(len(gradients[0]))]
    return [clip_by_norm(means, CLIP) for _ in gradients]


def momentum(send: str, compression: Any, collective: str = "scatter-gather", **options: Any) -> Method:
    return Method({"qadam": {"warmup_steps": WARM_UP, "send": send}}, collective, compression, **options)


MOMENTA = [
    Case(
        "QAdam, exact momenta, clipping and weight decay",
        momentum("momentum", "none", optimizer=ADAM, clip=CLIP),
        qadam(roundtrip=lambda x: x),
        (3,),
        feed=clipped_by_the_user,
    ),
    Case(
        "QAdam, 8 bits both ways, clipping and weight decay",
        momentum("momentum", "int8", optimizer=ADAM, clip=CLIP),
        qadam(roundtrip=INT8),
        ties=0.02,
        dtype=torch.float32,
        feed=clipped_by_the_user,
    ),
    Case(
        "QAdam, 8 bits one way, decoupled weight decay",
        momentum("momentum", "int8", "all-gather", optimizer=ADAMW),
        qadam(roundtrip=INT8, two_way=False),
        (2, 3),
        ties=0.02,
        dtype=torch.float32,
    ),
    Case(
        "1-bit Adam as published",
        momentum("momentum", {"sign": {"block": 64}}, optimizer=ADAMW),
        one_bit(OneBitAdam, 64),
        (2, 3),
    ),
    Case(
        "1-bit Adam, preset",
        Method({"one-bit-adam": {"warmup_steps": WARM_UP}}, optimizer=ADAM),
        one_bit(ScaledOneBitAdam, 1024),
        (2, 4),
    ),
]
