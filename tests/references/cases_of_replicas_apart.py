"""Replicas that never agree on everything: eager DiLoCo, NoLoCo, SPARTA, LOSCAR, and the moments of DES-LOC."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bwbench.methods.collectives.gossip import random_peers
from bwbench.methods.compression.random_k import places
from tests.references.case import ELEMENTS, INT8, Case, Make, never, rounds_of
from tests.references.cases_in_part import entries
from tests.references.cases_of_weights import periodic
from tests.references.des_loc import DesLoc
from tests.references.eager_diloco import EagerDiLoCo
from tests.references.noloco import NoLoCo
from tests.references.side_by_side import ADAM, ADAMW, MOMENTUM, NESTEROV, Method, Setting
from tests.references.sparta import SparseAveraging


def eager(**options: Any) -> Make:
    return lambda s: s.ruled(EagerDiLoCo, **options)


EAGER = [
    Case(
        "eager DiLoCo with AdamW inside",
        Method(**periodic("eager-diloco", period=4), optimizer=ADAMW),
        eager(period=4),
        equal=never,
    ),
    Case(
        "eager DiLoCo with momentum inside, all-gather",
        Method(
            **periodic("eager-diloco", "all-gather", period=3, outer_lr=0.4, outer_momentum=0.6), optimizer=MOMENTUM
        ),
        eager(period=3, outer_lr=0.4, outer_momentum=0.6),
        (2, 4),
        never,
    ),
    Case(
        "eager DiLoCo, 8 bits one way",
        Method(**periodic("eager-diloco", "all-gather", "int8", period=5), optimizer=ADAMW),
        eager(period=5, roundtrip=INT8),
        (2, 3),
        never,
        ties=0.02,
        dtype=torch.float32,
    ),
]


def noloco(paired: bool = True, **options: Any) -> Make:
    """With the pairs that all ranks draw: told to the reference, which sees to it that they are pairs."""

    def make(s: Setting) -> NoLoCo:
        def peers(number: int) -> Sequence[int]:
            return random_peers(number, s.ranks)

        reference = s.ruled(NoLoCo, peers=peers if paired else None, **options)
        assert isinstance(reference, NoLoCo)
        return reference

    return make


AS_THEIR_PROGRAM = {"period": 4, "outer_lr": 0.7, "outer_momentum": 0.5, "pull": 0.7}
PAIRS = [
    Case("NoLoCo, preset", Method({"noloco": {"period": 4}}, optimizer=ADAMW), noloco(period=4), (2, 4, 6), never),
    Case(
        "NoLoCo, pull as in its authors' program",
        Method({"noloco": AS_THEIR_PROGRAM}, optimizer=MOMENTUM),
        noloco(**AS_THEIR_PROGRAM),
        (2, 4),
        never,
    ),
    Case(
        "NoLoCo, pairs 3 steps late",
        Method({"noloco": {"period": 4, "overlap": 3}}, optimizer=ADAMW),
        noloco(period=4, overlap=3),
        (2, 4),
        never,
    ),
    Case(
        "NoLoCo, pairs a whole round late",
        Method({"noloco": {"period": 3, "overlap": 3, "outer_momentum": 0.3}}, optimizer=MOMENTUM),
        noloco(period=3, overlap=3, outer_momentum=0.3),
        (4,),
        never,
    ),
    Case(
        "NoLoCo, all in one group",
        Method(**periodic("noloco", period=4), optimizer=NESTEROV),
        noloco(paired=False, period=4),
        (3,),
        rounds_of(4),
    ),
]


def seen_in(number: int, ratio: float) -> Tensor:
    """The places of a round, as those of random-k."""
    return torch.from_numpy(places(0, number, ELEMENTS, entries(ratio, ELEMENTS)))


def sparta(ratio: float, **options: Any) -> Make:
    return lambda s: s.ruled(SparseAveraging, places=partial(seen_in, ratio=ratio), **options)


SPARSE = [
    Case("SPARTA, preset", Method("sparta", optimizer=ADAMW), sparta(0.005), equal=never),
    Case(
        "SPARTA, a tenth every other step",
        Method({"sparta": {"ratio": 0.1, "period": 2}}, optimizer=MOMENTUM),
        sparta(0.1, period=2),
        (2, 4),
        never,
    ),
    Case(
        "SPARTA, a step late",
        Method({"sparta": {"ratio": 0.05, "overlap": 1}}, optimizer=ADAMW),
        sparta(0.05, overlap=1),
        (4,),
        never,
    ),
    Case("SPARTA, all parameters", Method({"sparta": {"ratio": 1.0}}, optimizer=NESTEROV), sparta(1.0), (3,)),
    Case("LOSCAR, preset", Method("loscar", optimizer=ADAMW), sparta(0.1, period=16, overlap=8), (2, 3), never),
    Case(
        "LOSCAR, means 3 steps late",
        Method({"loscar": {"ratio": 0.2, "period": 4, "overlap": 3}}, optimizer=MOMENTUM),
        sparta(0.2, period=4, overlap=3),
        equal=never,
    ),
    Case(
        "LOSCAR, means a whole round late",
        Method({"loscar": {"ratio": 0.2, "period": 3, "overlap": 3}}, optimizer=ADAMW),
        sparta(0.2, period=3, overlap=3),
        (2, 4),
        never,
    ),
]


def des_loc(**options: Any) -> Make:
    return lambda s: s.ruled(DesLoc, **options)


OTHER_PERIODS = {"period": 3, "first_moment": 1, "second_moment": 4}
TOGETHER = {"period": 1, "first_moment": 1, "second_moment": 1}
MOMENTS = [
    Case(
        "DES-LOC, Adam", Method(**periodic("des-loc", period=2), optimizer=ADAM), des_loc(period=2), equal=rounds_of(2)
    ),
    Case(
        "DES-LOC, AdamW and other periods",
        Method(**periodic("des-loc", **OTHER_PERIODS), optimizer=ADAMW),
        des_loc(**OTHER_PERIODS),
        (2, 4),
        rounds_of(3),
    ),
    Case(
        "DES-LOC, all means in every step",
        Method(**periodic("des-loc", "all-gather", **TOGETHER), optimizer=ADAMW),
        des_loc(**TOGETHER),
        (3,),
    ),
    Case(
        "DES-LOC, parameters in 8 bits one way",
        Method(**periodic("des-loc", "all-gather", "int8", period=2), optimizer=ADAMW),
        des_loc(period=2, roundtrip=INT8),
        (2, 3),
        rounds_of(2),
        ties=0.02,
        dtype=torch.float32,
    ),
]

APART = [*EAGER, *PAIRS, *SPARSE, *MOMENTS]
