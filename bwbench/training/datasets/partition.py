"""How the training data is dealt out to the nodes: who sees which sample, in which order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError

Indices = NDArray[np.int64]

# First number of each random stream's seed, so that streams of equal seeds have nothing in common.
_DEAL, _EPOCH, _MIX = 1, 2, 3


class AbstractPartition(ABC):
    """Deals indices of the training data to nodes. Pure: equal arguments give equal indices on every machine."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig

    def __init__(self, options: ComponentConfig) -> None:
        self.options = options

    def order(self, targets: NDArray[Any], num_nodes: int, rank: int, epoch: int, seed: int) -> Indices:
        """Indices that ``rank`` visits in ``epoch``, in that order: int64 ``[len(targets) // num_nodes]``.

        All ranks get the same number, and no index comes twice in an epoch; up to ``num_nodes - 1`` are left out.

        Args:
            targets: of the training split, ``[n]`` or ``[n, context]``.
            num_nodes: world size.
            rank: 0 … num_nodes - 1.
            epoch: from 0.
            seed: of the run, 0 or more.

        Raises:
            ConfigError: fewer samples than nodes, or targets that this way of dealing cannot use.
        """
        if len(targets) < num_nodes:
            raise ConfigError(
                f"{len(targets)} training samples cannot be dealt out to {num_nodes} nodes; at most one node a sample"
            )
        return self._deal(targets, num_nodes, rank, epoch, seed)

    @abstractmethod
    def _deal(self, targets: NDArray[Any], num_nodes: int, rank: int, epoch: int, seed: int) -> Indices:
        """As ``order``, with at least one sample a node."""


class IidReshuffled(AbstractPartition):
    """All data is shuffled anew in every epoch, in common, and dealt out like cards.

    The samples of one global batch are therefore the same for any number of nodes: 4 nodes with batches of 32 see in
    each step what 1 node with a batch of 128 sees.
    """

    def _deal(self, targets: NDArray[Any], num_nodes: int, rank: int, epoch: int, seed: int) -> Indices:
        order = np.random.default_rng([_EPOCH, seed, epoch]).permutation(len(targets))
        return _share(order, num_nodes, rank)


class IidFixed(AbstractPartition):
    """Every node keeps its own random share for the whole run and shuffles it in every epoch: data that stays put."""

    def _deal(self, targets: NDArray[Any], num_nodes: int, rank: int, epoch: int, seed: int) -> Indices:
        order = np.random.default_rng([_DEAL, seed]).permutation(len(targets))
        return _shuffled(_share(order, num_nodes, rank), rank, epoch, seed)


class DirichletConfig(ComponentConfig):
    """Options of ``dirichlet``, which may be written ``{dirichlet: 0.3}``.

    Attributes:
        alpha: how alike the nodes are: 100 is nearly iid, 1 is uneven, 0.1 leaves most nodes two or three classes.
    """

    alpha: float = Field(0.5, ge=1e-3, le=1e6)


class Dirichlet(AbstractPartition):
    """Every node keeps a share with its own mix of classes, and shuffles it in every epoch.

    Each node's mix is drawn from Dirichlet(alpha · classes · prior), as in Hsu, Qi and Brown, "Measuring the effects
    of non-identical data distribution for federated visual classification" (2019), there with alpha · prior. We
    differ in that shares are equally large and use all data: the mixes are fitted to the classes' sizes, all nodes
    at once, where the paper lets the last nodes take what is left.
    """

    Config: ClassVar[type[ComponentConfig]] = DirichletConfig
    options: DirichletConfig

    def _deal(self, targets: NDArray[Any], num_nodes: int, rank: int, epoch: int, seed: int) -> Indices:
        if targets.ndim != 1:
            raise ConfigError("partition 'dirichlet' needs one class a sample; text has none: use iid-fixed")
        classes, labels = np.unique(targets, return_inverse=True)
        sizes = np.bincount(labels)
        mixes = np.random.default_rng([_MIX, seed]).dirichlet(
            self.options.alpha * len(classes) * sizes / len(targets), num_nodes
        )
        counts = fit_counts(mixes, sizes, len(targets) // num_nodes)
        rng = np.random.default_rng([_DEAL, seed])
        share = []
        for label in range(len(classes)):
            members = rng.permutation(np.flatnonzero(labels == label))
            start = counts[:rank, label].sum()
            share.append(members[start : start + counts[rank, label]])
        return _shuffled(np.concatenate(share), rank, epoch, seed)


def fit_counts(mixes: NDArray[np.float64], sizes: NDArray[np.int64], share: int) -> NDArray[np.int64]:
    """Samples of each class for each node: whole numbers ``[num_nodes, num_classes]`` near the wanted mixes.

    Every row adds up to ``share`` and no column to more than the class's size, which needs
    ``1 <= share`` and ``num_nodes · share <= sum of sizes``.
    """
    wanted = mixes + 1e-9  # no entry is exactly zero, or a class could remain that nobody may take
    for _ in range(100):  # Sinkhorn: scale columns, then rows, towards both sums; what is left is repaired below
        wanted *= sizes / wanted.sum(axis=0)
        wanted *= share / wanted.sum(axis=1, keepdims=True)
    wanted *= np.minimum(1.0, sizes / wanted.sum(axis=0))
    counts = np.floor(wanted).astype(np.int64)
    spare = sizes - counts.sum(axis=0)
    for node in range(len(counts)):
        missing = share - counts[node].sum()
        for label in np.argsort(counts[node] - wanted[node], kind="stable"):  # largest fraction cut off comes first
            extra = min(missing, spare[label], 1)
            counts[node, label] += extra
            spare[label] -= extra
            missing -= extra
        for label in np.argsort(-spare, kind="stable"):  # rare: rounding and capping took more than one a class
            extra = min(missing, spare[label])
            counts[node, label] += extra
            spare[label] -= extra
            missing -= extra
    return counts


def _share(order: Indices, num_nodes: int, rank: int) -> Indices:
    return order[: len(order) // num_nodes * num_nodes][rank::num_nodes]


def _shuffled(share: Indices, rank: int, epoch: int, seed: int) -> Indices:
    return share[np.random.default_rng([_EPOCH, seed, epoch, rank]).permutation(len(share))]
