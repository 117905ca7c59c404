"""Gradients sent in part, the rest later: error feedback, DGC, PowerSGD, random-k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bwbench.methods.compression.powersgd import LowRankLayout
from bwbench.methods.compression.random_k import places
from tests.references.case import ELEMENTS, STEEP, Case, Make, even_cut, every_step
from tests.references.compressors import sign_block, threshold, top_k
from tests.references.gradient_methods import ParameterServer
from tests.references.side_by_side import MOMENTUM, NESTEROV, Setting
from tests.references.sparse_methods import DeepGradientCompression, ErrorFeedback, PowerSGD, RandomK


def share(ratio: float) -> Callable[[Tensor], Tensor]:
    return lambda x: top_k(x, entries(ratio, x.numel()))


def entries(ratio: float, length: int) -> int:
    """How the program rounds a share: to the nearest, one at least."""
    return max(1, round(ratio * length))


def top(ratio: float, **options: Any) -> Any:
    return {"top-k": {"ratio": ratio, "exact": True, **options}}


def signs(x: Tensor) -> Tensor:
    return sign_block(x, 64)


def server(units: str, shards: Callable[[Setting], int], codec: Callable[[Tensor], Tensor]) -> Make:
    options = {"units": units, "up": codec, "down": codec, "cut": even_cut}
    return lambda s: s.plain(ParameterServer, shards=shards(s), **options)


SIGN, UPDATE = {"sign": {"block": 64}}, {"error_feedback": "update"}
FEEDBACK = [
    case
    for units, option in (("gradient", {}), ("update", UPDATE))
    for case in (
        Case(
            f"error feedback in units of the {units}: top-k",
            every_step("all-gather", top(0.05, **option), rate=STEEP),
            lambda s, units=units: s.plain(ErrorFeedback, compressor=share(0.05), units=units),
        ),
        Case(
            f"error feedback in units of the {units}: sign",
            every_step("all-gather", {"sign": {"block": 64, **option}}, rate=STEEP),
            lambda s, units=units: s.plain(ErrorFeedback, compressor=signs, units=units),
            (2, 3),
        ),
        Case(
            f"error feedback in units of the {units}: threshold",  # of the gradient in both, and of what is kept
            every_step("all-gather", {"threshold": {"value": 0.05, **option}}, rate=STEEP),
            lambda s, units=units: s.plain(
                ErrorFeedback,
                compressor=lambda x: threshold(x, 0.05),
                units=units.replace("update", "gradient-rescaled"),
            ),
            (2, 3),
        ),
        Case(
            f"sign both ways in units of the {units} (ef-signsgd)",
            every_step("scatter-gather", {"sign": {"block": 64, **option}}, rate=STEEP),
            server(units, lambda s: s.ranks, signs),
            (2, 3),
        ),
        Case(
            f"parameter server, top-k both ways in units of the {units}",
            every_step("parameter-server", top(0.05, **option), rate=STEEP),
            server(units, lambda s: 1, share(0.05)),
            (2, 3),
        ),
    )
]


def dgc(**options: Any) -> Make:
    return lambda s: s.plain(DeepGradientCompression, count=entries, **options)


def start_factors(s: Setting, rank: int, bucket: int = 0) -> list[Tensor | None]:
    """The random factors that the program begins with; None where they are not smaller than the tensor."""
    shapes, begin, places_of = s.shapes, 0, {}
    for index in s.order:
        places_of[begin] = index
        begin += s.parameters[0][index].numel()
    layout = LowRankLayout.of([shapes[index] for index in s.order], begin, rank)
    random = torch.randn(layout.right_elements, generator=torch.Generator().manual_seed(bucket))
    factors: list[Tensor | None] = [None] * len(shapes)
    for matrix, factor in zip(layout.matrices, random.split([rank * m.cols for m in layout.matrices]), strict=True):
        factors[places_of[matrix.begin]] = factor.view(rank, -1).t().to(s.parameters[0][0].dtype)
    return factors


def powersgd(rank: int, **options: Any) -> Make:
    return lambda s: s.ruled(PowerSGD, initial_q=start_factors(s, rank), **options)


def random_k(**options: Any) -> Make:
    def indices(step: int) -> Tensor:
        return torch.from_numpy(places(0, step, ELEMENTS, entries(0.1, ELEMENTS)))

    return lambda s: s.plain(RandomK, indices=indices, **options)


IN_PART = [
    Case(
        "DGC with warm-up",
        every_step("all-gather", {"dgc": {"ratio": 0.02, "warmup_steps": 10}}),
        dgc(share_end=0.02, share_steps=10),
    ),
    Case(
        "DGC with clipping",  # the paper's norm of one rank: that of the mean over the root of N
        every_step("all-gather", {"dgc": {"ratio": 0.05, "clip_norm": 1.0}}),
        lambda s: dgc(share_end=0.05, clip=1.0 * s.ranks**0.5)(s),
        (2, 3),
    ),
    Case(
        "PowerSGD, rank 1",  # at 2 ranks the reference in fp32 is up to 1e-5 from itself in fp64, by processor
        every_step("ring", {"powersgd": {"rank": 1}}, MOMENTUM),
        powersgd(1),
        grows=True,
    ),
    Case(
        "PowerSGD, rank 2",  # at 2 ranks a last bit has become 1e-4 after 26 steps
        every_step("ring", {"powersgd": {"rank": 2}}, NESTEROV),
        powersgd(2),
        (2, 4),
        grows=True,
    ),
    Case(
        "PowerSGD without feedback",
        every_step("all-gather", {"powersgd": {"rank": 2, "error_feedback": False}}, MOMENTUM),
        powersgd(2, feedback=False),
        (3,),
    ),
    Case("random-k", every_step("ring", "random-k"), random_k()),
    Case("random-k in units of the update", every_step("ring", {"random-k": UPDATE}), random_k(units="update"), (3,)),
    Case(
        "random-k, unbiased",
        every_step("all-gather", {"random-k": {"unbiased": True}}),
        random_k(feedback=False, unbiased=True),
        (2,),
    ),
]
