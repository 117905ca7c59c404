"""Optimizers and their learning-rate schedule: stated at a base batch, scaled to the real one, warmed up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.base.component import ComponentConfig
from bwbench.base.units import Samples
from bwbench.methods.deferred import torch

Beta = Annotated[float, Field(ge=0, lt=1)]


def powers_of_two(middle: float) -> tuple[float, ...]:
    """A grid of seven learning rates around ``middle``, each twice the one before."""
    return tuple(middle * 2.0**power for power in range(-3, 4))


class OptimizerConfig(ComponentConfig):
    """Options of every optimizer.

    Attributes:
        lr: learning rate, at ``base_batch`` where that is given.
        base_batch: global batch for which ``lr`` was found; None uses ``lr`` as it is for any batch.
        lr_scaling: how ``lr`` grows with global_batch / base_batch: ``linear`` (Goyal et al. 2017), ``sqrt`` or
            ``none``. Without ``base_batch`` it has no effect.
        warmup_samples: samples over which ``lr`` rises linearly to its full value; None starts with the full value.
        flat: one update of a whole bucket in place of one a tensor: the same values, less overhead where a model has
            many small tensors. Not with torch's own exchange, buckets that are chosen by the link, nor algorithms that
            have their own update rule.
    """

    lr: float = Field(0.05, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    base_batch: int | None = Field(None, ge=1)
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    warmup_samples: Samples | None = Field(None, alias="warmup")
    flat: bool = False


class AbstractOptimizer(ABC):
    """Makes torch's optimizer, and says which learning rate holds when.

    Attributes:
        rates: learning rates that ``bwbench tune`` tries, from the middle outwards: three or more, rising.
    """

    Config: ClassVar[type[ComponentConfig]] = OptimizerConfig
    rates: ClassVar[tuple[float, ...]] = powers_of_two(0.05)

    def __init__(self, options: OptimizerConfig) -> None:
        self.options = options

    @abstractmethod
    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Torch's optimizer over ``parameters``, with ``lr`` as written; set each group's ``lr`` to ``lr_at``."""

    def lr_at(self, samples: int, global_batch: int) -> float:
        """Learning rate of the step that starts when ``samples`` samples (over all nodes) have been trained on.

        Pure. The warm-up counts a step's own samples, so that the first step is not lost on a rate of zero.
        """
        lr = self.options.lr
        if self.options.base_batch is not None and self.options.lr_scaling != "none":
            ratio = global_batch / self.options.base_batch
            lr *= ratio if self.options.lr_scaling == "linear" else ratio**0.5
        if self.options.warmup_samples is not None:
            lr *= min(1.0, (samples + global_batch) / self.options.warmup_samples)
        return lr


class SgdConfig(OptimizerConfig):
    """Options of ``sgd``: those of every optimizer, ``momentum`` and ``nesterov``."""

    momentum: float = Field(0.0, ge=0, lt=1)
    nesterov: bool = False

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SgdConfig:
        if self.nesterov and self.momentum == 0:
            raise PydanticCustomError("nesterov", "nesterov needs a momentum above 0, such as momentum: 0.9")
        return self


class Sgd(AbstractOptimizer):
    """Stochastic gradient descent, with momentum where asked."""

    Config: ClassVar[type[ComponentConfig]] = SgdConfig
    options: SgdConfig

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Torch's SGD."""
        options = self.options
        return torch.optim.SGD(
            parameters,
            lr=options.lr,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=options.weight_decay,
        )


class AdamConfig(OptimizerConfig):
    """Options of ``adam``: those of every optimizer, ``betas`` and ``eps``."""

    lr: float = Field(1e-3, gt=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)


class Adam(AbstractOptimizer):
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient."""

    Config: ClassVar[type[ComponentConfig]] = AdamConfig
    rates = powers_of_two(0.002)
    is_decoupled: ClassVar[bool] = False  # weight decay, from the gradient
    options: AdamConfig

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Torch's Adam, or its AdamW."""
        options, kind = self.options, torch.optim.AdamW if self.is_decoupled else torch.optim.Adam
        return kind(parameters, lr=options.lr, betas=options.betas, eps=options.eps, weight_decay=options.weight_decay)


class AdamWConfig(AdamConfig):
    """Options of ``adamw``: those of ``adam``, with torch's default of 0.01 for ``weight_decay``."""

    weight_decay: float = Field(0.01, ge=0)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    Config: ClassVar[type[ComponentConfig]] = AdamWConfig
    is_decoupled: ClassVar[bool] = True
