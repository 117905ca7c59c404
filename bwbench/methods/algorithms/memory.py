"""What codecs and a collective remember between exchanges, as one flat dict of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec

if TYPE_CHECKING:
    import torch

State = dict[str, "torch.Tensor"]


def remembered(codecs: Sequence[AbstractCodec], collective: AbstractCollective) -> State:
    """``codec.<bucket>.<key>`` and ``collective.<key>``; on every rank its own."""
    state = {f"collective.{key}": value for key, value in collective.state_dict().items()}
    for number, codec in enumerate(codecs):
        state |= {f"codec.{number}.{key}": value for key, value in codec.state_dict().items()}
    return state


def remember(state: State, codecs: Sequence[AbstractCodec], collective: AbstractCollective) -> None:
    """Take back what ``remembered`` gave; an empty dict forgets everything."""
    collective.load_state_dict(part(state, "collective."))
    for number, codec in enumerate(codecs):
        codec.load_state_dict(part(state, f"codec.{number}."))


def part(state: State, prefix: str) -> State:
    """The entries below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
