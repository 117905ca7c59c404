"""Gradients of which a part arrives, transformed or late: DeMo, its codec in DiLoCo, CocktailSGD, delayed top-k."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bwbench.methods.compression.random_k import places
from tests.references.case import ELEMENTS, INT4, Case, Make, every_step, rounds_of
from tests.references.cases_in_part import entries, share, top
from tests.references.decoupled import Cocktail, DelayedErrorFeedback, DeMo, dct_top_k
from tests.references.periodic import DiLoCo
from tests.references.replicas import Replicas
from tests.references.side_by_side import ADAMW, MOMENTUM, SGD, Method, Optimizer, Setting

SIGNED = Optimizer(torch.optim.SGD, 0.01, {"weight_decay": 0.1})
DECAY = 0.99


def frequencies(k: int, block: int, **options: Any) -> Any:
    return {"dct-top-k": {"k": k, "block": block, **options}}


def demo(k: int, block: int) -> Method:
    return Method("demo", compression=frequencies(k, block, error_feedback=MOMENTUM_OF_DEMO), optimizer=SIGNED)


def demo_reference(k: int, block: int) -> Make:
    return lambda s: s.plain(DeMo, decay=DECAY, k=k, block=block, **s.optimizer.options)


def diloco_of_frequencies(k: int, block: int) -> Make:
    """Rounds of what the codec makes of each tensor, in the order in which a bucket holds them."""

    def make(s: Setting) -> Replicas:
        shapes = [s.shapes[index] for index in s.order]

        def roundtrip(vector: Tensor) -> Tensor:
            parts = vector.split([math.prod(shape) for shape in shapes])
            sent = [dct_top_k(x.reshape(shape), k, block) for x, shape in zip(parts, shapes, strict=True)]
            return torch.cat([part.reshape(-1) for part in sent])

        return s.ruled(DiLoCo, period=5, roundtrip=roundtrip)

    return make


def cocktail(s: Setting) -> Replicas:
    seen = entries(0.3, ELEMENTS)

    def indices(step: int) -> Tensor:
        return torch.sort(torch.from_numpy(places(0, step, ELEMENTS, seen))).values

    return s.plain(Cocktail, indices=indices, k=entries(0.2, seen), roundtrip=INT4)


def delayed(ratio: float, staleness: int) -> Make:
    return lambda s: s.ruled(DelayedErrorFeedback, compressor=share(ratio), staleness=staleness)


MOMENTUM_OF_DEMO = {"in": "update", "decay": DECAY}
COCKTAIL = [{"random-subset": {"ratio": 0.3}}, top(0.2), "int4"]
# A mean of nearly nothing has either sign, by its last bit, and a step has one size: such a parameter is two steps off.
DECOUPLED = [
    Case("DeMo, blocks of 8 by 8", demo(6, 8), demo_reference(6, 8), ties=0.02),
    Case("DeMo, one block a tensor", demo(32, 64), demo_reference(32, 64), (4,), ties=0.02),
    Case(
        "DiLoCo, the largest frequencies of each block, one way",
        Method({"diloco": {"period": 5}}, "all-gather", frequencies(6, 8, error_feedback=False), ADAMW),
        diloco_of_frequencies(6, 8),
        (2, 4),
        rounds_of(5),
    ),
    Case(
        "CocktailSGD's three codecs, one way",
        every_step("all-gather", COCKTAIL, SGD),
        cocktail,
        ties=0.02,
        dtype=torch.float32,
    ),
    Case(
        "top-k, 2 steps late (deco-sgd)",
        Method({"deco-sgd": {"ratio": 0.05, "staleness": 2}}, optimizer=MOMENTUM),
        delayed(0.05, 2),
    ),
    Case("top-k, not late (deco-sgd)", Method({"deco-sgd": {"ratio": 0.05, "staleness": 0}}), delayed(0.05, 0), (2, 3)),
]
