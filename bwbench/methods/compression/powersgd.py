"""PowerSGD: each gradient matrix as the product of two thin factors, which are averaged in its place."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.compression.base import AbstractCodec, Shape, as_flat_fp32
from bwbench.methods.compression.linear import AbstractLinearCodec, AverageMessage
from bwbench.methods.compression.low_rank import Layout

if TYPE_CHECKING:
    import torch


class PowerSgdConfig(ComponentConfig):
    """Options of ``powersgd``.

    Attributes:
        rank: columns of the factors of each matrix.
        error_feedback: keep what the factors do not hold and add it to the next step's gradient.
    """

    rank: int = Field(2, ge=1)
    error_feedback: bool = True


class PowerSgd(AbstractLinearCodec):
    """One step of power iteration a call, after Vogels, Karimireddy and Jaggi 2019 (PowerSGD).

    For each gradient matrix M: P = M Q is averaged over the ranks and made orthonormal, Q = Mᵀ P is averaged, P Qᵀ is
    the mean, and this Q begins the next call (warm start). What is no matrix (``low_rank.Layout``) travels as it is, in
    front of the P. The residual of a rank is what its own projection P Pᵀ M leaves of M.
    """

    Config = PowerSgdConfig
    biased = True
    options: PowerSgdConfig

    def __init__(self, options: ComponentConfig | None = None) -> None:
        super().__init__(options)
        self._shapes: tuple[Shape, ...] = ()
        self._bucket = 0
        self._right: torch.Tensor | None = None  # the factors Q of the call before, flat

    def prepare(self, shapes: Sequence[Shape], rank: int = 0, bucket: int = 0) -> None:
        """Learn which matrices lie in the vectors to come."""
        super().prepare(shapes, rank, bucket)
        self._shapes, self._bucket = tuple(shapes), bucket

    def message_elements(self, num_elements: int) -> list[int]:
        """What is sent as it is and all P; then all Q, where there is a matrix."""
        layout = self._layout(num_elements)
        first = layout.num_plain + layout.left_elements
        return [first, layout.right_elements] if layout.matrices else [first]

    def payload_bytes(self, num_elements: int) -> int:
        """Both messages behind one another, as a rank on its own packs them."""
        return self._joined_bytes(self.payloads(num_elements))

    def average(self, x: torch.Tensor, average_message: AverageMessage) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean of the plain parts and the product of the averaged factors; and this rank's projection."""
        import torch

        layout = self._layout(x.numel())
        plain = layout.plain(x)
        first = torch.cat([plain, layout.left(x, self._start(layout))])
        average_message(first)
        left = layout.orthonormal(first[layout.num_plain :])
        right = layout.right(x, left)
        sent = layout.whole(plain, left, right)
        if layout.matrices:
            average_message(right)
            self._right = right
        return layout.whole(first[: layout.num_plain], left, right), sent

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """The messages of a rank on its own."""
        payloads: list[torch.Tensor] = []
        self.average(as_flat_fp32(x), self._alone(payloads))
        return self._joined(payloads)

    def decode(self, payload: torch.Tensor, num_elements: int) -> torch.Tensor:
        """The plain parts and the products of the factors."""
        layout = self._layout(num_elements)
        first, *rest = self._messages(payload, num_elements)
        plain, left = first[: layout.num_plain], layout.orthonormal(first[layout.num_plain :])
        return layout.whole(plain, left, rest[0] if rest else left)

    def fresh(self) -> AbstractCodec:
        """The same tensors, begun anew."""
        other = copy.copy(self)
        other._right = None
        other.inner = None if self.inner is None else self.inner.fresh()
        return other

    def state_dict(self) -> dict[str, torch.Tensor]:
        """A copy of the factors Q, where there are some yet."""
        state = super().state_dict()
        return state if self._right is None else {**state, "right": self._right.clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave; an empty dict begins anew."""
        super().load_state_dict({key: value for key, value in state.items() if key != "right"})
        self._right = state["right"].clone() if "right" in state else None

    def _layout(self, num_elements: int) -> Layout:
        return Layout.of(self._shapes, num_elements, self.options.rank)

    def _start(self, layout: Layout) -> torch.Tensor:
        """The factors Q to begin with: those of the call before, at first random ones, the same on all ranks."""
        import torch

        generator = torch.Generator().manual_seed(self._bucket)
        random = torch.randn(layout.right_elements, generator=generator)
        return layout.unit_vectors(random if self._right is None else self._right, random)
