"""Batches of this rank, in the order that the partition deals them out."""

from __future__ import annotations

import copy
from typing import TypeAlias

import numpy as np
import torch

from bwbench.base.errors import ConfigError
from bwbench.methods.buffers import moved_like
from bwbench.training.datasets.dataset import Samples
from bwbench.training.datasets.partition import AbstractPartition

SMALLEST_SHARE = 25  # samples of a split that a rank scores, if the ranks are to divide it
Batch = tuple[torch.Tensor, torch.Tensor]


class TensorSamples:
    """A split as tensors that share the memory of its arrays.

    Args:
        like: something on the device that samples are copied to; None leaves them where they are.
    """

    def __init__(self, samples: Samples, like: torch.Tensor | None = None) -> None:
        self.inputs = torch.from_numpy(samples.inputs)
        self.targets = torch.from_numpy(samples.targets)
        if like is not None:
            self.inputs, self.targets = moved_like(self.inputs, like), moved_like(self.targets, like)

    def __len__(self) -> int:
        return len(self.targets)

    def share(self, rank: int, num_ranks: int) -> TensorSamples:
        """Every ``num_ranks``-th sample from number ``rank`` on; all of them where that would leave too few."""
        if len(self) < SMALLEST_SHARE * num_ranks:
            return self
        part = copy.copy(self)
        part.inputs, part.targets = self.inputs[rank::num_ranks], self.targets[rank::num_ranks]
        return part


class BatchFeed:
    """One batch after the other, epoch after epoch.

    A last batch of an epoch that is not full is dropped. All ranks have equally many samples in an epoch, so they drop
    alike and stay in step.

    Args:
        like: something on the device that batches are copied to; None leaves them on the host.
    """

    def __init__(
        self,
        samples: Samples,
        partition: AbstractPartition,
        num_nodes: int,
        rank: int,
        batch_size: int,
        seed: int,
        like: torch.Tensor | None = None,
    ) -> None:
        self._like = like
        self._samples, self._tensors = samples, TensorSamples(samples)
        self._partition = partition
        self._num_nodes, self._rank, self._seed = num_nodes, rank, seed
        self._batch_size = batch_size
        self._epoch = -1
        self._next_epoch()
        if len(self._order) < batch_size:
            raise ConfigError(
                f"batch_size {batch_size} is more than the {len(self._order)} training samples of each node; "
                f"use {len(self._order)} at most"
            )

    def next(self) -> Batch:
        """Inputs ``[batch, *input_shape]`` and targets ``[batch]`` or ``[batch, context]``."""
        if self._position + self._batch_size > len(self._order):
            self._next_epoch()
        chosen = self._order[self._position : self._position + self._batch_size]
        self._position += self._batch_size
        batch = self._tensors.inputs[chosen], self._tensors.targets[chosen]
        return batch if self._like is None else (moved_like(batch[0], self._like), moved_like(batch[1], self._like))

    def state_dict(self) -> dict[str, int]:
        """Where in which epoch it is; the order itself follows from the seed."""
        return {"epoch": self._epoch, "position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self._epoch = state["epoch"] - 1
        self._next_epoch()
        self._position = state["position"]

    def _next_epoch(self) -> None:
        self._epoch += 1
        order = self._partition.order(self._samples.targets, self._num_nodes, self._rank, self._epoch, self._seed)
        self._order = torch.from_numpy(np.ascontiguousarray(order))
        self._position = 0


class EmptyFeed:
    """Batches of nothing, for ever: of a model that learns nothing."""

    def next(self) -> Batch:
        """Inputs ``[1, 0]``, and a target that is always hit."""
        return torch.zeros(1, 0), torch.zeros(1, dtype=torch.int64)

    def state_dict(self) -> dict[str, int]:
        """It is nowhere."""
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing to go on from."""


AnyFeed: TypeAlias = BatchFeed | EmptyFeed
