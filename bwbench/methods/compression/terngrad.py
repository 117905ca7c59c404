"""TernGrad: each element becomes -c, 0 or c, at random but right on average."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.levels import AbstractLevelsCodec
from bwbench.methods.compression.memory import PIECE, Scratch

if TYPE_CHECKING:
    import torch


class TernGradConfig(ComponentConfig):
    """Options of ``terngrad``.

    Attributes:
        block: elements that share a scale.
        clip: first cut values off at so many standard deviations of their block, 2.5 in the paper: less noise, but
            what is cut off is lost for good. None: nothing is cut off, and the codec is unbiased.
    """

    block: int = Field(512, ge=8, le=PIECE)
    clip: float | None = Field(None, gt=0.0)


class TernGrad(AbstractLevelsCodec):
    """Wen et al. 2017: sign(x)·c with probability \\|x\\|/c, else 0, where c is the largest magnitude of the block.

    Five elements share a byte (3^5 = 243).
    """

    Config = TernGradConfig
    options: TernGradConfig

    @property
    def _levels(self) -> int:
        return 1

    def _block(self, num_elements: int) -> int:
        return self.options.block

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        import torch

        torch.amax(room.magnitudes(rows), dim=1, out=measures[0])
        if self.options.clip is not None and rows.shape[1] > 1:
            deviation = rows.double().std(dim=1, correction=0)
            # A constant block has no deviation; nothing of it is an outlier.
            limit = torch.where(deviation > 0, self.options.clip * deviation, float("inf"))
            torch.where(measures[0].isfinite(), torch.minimum(measures[0], limit.float()), measures[0], out=measures[0])
