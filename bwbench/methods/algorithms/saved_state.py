"""What one rank's algorithm remembers, with whom it belongs to: for checkpoints of the harness and of the library."""

from __future__ import annotations

from typing import Any

from bwbench.methods.algorithms.base import AbstractAlgorithm

STATE_FORMAT = 1


def saved_state(algorithm: AbstractAlgorithm, rank: int, world_size: int, method: dict[str, Any]) -> dict[str, Any]:
    """Copies of all that is remembered besides model and optimizer; after ``drain``.

    Plain numbers, text and tensors, which ``torch.load(..., weights_only=True)`` reads.

    Args:
        method: ``algorithm``, ``collective`` and ``compression`` as they would stand in an experiment file.
    """
    state = {key: value.clone() for key, value in algorithm.state_dict().items()}
    return {**_identity(rank, world_size, method), "algorithm": state}


def load_saved_state(
    algorithm: AbstractAlgorithm, state: dict[str, Any], rank: int, world_size: int, method: dict[str, Any]
) -> None:
    """Take back what ``saved_state`` gave; model and optimizer have been restored already.

    Raises ValueError where the state is another rank's, or of another method or number of ranks.
    """
    for key, value in _identity(rank, world_size, method).items():
        if state.get(key) != value:
            raise ValueError(f"the state is of {key} {state.get(key)!r}, and this is {key} {value!r}")
    algorithm.load_state_dict(state["algorithm"])


def _identity(rank: int, world_size: int, method: dict[str, Any]) -> dict[str, Any]:
    return {"format": STATE_FORMAT, "rank": rank, "world_size": world_size, "method": method}
