"""Which learning rate the step has that gradients are averaged for: told to codecs whose residuals depend on it."""

from __future__ import annotations

from collections.abc import Sequence

from bwbench.base.errors import ConfigError
from bwbench.methods.compression.codec import AbstractCodec, Rate
from bwbench.methods.deferred import torch


class LearningRates:
    """Reads the rates off an optimizer's groups, and tells them to the codecs of buckets.

    Args:
        buckets: the parameters of each, in the order in which they lie.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, buckets: Sequence[Sequence[torch.nn.Parameter]]) -> None:
        self._optimizer, self._buckets = optimizer, buckets
        self._told: list[float] | None = None

    def tell(self, codecs: Sequence[AbstractCodec]) -> None:
        """Set ``rate`` of the codecs that follow it, one a bucket; before the first of a step encodes anything."""
        if not any(codec.follows_rate for codec in codecs):
            return
        rates = self._now()
        if rates != self._told:
            for codec, parameters in zip(codecs, self._buckets, strict=True):
                codec.rate = self._rate_of(parameters, rates)
            self._told = rates

    def check(self) -> None:
        """Raise RuntimeError where the optimizer is about to step at other rates than were told."""
        if self._told is not None and self._told != (now := self._now()):
            raise RuntimeError(
                f"the learning rate was changed from {self._told} to {now} after gradients were averaged, and "
                "'error_feedback: update' keeps what was left out of them in units of the former; set the rate before "
                "the backward pass, or write error_feedback: true"
            )

    def _now(self) -> list[float]:
        return [float(group["lr"]) for group in self._optimizer.param_groups]

    def _rate_of(self, parameters: Sequence[torch.nn.Parameter], rates: Sequence[float]) -> Rate:
        """One number where all groups have the same; a parameter in no group never moves."""
        if len(set(rates)) == 1:
            return rates[0]
        groups = zip(self._optimizer.param_groups, rates, strict=True)
        by_parameter = {id(parameter): rate for group, rate in groups for parameter in group["params"]}
        if by_parameter.keys().isdisjoint(id(p) for bucket in self._buckets for p in bucket):
            raise ConfigError(
                "'error_feedback: update' with parameter groups of different learning rates needs a model in host "
                "memory; write error_feedback: true"
            )
        return torch.cat([torch.full((p.numel(),), by_parameter.get(id(p), 0.0)) for p in parameters])
