"""What is remembered from step to step, as flat dicts of tensors: by codecs, collectives and methods, on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypedDict

from bwbench.base.plain_data import JsonObject
from bwbench.methods.deferred import torch

State = dict[str, "torch.Tensor"]
STATE_FORMAT = 1


class Remembers(Protocol):
    """Whatever has a state of its own: a codec, a collective, a running method."""

    def state_dict(self) -> State:
        """Copies of everything that is remembered."""

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""


def remembered(codecs: Sequence[Remembers], collective: Remembers) -> State:
    """``codec.<bucket>.<key>`` and ``collective.<key>``; on every rank its own."""
    state = below("collective.", collective.state_dict())
    for number, codec in enumerate(codecs):
        state |= below(f"codec.{number}.", codec.state_dict())
    return state


def remember(state: State, codecs: Sequence[Remembers], collective: Remembers) -> None:
    """Take back what ``remembered`` gave, whatever stands beside it; an empty dict forgets everything."""
    collective.load_state_dict(part(state, "collective."))
    for number, codec in enumerate(codecs):
        codec.load_state_dict(part(state, f"codec.{number}."))


def below(prefix: str, state: State) -> State:
    """The entries with a prefix before their keys."""
    return {f"{prefix}{key}": value for key, value in state.items()}


def part(state: State, prefix: str) -> State:
    """The entries below a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


class SavedMethod(TypedDict):
    """What a method remembers on one rank, and whose it is."""

    format: int
    rank: int
    world_size: int
    method: JsonObject
    algorithm: State


def saved_state(method: Remembers, rank: int, world_size: int, asked: JsonObject) -> SavedMethod:
    """Copies of all that a method remembers besides model and optimizer, and whose it is; after ``drain``.

    Plain numbers, text and tensors, which ``torch.load(..., weights_only=True)`` reads.

    Args:
        asked: ``algorithm``, ``collective`` and ``compression`` as they would stand in an experiment file.
    """
    state = {key: value.clone() for key, value in method.state_dict().items()}
    return {"format": STATE_FORMAT, "rank": rank, "world_size": world_size, "method": asked, "algorithm": state}


def load_saved_state(method: Remembers, saved: SavedMethod, rank: int, world_size: int, asked: JsonObject) -> None:
    """Take back what ``saved_state`` gave; model and optimizer have been restored already.

    Raises ValueError where the state is another rank's, or of another method or number of ranks.
    """
    expected = {"format": STATE_FORMAT, "rank": rank, "world_size": world_size, "method": asked}
    for key, value in expected.items():
        if saved.get(key) != value:
            raise ValueError(f"the state is of {key} {saved.get(key)!r}, and this is {key} {value!r}")
    method.load_state_dict(saved["algorithm"])
