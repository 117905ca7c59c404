"""One node alone: the arm that asks whether a second node is worth it at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from bwbench.methods.algorithms.local_step import AbstractLocalStep
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec, Shape
from bwbench.methods.phases import Phase
from bwbench.methods.roles import Role
from bwbench.methods.traffic import Traffic


class Single(AbstractLocalStep):
    """Plain training."""

    needs_peers = False
    sends = False
    role: ClassVar[Role] = "reference"

    def traffic(
        self,
        parameter_shapes: Sequence[Shape],
        num_nodes: int,
        collective: AbstractCollective,
        make_codec: Callable[[], AbstractCodec],
    ) -> Traffic:
        """Nothing."""
        return Traffic.none(num_nodes)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """All steps are alike."""
        return (Phase("training"),)
