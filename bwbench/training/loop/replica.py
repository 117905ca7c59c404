"""The state of a replica: made from a seed, put back after the warm-up, and fingerprinted at the end."""

from __future__ import annotations

import copy
import hashlib
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bwbench.methods.buffers import bytes_of


def seed_everything(*numbers: int) -> None:
    """Seed all random generators from ``numbers``; equal numbers give equal streams."""
    words = np.random.SeedSequence(numbers).generate_state(2, np.uint64)
    random.seed(int(words[0]))
    np.random.seed(int(words[0]) % 2**32)
    torch.manual_seed(int(words[1]) % 2**63)


@dataclass(frozen=True)
class ReplicaSnapshot:
    """Parameters, buffers, optimizer and random state at one moment."""

    model: dict[str, Any]
    optimizer: dict[str, Any]
    random: dict[str, Any]

    @classmethod
    def take(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> ReplicaSnapshot:
        """Copies of everything, in types that ``torch.load(..., weights_only=True)`` reads."""
        return cls(copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()), _random_state())

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put everything back, in place."""
        model.load_state_dict(self.model)
        optimizer.load_state_dict(copy.deepcopy(self.optimizer))
        _set_random_state(self.random)


def _random_state() -> dict[str, Any]:
    name, key, position, has_gauss, cached_gauss = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(key).astype(np.int64)), position, has_gauss, cached_gauss),
        "torch": torch.get_rng_state(),
    }


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    name, key, *rest = state["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over all parameters and buffers, in the order of the model: equal replicas have equal fingerprints."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()
