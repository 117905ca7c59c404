"""Dealing samples out so that, in every step, all ranks get samples of like cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.data import Sampler

from bwbench.base.errors import ConfigError


class LoadBalancedSampler(Sampler[int]):
    """A ``DistributedSampler`` for samples that differ in cost, such as sentences or graphs.

    A synchronous step takes as long as its slowest rank. So samples are sorted by cost and cut into groups of one
    sample a rank: what the ranks draw at the same time costs nearly the same, whatever the batch size. The order of
    the groups is shuffled, and so is who gets which sample of a group, or one rank would always get the cheapest.

    After ``LoadBalancingDistributedSampler`` of Bagua (Gan et al. 2021). We differ in that what is left out
    (``drop_last``) or repeated is chosen before sorting, because behind it that would always be the costliest samples;
    in that members of a group are shuffled; and in that the noise of ``random_level`` is continuous.

    Args:
        data: the data set, or anything with a length.
        cost: of a sample: numbers in the order of ``data``, or a function that gets one sample of ``data``,
            called once for each.
        num_replicas: ranks; None takes those of ``torch.distributed``, or of torchrun's environment.
        rank: of this process; None likewise.
        shuffle: another order in each epoch; call ``set_epoch`` at the begin of each. Otherwise groups come in the
            order of their cost.
        seed: equal on all ranks.
        drop_last: leave out up to ``num_replicas - 1`` samples rather than repeat some.
        random_level: noise added to the costs before sorting, in parts of their range: 0 balances best, 1 mixes almost
            freely. Needs ``shuffle``.

    Raises ConfigError where an argument is out of range, or costs are not one finite number a sample.
    """

    def __init__(
        self,
        data: Sized,
        cost: Sequence[float] | NDArray[Any] | Callable[[Any], float],
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        random_level: float = 0.0,
    ) -> None:
        self.num_replicas = _world("WORLD_SIZE", 1) if num_replicas is None else num_replicas
        self.rank = _world("RANK", 0) if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ConfigError(f"rank is {self.rank}, num_replicas {self.num_replicas}; rank is 0 to num_replicas - 1")
        if not 0 <= random_level <= 1:
            raise ConfigError(f"random_level is {random_level}; it is 0 to 1")
        if random_level > 0 and not shuffle:
            raise ConfigError(f"random_level is {random_level} without shuffle, where it has no effect")
        self.costs = _costs(data, cost)
        if len(self.costs) < self.num_replicas and (drop_last or len(self.costs) == 0):
            raise ConfigError(f"{len(self.costs)} samples cannot be dealt out to {self.num_replicas} ranks")
        self.shuffle, self.seed, self.drop_last, self.random_level = shuffle, seed, drop_last, random_level
        self.epoch = 0
        whole, rest = divmod(len(self.costs), self.num_replicas)
        self.num_samples = whole + (1 if rest and not drop_last else 0)

    def __len__(self) -> int:
        """Samples of this rank in an epoch, the same number on all ranks."""
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        """Indices into ``data``."""
        groups = self._groups(np.random.default_rng([self.seed, self.epoch]))
        return iter(groups[:, self.rank].tolist())

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of this epoch, the same on all ranks."""
        self.epoch = epoch

    def _groups(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Indices that are drawn at the same time, one a rank: ``[num_samples, num_replicas]``."""
        total = self.num_samples * self.num_replicas
        chosen = np.resize(rng.permutation(len(self.costs)) if self.shuffle else np.arange(len(self.costs)), total)
        costs = self.costs[chosen]
        if self.random_level > 0:
            costs = costs + rng.uniform(0, self.random_level * np.ptp(self.costs), total)
        groups = chosen[np.argsort(costs, kind="stable")].reshape(self.num_samples, self.num_replicas)
        if self.shuffle:
            return rng.permutation(rng.permuted(groups, axis=1))
        turns = (np.arange(self.num_replicas) + np.arange(self.num_samples)[:, None]) % self.num_replicas
        return np.take_along_axis(groups, turns, axis=1)


def _costs(data: Sized, cost: Sequence[float] | NDArray[Any] | Callable[[Any], float]) -> NDArray[np.float64]:
    if callable(cost):
        items: Any = data
        cost = [float(cost(items[index])) for index in range(len(data))]
    costs = np.asarray(cost, dtype=np.float64)
    if costs.shape != (len(data),) or not np.isfinite(costs).all():
        raise ConfigError(f"costs of shape {costs.shape} for {len(data)} samples; give one finite number a sample")
    return costs


def _world(name: str, default: int) -> int:
    if dist.is_initialized():
        return dist.get_rank() if name == "RANK" else dist.get_world_size()
    text = os.environ.get(name, str(default))
    if not text.isdigit():
        raise ConfigError(f"{name} is {text!r}, which is not a whole number")
    return int(text)
