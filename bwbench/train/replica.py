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


def seed_everything(*numbers: int) -> None:
    """Seed all random generators from ``numbers``; equal numbers give equal streams."""
    words = np.random.SeedSequence(numbers).generate_state(2, np.uint64)
    random.seed(int(words[0]))
    np.random.seed(int(words[0]) % 2**32)
    torch.manual_seed(int(words[1]) % 2**63)


@dataclass(frozen=True)
class Snapshot:
    """Parameters, buffers, optimizer and random state at one moment."""

    model: dict[str, Any]
    optimizer: dict[str, Any]
    random: tuple[Any, ...]

    @classmethod
    def take(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> Snapshot:
        """Copies of everything."""
        state = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        return cls(copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict()), state)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Put everything back, in place."""
        model.load_state_dict(self.model)
        optimizer.load_state_dict(copy.deepcopy(self.optimizer))
        random.setstate(self.random[0])
        np.random.set_state(self.random[1])
        torch.set_rng_state(self.random[2])


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over all parameters and buffers, in the order of the model: equal replicas have equal fingerprints."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
