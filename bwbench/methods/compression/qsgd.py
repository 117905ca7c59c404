"""QSGD: stochastic rounding to a few levels of each block's norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.levels import AbstractLevelsCodec
from bwbench.methods.compression.memory import PIECE, Scratch

if TYPE_CHECKING:
    import torch


class QsgdConfig(ComponentConfig):
    """Options of ``qsgd``.

    Attributes:
        levels: s, of each sign; with zero 2s + 1 different values: 7 take 4 bits an element, 1 takes 1.6, 127 take 8.
        block: elements that share a norm; 512 as in the paper's experiments (there a bucket).
        norm: what levels are parts of: the largest magnitude, as in the paper's experiments, or the Euclidean norm of
            its theory.
    """

    levels: int = Field(7, ge=1, le=127)
    block: int = Field(512, ge=8, le=PIECE)
    norm: Literal["max", "l2"] = "max"


class Qsgd(AbstractLevelsCodec):
    """Alistarh et al. 2017: x becomes norm · sign(x) · l/s, l one of the two integers around s|x|/norm, x on average.

    Levels are packed at a fixed size where the paper uses Elias codes, whose length depends on the values.
    """

    Config = QsgdConfig
    options: QsgdConfig

    @property
    def _levels(self) -> int:
        return self.options.levels

    def _block(self, num_elements: int) -> int:
        return self.options.block

    def _measure(self, rows: torch.Tensor, measures: torch.Tensor, room: Scratch) -> None:
        import torch

        if self.options.norm == "max":
            torch.amax(room.magnitudes(rows), dim=1, out=measures[0])
        else:
            # Of fp64 sums, as the square of 1e-20 or 1e20 is none of fp32's numbers.
            measures[0].copy_(torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64))
