"""Gradients averaged in every step, as they are or rounded."""

from __future__ import annotations

from typing import Any

import torch

from tests.references.case import Case, Make, even_cut, every_step
from tests.references.compressors import minmax_uint8
from tests.references.gradient_methods import ByteGrad, GradientAllReduce
from tests.references.replicas import Replicas
from tests.references.side_by_side import ADAM, ADAMW, MOMENTUM, NESTEROV, Method, Setting, roundtrip
from tests.references.sparse_methods import ErrorFeedback


def all_reduce(s: Setting) -> Replicas:
    return s.ruled(GradientAllReduce)


HIERARCHICAL = {"hierarchical": {"workers_per_host": 2}}
GRADIENTS = [
    Case("mean gradient, ring", every_step("ring", optimizer=MOMENTUM), all_reduce),
    Case("mean gradient, all-gather", every_step("all-gather", optimizer=NESTEROV), all_reduce, (2, 4)),
    Case("mean gradient, parameter-server", every_step("parameter-server", optimizer=ADAM), all_reduce, (2, 3)),
    Case("mean gradient, scatter-gather", every_step("scatter-gather", optimizer=ADAMW), all_reduce, (3, 4)),
    Case("mean gradient, hierarchical", every_step(HIERARCHICAL, optimizer=MOMENTUM), all_reduce, (3, 4)),
    Case("mean gradient, torch's DDP", Method("ddp", optimizer=MOMENTUM, twin=True), all_reduce, (2, 3)),
    Case(
        "mean gradient, small buckets",
        Method({"every-step": {"bucket": "500 B"}}, "ring", optimizer=MOMENTUM),
        all_reduce,
        (3,),
    ),
    Case(
        "mean gradient, warm-up of async", Method({"async": {"warmup_steps": 99}}, optimizer=MOMENTUM), all_reduce, (2,)
    ),
]


def both_ways(codec: str, **options: Any) -> Make:
    return lambda s: s.ruled(ByteGrad, roundtrip=roundtrip(codec, **options), cut=even_cut)


def one_way(codec: str, **options: Any) -> Make:
    return lambda s: s.ruled(ErrorFeedback, units="gradient", compressor=roundtrip(codec, **options), feedback=False)


BAGUAS = {"int8": {"epsilon": "bagua"}}
ROUNDED = [
    Case("ByteGrad", every_step("scatter-gather", "int8", MOMENTUM), both_ways("int8"), dtype=torch.float32),
    Case(
        "ByteGrad, Bagua's formula in place of our codec",  # whose grid is up to 2^-15 wider: values fall a level apart
        every_step("scatter-gather", BAGUAS, MOMENTUM),
        lambda s: s.ruled(ByteGrad, roundtrip=minmax_uint8, cut=even_cut),
        (2, 3),
        tolerance=1 / 255,
    ),
    Case("fp16 both ways", every_step("scatter-gather", "fp16", ADAM), both_ways("fp16"), (3,), dtype=torch.float32),
    Case(
        "bf16 both ways", every_step("scatter-gather", "bf16", MOMENTUM), both_ways("bf16"), (4,), dtype=torch.float32
    ),
    Case("fp16 one way", every_step("all-gather", "fp16", MOMENTUM), one_way("fp16"), (2,), dtype=torch.float32),
]
