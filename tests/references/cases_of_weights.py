"""Weights averaged with peers or every so many steps: gossip, local SGD, DiLoCo."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bwbench.methods.algorithms.diloco import in_fragments
from tests.references.case import ELEMENTS, INT2, INT4, INT8, Case, Make, even_cut, every_step, never, rounds_of
from tests.references.gossip import Decentralized, LowPrecisionDecentralized
from tests.references.gradient_methods import GradientAllReduce
from tests.references.periodic import DiLoCo, LocalSGD, SparseLoCo, StreamingDiLoCo
from tests.references.replicas import Replicas, Roundtrip, scatter_gather
from tests.references.rules import Tensors
from tests.references.side_by_side import ADAM, ADAMW, MOMENTUM, MUON, NESTEROV, Method, Optimizer, Setting, roundtrip


def gossip(peers: str, interval: int = 1) -> Make:
    return lambda s: s.ruled(Decentralized, peers=peers, interval=interval, first=interval - 1)


def low_precision(**options: Any) -> Make:
    return lambda s: s.ruled(LowPrecisionDecentralized, **options)


GOSSIP = [
    Case("decentralized", Method("decentralized", optimizer=MOMENTUM), gossip("all"), equal=never),
    Case(
        "decentralized, every third step",
        Method({"decentralized": {"interval": 3}}, optimizer=ADAM),
        gossip("all", 3),
        (3,),
        never,
    ),
    Case("shift-one", Method("decentralized-shift-one", optimizer=MOMENTUM), gossip("shift-one"), (2, 4), never),
    Case(
        "shift-one, every third step",
        Method({"decentralized-shift-one": {"interval": 3}}),
        gossip("shift-one", 3),
        (4,),
        never,
    ),
    Case(
        "low-precision decentralized, exact differences",
        Method("low-precision-decentralized", compression="none", optimizer=MOMENTUM),
        low_precision(roundtrip=lambda x: x),
        (2, 3),
        equal=never,
    ),
    Case(
        "low-precision decentralized",  # a level of some differences; what one exchange rounds, the next one mends
        Method("low-precision-decentralized", optimizer=MOMENTUM),
        low_precision(roundtrip=INT8),
        equal=never,
        tolerance=1e-3,
        dtype=torch.float32,
    ),
]


def periodic(name: str, collective: str = "ring", compression: Any = "none", **options: Any) -> dict[str, Any]:
    return {"algorithm": {name: options}, "collective": collective, "compression": compression}


def local_sgd(**options: Any) -> Make:
    return lambda s: s.ruled(LocalSGD, **options)


def diloco(kind: type[Replicas] = DiLoCo, **options: Any) -> Make:
    return lambda s: s.ruled(kind, **options)


class BothWays(DiLoCo):
    """The means come back compressed, with errors kept on both ways (scatter-gather)."""

    code: Roundtrip = staticmethod(INT4)

    def average(self, changes: Tensors) -> Tensor:
        if not hasattr(self, "up"):
            self.up, self.down = [self.zeros() for _ in changes], self.zeros()
        cuts = even_cut(len(self.reference), self.ranks)
        return scatter_gather(changes, cuts, self.code, self.code, self.up, self.down)


class BothWaysInTwoBits(BothWays):
    """The same in two bits."""

    code = staticmethod(INT2)


# Momenta of few batches have singular values of zero; what rounding leaves there grows some 500 times in five steps.
ROUGH = 2e-5
AS_TORCH = {"coefficients": "jordan", "nesterov": True, "scale": "original"}
JORDANS = Optimizer(MUON.kind, 0.02, {**MUON.options, **AS_TORCH}, "muon")


def streaming(fragments: int, period: int, **options: Any) -> Make:
    """Fragments as the program cuts them: behind one another in the model's order, between rows."""

    def make(s: Setting) -> Replicas:
        parts = in_fragments(s.shapes, fragments).parts
        lengths = [sum(math.prod(shape) for bucket in part for shape in bucket) for part in parts]
        indices = list(torch.arange(ELEMENTS).split(lengths))
        offsets = [number * period // len(parts) for number in range(len(parts))]
        order = list(range(len(s.shapes)))
        return s.ruled(StreamingDiLoCo, order=order, period=period, fragments=indices, offsets=offsets, **options)

    return make


MULOCO = {"outer_lr": 0.7, "outer_momentum": 0.6}
SPARSE = [{"top-k": {"ratio": 1 / 16, "chunk": 64, "error_feedback": {"decay": 0.95}}}, {"int2": {"block": 512}}]
ROUNDS = [
    Case(
        "local SGD",
        Method(**periodic("local-sgd", period=4), optimizer=MOMENTUM),
        local_sgd(period=4),
        equal=rounds_of(4),
    ),
    Case(
        "post-local SGD",
        Method(**periodic("local-sgd", period=5, warmup=7), optimizer=ADAM),
        local_sgd(period=5, warmup_steps=7),
        (2, 3),
        rounds_of(5, 7),
    ),
    Case(
        "local SGD, means 3 steps late",
        Method(**periodic("local-sgd", period=5, overlap=3), optimizer=NESTEROV),
        local_sgd(period=5, overlap=3),
        (2, 3),
        never,
    ),
    Case(
        "DiLoCo with AdamW inside",
        Method(**periodic("diloco", period=5), optimizer=ADAMW),
        diloco(period=5),
        equal=rounds_of(5),
    ),
    Case(
        "DiLoCo, 8 bits one way",
        Method(**periodic("diloco", "all-gather", "int8", period=5), optimizer=ADAMW),
        diloco(period=5, roundtrip=INT8),
        (2, 3),
        rounds_of(5),
        ties=0.02,
        dtype=torch.float32,
    ),
    Case(
        "DiLoCo, 4 bits both ways with feedback (diloco-int4)",
        Method({"diloco-int4": {"period": 5}}, optimizer=ADAMW),
        diloco(BothWays, period=5),
        (2, 3),
        rounds_of(5),
        ties=0.02,
        dtype=torch.float32,
    ),
    Case(
        "streaming DiLoCo, overlap and mix",
        Method(**periodic("streaming-diloco", period=8, overlap=3, mix=0.25, fragments=3), optimizer=ADAMW),
        streaming(3, 8, overlap=3, mix=0.25),
        equal=never,
    ),
    Case(
        "streaming DiLoCo without overlap, 4 bits one way",
        Method(
            **periodic(
                "streaming-diloco", "all-gather", {"int4": {"error_feedback": False}}, period=6, overlap=0, fragments=2
            ),
            optimizer=ADAMW,
        ),
        streaming(2, 6, roundtrip=INT4),
        (2, 3),
        never,
        ties=0.02,
        dtype=torch.float32,
    ),
    Case(
        "Muon in every step", every_step("ring", optimizer=MUON), lambda s: s.ruled(GradientAllReduce), tolerance=ROUGH
    ),
    Case(
        "Muon as torch has it, Nesterov and one triple",
        every_step("ring", optimizer=JORDANS),
        lambda s: s.ruled(GradientAllReduce),
        (2, 3),
        tolerance=ROUGH,
    ),
    Case(
        "MuLoCo",
        Method(**periodic("muloco", period=5), optimizer=MUON),
        diloco(period=5, **MULOCO),
        equal=rounds_of(5),
        tolerance=ROUGH,
    ),
    Case(
        "MuLoCo, 2 bits both ways with feedback (muloco-int2)",
        Method({"muloco-int2": {"period": 5}}, optimizer=MUON),
        diloco(BothWaysInTwoBits, period=5, **MULOCO),
        (2, 3, 4),
        rounds_of(5),
        tolerance=ROUGH,
        ties=0.02,
        dtype=torch.float32,
    ),
    Case(
        "SparseLoCo, chunks and decay of the residual",
        Method(
            **periodic("diloco", "all-gather", SPARSE, period=5, outer_lr=1.0, outer_momentum=0.0), optimizer=NESTEROV
        ),
        diloco(SparseLoCo, period=5, k=4, chunk=64, roundtrip=roundtrip("int2"), quantise_chunk=False),
        equal=rounds_of(5),
    ),
    Case(
        "SparseLoCo, preset",  # of a chunk that is shorter than 4096 the same share is sent, not as many entries
        Method({"sparseloco": {"period": 5}}, optimizer=NESTEROV),
        diloco(SparseLoCo, period=5, k=round(ELEMENTS / 64), roundtrip=roundtrip("int2"), quantise_chunk=False),
        (2,),
        rounds_of(5),
    ),
]
