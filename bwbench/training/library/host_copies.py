"""Gradients as float32 in host memory, for models of another type, or on devices whose queues are unknown here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

# Types of parameters whose gradients can be averaged as float32.
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128)
WIDER = (torch.float64, torch.complex128)  # those of them that lose digits on the way


class HostCopies:
    """Stands in for a model that is not in float32, or on a device other than ``DIRECT``.

    Nothing overlaps with the backward pass: gradients are copied when it is over, averaged, and given back in the
    parameter's own type. Complex ones travel as pairs of numbers.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._originals = list(parameters.values())
        # Only the gradients are of use, so that the values take no memory.
        self._copies = [
            nn.Parameter(torch.zeros(()).expand(_as_real(original.detach()).shape)) for original in self._originals
        ]
        self.model: nn.Module = _StandIn(dict(zip(parameters, self._copies, strict=True)))

    def fetch(self) -> None:
        """Copy the gradients to the host; a parameter without one counts as zero."""
        for original, copy in zip(self._originals, self._copies, strict=True):
            assert copy.grad is not None
            if original.grad is None:
                copy.grad.zero_()
            else:
                copy.grad.copy_(_as_real(original.grad.to_dense() if original.grad.is_sparse else original.grad))

    def give_back(self) -> None:
        """Copy the averaged gradients to where the model is."""
        for original, copy in zip(self._originals, self._copies, strict=True):
            assert copy.grad is not None
            if original.grad is None or original.grad.is_sparse:
                original.grad = torch.empty_like(original)
            _as_real(original.grad).copy_(copy.grad)


class _StandIn(nn.Module):
    """Parameters under the names that they have in the model that is stood in for."""

    def __init__(self, copies: dict[str, nn.Parameter]) -> None:
        super().__init__()
        self._copies = copies

    def named_parameters(
        self,
        prefix: str = "",
        recurse: bool = True,  # noqa: FBT001, FBT002 (torch's)
        remove_duplicate: bool = True,  # noqa: FBT001, FBT002
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """All of them; ``parameters`` asks here as well."""
        yield from self._copies.items()


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
