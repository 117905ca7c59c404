"""Averages of a replica's weights over time, which are evaluated beside the weights themselves.

At a constant learning rate weights wander around what they have found, and their mean lies nearer to it than they do.
Each rank keeps the average of its own replica, and sends nothing for it. Training never sees it.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field
from typing_extensions import Self

from bwbench.base.component import ComponentConfig
from bwbench.base.units import PositiveShare, Samples
from bwbench.methods.deferred import nn, torch
from bwbench.methods.memory import State

Weights: TypeAlias = Literal["averaged", "trained"]


class AbstractWeightAverage(ABC):
    """Says how an average is formed, from its options.

    Attributes:
        Config: the class of its options; those of one that averages have ``counts``, which weights' metrics count.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig

    def __init__(self, options: ComponentConfig) -> None:
        self.options = options

    @property
    def counts(self) -> Weights | None:
        """Whose metrics decide about targets and stand in tables; None where nothing is averaged."""
        found: Weights | None = getattr(self.options, "counts", None)
        return found

    @abstractmethod
    def newest(self, samples: int, global_batch: int) -> float:
        """What the newest weights get in the average behind a step, more than 0 and at most 1. Pure.

        Args:
            samples: trained on, over all nodes, this step's included.
            global_batch: samples of one step.
        """


class NoAverage(AbstractWeightAverage):
    """The weights as they are; nothing is kept."""

    def newest(self, samples: int, global_batch: int) -> float:
        """All of it."""
        return 1.0


class EmaConfig(ComponentConfig):
    """Options of ``ema``.

    Attributes:
        horizon: samples over all nodes, after which weights count 1/e of what new ones do.
        counts: whose metrics decide about targets and stand in tables, those of ``averaged`` weights or of ``trained``
            ones; the others are recorded beside them.
    """

    horizon_samples: Samples = Field(alias="horizon")
    counts: Weights = "averaged"


class Ema(AbstractWeightAverage):
    """An exponential moving average: weights of s samples ago count e^(-s / horizon) of what new ones do.

    Over n steps of b samples, with beta = e^(-b / horizon): x_avg <- x_avg + (1 - beta) / (1 - beta^n) (x - x_avg).
    The first factor is that of an average that begins with nothing (as Adam's moments, corrected), so that what the
    weights were before the first step counts nothing.
    """

    Config = EmaConfig
    options: EmaConfig

    def newest(self, samples: int, global_batch: int) -> float:
        """(1 - beta) / (1 - beta^n)."""
        horizon = self.options.horizon_samples
        return math.expm1(-global_batch / horizon) / math.expm1(-samples / horizon)


class TailConfig(ComponentConfig):
    """Options of ``tail``.

    Attributes:
        share: last part of the training that is averaged over.
        over: samples of the whole training, over all nodes; None takes ``limit.samples``.
        counts: as of ``ema``.
    """

    share: PositiveShare = 0.2
    over_samples: Samples | None = Field(None, alias="over")
    counts: Weights = "averaged"

    @property
    def begin_samples(self) -> float:
        """Samples after which averaging begins. Raises ValueError where the whole is not known."""
        if self.over_samples is None:
            raise ValueError("the whole training is not known; 'within' says how long it is")
        return (1.0 - float(self.share)) * float(self.over_samples)

    def within(self, budget_samples: float) -> Self:
        """With the whole training's length, unless it was given."""
        if self.over_samples is not None:
            return self
        return self.model_copy(update={"over_samples": budget_samples})


class Tail(AbstractWeightAverage):
    """The mean of the weights behind all steps of the last part (Rakhlin et al. 2012: suffix averaging).

    Before that part begins it is the weights themselves. A training that ends at a target may never come to it.
    """

    Config = TailConfig
    options: TailConfig

    def newest(self, samples: int, global_batch: int) -> float:
        """1 / n behind the n-th step of the last part."""
        counted = (samples - self.options.begin_samples) / global_batch
        return 1.0 / max(1, math.ceil(counted - 1e-9))


class AveragedWeights:
    """The average of one replica, as a model of its own; buffers are those of the replica.

    As large as the model, on its device. Nothing is drawn at random.

    Attributes:
        model: holds the averaged weights, for evaluation alone.
        counts: as of ``AbstractWeightAverage``.
    """

    def __init__(self, trained: nn.Module, average: AbstractWeightAverage) -> None:
        self._trained, self._average = trained, average
        self.counts = average.counts
        self.model = copy.deepcopy(trained).requires_grad_(False)

    @property
    def by_what_counts(self) -> tuple[nn.Module, nn.Module]:
        """The replica and its average, first the one whose metrics count."""
        return (self.model, self._trained) if self.counts == "averaged" else (self._trained, self.model)

    def take_in(self, samples: int, global_batch: int) -> None:
        """A step has ended, as in ``AbstractWeightAverage.newest``."""
        newest = self._average.newest(samples, global_batch)
        with torch.no_grad():
            for mine, trained in zip(self.model.parameters(), self._trained.parameters(), strict=True):
                mine.lerp_(trained, newest)  # exactly the trained ones where that is 1
            for buffer, theirs in zip(self.model.buffers(), self._trained.buffers(), strict=True):
                buffer.copy_(theirs)

    def reset(self) -> None:
        """The weights of now, and nothing else."""
        self.model.load_state_dict(self._trained.state_dict())

    def state_dict(self) -> State:
        """Copies of the averaged weights."""
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        self.model.load_state_dict(state)
