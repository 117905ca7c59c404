"""Optimizers and their learning-rate schedule: stated at a base batch, scaled to the real one, warmed up, decaying."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from bwbench.base.component import ComponentConfig
from bwbench.base.units import Probability, Samples
from bwbench.methods.deferred import nn, torch

Beta = Annotated[float, Field(ge=0, lt=1)]
_OF_DECAY = ("decay", "decay_to", "decay_over")


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
        decay: how ``lr`` falls behind the warm-up: ``linear``, or ``cosine``, half a period of one; None leaves it.
        decay_to: what is left of ``lr`` at the end, as a share; None leaves nothing.
        decay_over: samples after which it is there, counted from the begin; None takes ``limit.samples``. Not written
            out without ``decay``, nor are the other two, so that records from before there was any keep their form.
    """

    lr: float = Field(0.05, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    base_batch: int | None = Field(None, ge=1)
    lr_scaling: Literal["linear", "sqrt", "none"] = "linear"
    warmup_samples: Samples | None = Field(None, alias="warmup")
    flat: bool = False
    decay: Literal["cosine", "linear"] | None = None
    decay_to: Probability | None = None
    decay_over: Samples | None = None

    @model_validator(mode="after")
    def _nothing_of_a_decay_without_one(self) -> OptimizerConfig:
        given = [name for name in _OF_DECAY[1:] if getattr(self, name) is not None]
        if self.decay is None and given:
            text = f"{given[0]} says nothing without a decay; add 'decay: cosine' or 'decay: linear'"
            raise PydanticCustomError("decay", "{text}", {"text": text})
        return self

    @model_serializer(mode="wrap")
    def _without_what_was_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        content: dict[str, object] = handler(self)
        return content if self.decay is not None else {k: v for k, v in content.items() if k not in _OF_DECAY}

    def within(self, budget_samples: float) -> Self:
        """With the end of the decay where the training's is, unless it was given."""
        if self.decay is None or self.decay_over is not None:
            return self
        return self.model_copy(update={"decay_over": budget_samples})


class AbstractOptimizer(ABC):
    """Makes torch's optimizer, and says which learning rate holds when.

    Attributes:
        rates: learning rates that ``bwbench tune`` tries, from the middle outwards: three or more, rising.
        takes_its_time: a step of it is as long as computing, so that plans measure it.
    """

    Config: ClassVar[type[ComponentConfig]] = OptimizerConfig
    rates: ClassVar[tuple[float, ...]] = powers_of_two(0.05)
    takes_its_time: ClassVar[bool] = False

    def __init__(self, options: OptimizerConfig) -> None:
        self.options = options

    @abstractmethod
    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Torch's optimizer over ``parameters``, with ``lr`` as written; ``set_rate`` changes it in every step."""

    def build_for(self, model: nn.Module) -> torch.optim.Optimizer:
        """The same over a model's parameters, for optimizers that have to know which layers they belong to."""
        return self.build(model.parameters())

    def set_rate(self, optimizer: torch.optim.Optimizer, samples: int, global_batch: int) -> float:
        """Give every group of ``optimizer`` its rate for the step that starts after ``samples``; returns ``lr_at``.

        A group with a ``lr_ratio`` gets that many times the rate of the others.
        """
        lr = self.lr_at(samples, global_batch)
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_ratio", 1.0)
        return lr

    def lr_at(self, samples: int, global_batch: int) -> float:
        """Learning rate of the step that starts when ``samples`` samples (over all nodes) have been trained on.

        Pure. The warm-up counts a step's own samples, the decay those before it, so that neither the first step nor the
        last one is lost on a rate of zero.
        """
        lr = self.options.lr
        if self.options.base_batch is not None and self.options.lr_scaling != "none":
            ratio = global_batch / self.options.base_batch
            lr *= ratio if self.options.lr_scaling == "linear" else ratio**0.5
        if self.options.warmup_samples is not None:
            lr *= min(1.0, (samples + global_batch) / self.options.warmup_samples)
        return lr * self._left_at(samples)

    def _left_at(self, samples: int) -> float:
        """What the decay has left of the rate, as a share."""
        options, begin = self.options, self.options.warmup_samples or 0.0
        if options.decay is None:
            return 1.0
        if options.decay_over is None:
            raise ValueError("the decay has no end; 'within' gives it that of the training")
        gone = (samples - begin) / (options.decay_over - begin) if options.decay_over > begin else 1.0
        gone = min(max(gone, 0.0), 1.0)
        left = 1.0 - gone if options.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * gone))
        least = options.decay_to or 0.0
        return least + (1.0 - least) * left


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


class MuonConfig(OptimizerConfig):
    """Options of ``muon``: those of every optimizer, but ``flat``, and its own.

    Attributes:
        lr: of matrices: the spectral norm of a step, about, before ``scale``.
        momentum: of matrices: mu in M = mu M + G, from which their update is made.
        nesterov: make it from G + mu M.
        coefficients: of the Newton-Schulz iteration: ``muloco``, other ones in each of five steps, or ``jordan``, the
            same in all, as torch's own.
        steps: of the iteration; ``muloco`` repeats its last one in those beyond five.
        scale: of a matrix's update: ``spectral-norm``, sqrt(fan out / fan in); ``original``, the same but at least 1,
            as torch's own; ``match-rms-adamw``, 0.2 sqrt(max(fan out, fan in)): entries as large as AdamW's.
        adamw_ratio: rate of AdamW, for what is no matrix, as a multiple of ``lr``.
        betas, eps: of AdamW.
    """

    lr: float = Field(0.02, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    momentum: float = Field(0.95, ge=0, lt=1)
    nesterov: bool = False
    coefficients: Literal["muloco", "jordan"] = "muloco"
    steps: int = Field(5, ge=1, le=20)
    scale: Literal["spectral-norm", "original", "match-rms-adamw"] = "spectral-norm"
    adamw_ratio: float = Field(1.0, gt=0)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)

    @model_validator(mode="after")
    def _makes_sense(self) -> MuonConfig:
        if self.nesterov and self.momentum == 0:
            raise PydanticCustomError("nesterov", "nesterov needs a momentum above 0, such as momentum: 0.95")
        if self.flat:
            raise PydanticCustomError("flat", "muon steps matrices, not flat buckets of many; leave 'flat' out")
        return self


class Muon(AbstractOptimizer):
    """Momentum made orthogonal for the matrices of hidden layers (Jordan et al. 2024), AdamW for all else.

    All else are tensors of one dimension, embeddings, and the last linear layer, which gives the logits.
    """

    Config: ClassVar[type[ComponentConfig]] = MuonConfig
    rates = powers_of_two(0.02)
    takes_its_time = True
    options: MuonConfig

    def build(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Ours; whatever has two dimensions or more is taken for a matrix."""
        return self._over(list(parameters), set())

    def build_for(self, model: nn.Module) -> torch.optim.Optimizer:
        """Ours, with the tables of embeddings and the last layer among those that are no matrices."""
        tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
        layers = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
        return self._over(list(model.parameters()), {id(weight) for weight in (*tables, *layers[-1:])})

    def _over(self, parameters: list[torch.nn.Parameter], no_matrices: set[int]) -> torch.optim.Optimizer:
        from bwbench.training.loop import muon  # torch has to be there for a subclass of its optimizer

        options = self.options
        matrices = [p for p in parameters if p.dim() >= 2 and id(p) not in no_matrices]
        return muon.Muon(
            parameters,
            lr=options.lr,
            matrices=matrices,
            momentum=options.momentum,
            nesterov=options.nesterov,
            weight_decay=options.weight_decay,
            coefficients=options.coefficients,
            steps=options.steps,
            scale=options.scale,
            adamw_ratio=options.adamw_ratio,
            betas=options.betas,
            eps=options.eps,
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
