"""Torch's own post-local SGD: DistributedDataParallel at first, then a periodic average of the models."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.algorithm import (
    ELEMENT_BYTES,
    AbstractAlgorithm,
    AbstractRunning,
    Context,
    ExchangeReport,
)
from bwbench.methods.algorithms.ddp_exchange import DdpExchange
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, NoCompression, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.phases import LEAST_STEPS, TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

_ITERATIONS, _STEPS = "iterations", "steps"  # keys in the state dict


class TorchPostLocalSgdConfig(ComponentConfig):
    """Options of ``torch-post-local-sgd``.

    Attributes:
        warmup: steps at the begin in which DDP averages the gradients.
        period: steps from one average of the models to the next.
    """

    warmup: int = Field(100, ge=0)
    period: int = Field(16, ge=2)


class TorchPostLocalSgd(AbstractAlgorithm):
    """``post_localSGD_hook`` and ``PeriodicModelAverager`` of torch.distributed, after Lin et al. 2020.

    As ``PostLocalSGDOptimizer`` does it: the averager is called after each step of the optimizer. Gradients stay on
    their rank after the warm-up (``post_local_gradient_allreduce=False``): every node has one process here, so that the
    group of its own machine, which torch would average them in, has one member; and on a machine without GPU torch
    cannot make that group.
    """

    Config = TorchPostLocalSgdConfig
    options: TorchPostLocalSgdConfig
    replicas_equal = "after a round"

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """Torch's own all-reduce alone: the hook and the averager call it themselves."""
        return None if collective.wraps_model else "it is torch's own code, which calls torch's all-reduce itself"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """None: the averager sends fp32."""
        return None if codec is NoCompression else "torch's averager sends parameters as they are"

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One all-reduce of all parameters every ``period`` steps; the warm-up left out."""
        size = ELEMENT_BYTES * sum(math.prod(shape) for shape in parameter_shapes)
        return collective.traffic(num_nodes, [size]).scaled(1 / self.options.period)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Gradients at first, then local steps; torch averages models in the very first of them."""
        rounds = Phase("rounds", period=self.options.period, exchanges=(1,))
        return (Phase("warm-up", self.options.warmup), rounds) if self.options.warmup else (rounds,)

    def for_timing(self) -> ComponentConfig:
        """With a short warm-up, and models are averaged more often."""
        shorter = {"warmup": min(self.options.warmup, LEAST_STEPS), "period": min(self.options.period, TIMED_PERIOD)}
        return self.options.model_copy(update=shorter)

    def attach(self, context: Context) -> AbstractRunning:
        """Wrap the model, register the hook, make the averager."""
        return RunningTorchPostLocalSgd(context, self.options)


class RunningTorchPostLocalSgd(DdpExchange):
    """One rank of ``torch-post-local-sgd``: torch's wrapper, hook and averager."""

    def __init__(self, context: Context, options: TorchPostLocalSgdConfig) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

        group = context.data_group
        self._warmup, self._period = options.warmup, options.period
        state: Any = PostLocalSGDState  # untyped in torch
        self._state = state(group, None, self._warmup, post_local_gradient_allreduce=False)
        super().__init__(context, None, (self._state, post_localSGD_hook))
        self._averager = PeriodicModelAverager(self._period, self._warmup, group)
        whole = context.collective.traffic(context.members.size, [sum(self.bucket_bytes)])
        self._round_bytes = round(whole.payload_bytes_per_rank[context.members.place])

    def finish(self) -> ExchangeReport:
        """Nothing left to wait for; what the backward pass has waited for is estimated, as for ``ddp``."""
        if self._averager.step < self._warmup:
            return super().finish()
        return ExchangeReport(ready_mono_s=time.monotonic())

    def after_update(self) -> ExchangeReport | None:
        """The averager's turn."""
        begin, sends = time.monotonic(), averages_after(self._averager.step, self._warmup, self._period)
        self._averager.average_parameters(self._context.optimizer.param_groups)
        if not sends:
            return None
        return ExchangeReport(begin, exposed_s=time.monotonic() - begin, payload_bytes=self._round_bytes)

    def agreement_step(self, step: int) -> int:
        """The step in which models are averaged next."""
        return next_agreement(step, self._warmup, self._period)

    def rehearse(self, plain_backward_s: float) -> None:
        """One average of the models."""
        from torch.distributed.algorithms.model_averaging.utils import average_parameters

        super().rehearse(plain_backward_s)
        assert self._context.data_group is not None
        average_parameters(self._context.model.parameters(), self._context.data_group)

    def reset(self) -> None:
        """Begin with the warm-up."""
        self._state.iter = self._averager.step = 0

    def state_dict(self) -> dict[str, torch.Tensor]:
        """How far the warm-up and the period are."""
        return {_ITERATIONS: torch.tensor(self._state.iter), _STEPS: torch.tensor(self._averager.step)}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._state.iter, self._averager.step = int(state[_ITERATIONS]), int(state[_STEPS])


def next_agreement(step: int, warmup: int, period: int) -> int:
    """The first step from ``step`` on, counted from 1, in which gradients or models are averaged."""
    while step > warmup and not averages_after(step - 1, warmup, period):
        step += 1
    return step


def averages_after(step: int, warmup: int, period: int) -> bool:
    """Whether torch's averager averages in its step number ``step``, from 0."""
    return step >= warmup and (step - warmup) % period == 0
