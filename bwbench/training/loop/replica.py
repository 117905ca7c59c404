"""The state of a replica: made from a seed, put back after the warm-up, and fingerprinted at the end."""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import nn

from bwbench.methods.buffers import bytes_of
from bwbench.methods.memory import State


def seed_everything(*numbers: int) -> None:
    """Seed all random generators from ``numbers``; equal numbers give equal streams."""
    words = np.random.SeedSequence(numbers).generate_state(2, np.uint64)
    random.seed(int(words[0]))
    np.random.seed(int(words[0]) % 2**32)
    torch.manual_seed(int(words[1]) % 2**63)


class RandomState(TypedDict):
    """Of the three generators, each as it gives its own."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    torch: torch.Tensor
    cuda: NotRequired[torch.Tensor]  # of the GPU that the model is on


class Replica(TypedDict):
    """Parameters and buffers, what the optimizer remembers, and the random state, at one moment."""

    model: State
    optimizer: Mapping[str, object]
    random: RandomState


def copy_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Replica:
    """Copies of everything, in types that ``torch.load(..., weights_only=True)`` reads."""
    name, key, position, has_gauss, cached_gauss = np.random.get_state()
    numbers = torch.from_numpy(np.asarray(key).astype(np.int64))
    device = next(model.parameters()).device
    on_gpu: dict[str, torch.Tensor] = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {
        "model": copy.deepcopy(model.state_dict()),
        "optimizer": copy.deepcopy(optimizer.state_dict()),
        "random": {
            "python": random.getstate(),
            "numpy": (name, numbers, position, has_gauss, cached_gauss),
            "torch": torch.get_rng_state(),
            **on_gpu,  # type: ignore[typeddict-item]
        },
    }


def put_back(replica: Replica, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make everything as it was, in place."""
    model.load_state_dict(replica["model"])
    optimizer.load_state_dict(dict(copy.deepcopy(replica["optimizer"])))
    state = replica["random"]
    random.setstate(state["python"])
    name, key, *rest = state["numpy"]
    np.random.set_state((name, key.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], next(model.parameters()).device)


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over all parameters and buffers, in the order of the model: equal replicas have equal fingerprints."""
    return digest(model.state_dict().items()).hex()


def digest(tensors: Iterable[tuple[object, torch.Tensor]]) -> bytes:
    """SHA-256 of names (or numbers), types, shapes and values: equal for equal bits."""
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(bytes_of(tensor))
    return found.digest()
