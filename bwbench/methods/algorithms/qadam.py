"""Adam whose momentum is averaged compressed, once its variance is known well enough to be frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from pydantic import Field

from bwbench.base import emulated_time
from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms.algorithm import (
    AbstractAlgorithm,
    AbstractRunning,
    BucketsConfig,
    Context,
    ExchangeReport,
)
from bwbench.methods.algorithms.buckets import BucketExchange, GradientBuffers, check_gradients, views
from bwbench.methods.collectives.transport import Round
from bwbench.methods.compression.codec import NoCompression, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.phases import LEAST_STEPS, Phase

WITHOUT_FROZEN_FORM = ("amsgrad", "maximize", "capturable", "differentiable")  # options of torch's Adam


class QAdamConfig(BucketsConfig):
    """Options of ``qadam``, beside the size of its buckets.

    Attributes:
        warmup_steps: optimizer steps of plain Adam on gradients that are averaged in fp32, before the variance is
            frozen; the papers take 15-20 % of all steps.
        send: ``momentum`` m, as published, or ``scaled-momentum`` m / (sqrt(v^) + eps). The mean is the same; the codec
            then sees entries of like size. A sign with one scale for many entries needs that: where v is small, the
            scale of the others would be a step of many times the learning rate.
    """

    warmup_steps: int = Field(100, ge=1)
    send: Literal["momentum", "scaled-momentum"] = "momentum"


class QAdam(AbstractAlgorithm):
    """Bagua's QAdam (Gan et al. 2021), and 1-bit Adam (Tang et al. 2021) where the codec is ``sign``.

    For ``warmup_steps``: Adam on the mean of the gradients, in fp32. Then v stays as it is, and::

        m_i = beta1 m + (1 - beta1) g_i     on each rank, from the common m
        m   = mean of m_i, compressed       by the collective, with error feedback where the codec is biased
        x   = x - lr m^ / (sqrt(v^) + eps)

    Momentum and variance are those in the state of torch's optimizer, so that its state dict is an ordinary one.

    The correction of v for its begin at zero is frozen together with v: v^ = v_T / (1 - beta2^T) after T warm-up
    steps. Bagua lets the correction go on, which shrinks v^ towards v_T, a third of the standard deviation at T = 100;
    1-bit Adam has no correction at all. After a long warm-up all three are the same. That of m goes on as in Adam.

    An entry that has had no gradient in the whole warm-up has v = 0 and no scale to be stepped with. It stays where it
    is, as Adam would leave it; codecs such as ``sign`` would send a momentum for it that is not there.
    """

    Config = QAdamConfig
    copies = 4.0  # parameters, gradients, momentum, and the deviation that it is divided by
    options: QAdamConfig
    virtual = True
    optimizers = ("adam", "adamw")
    preferred_collective = "scatter-gather"

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Gradients in fp32 at first, then momenta."""
        return (Phase("warm-up", self.options.warmup_steps), Phase("training"))

    def for_timing(self) -> ComponentConfig:
        """With a short warm-up."""
        return self.options.model_copy(update={"warmup_steps": min(self.options.warmup_steps, LEAST_STEPS)})

    @classmethod
    def accepts_optimizer(cls, name: str, options: ComponentConfig) -> str | None:
        """Only Adam and AdamW, in their plain form."""
        return super().accepts_optimizer(name, options) or _variant_refusal(
            {o: getattr(options, o, False) for o in WITHOUT_FROZEN_FORM}
        )

    def attach(self, context: Context) -> AbstractRunning:
        """Hook into the gradients. Raises ConfigError where the optimizer is not Adam or AdamW in their plain form."""
        return RunningQAdam(context, self.options)


class RunningQAdam(BucketExchange):
    """One rank of ``qadam``: sends gradients in fp32 until the variance is frozen, then Adam's momentum by the codecs.

    The momentum of a bucket is brought up to date as soon as its gradients are there, and leaves at once. With
    ``scaled-momentum`` what is sent is momentum / deviation, and comes back as momentum; the deviation is equal on all
    ranks. Moments are in the optimizer's state.
    """

    _steps_key = "num_steps"

    def __init__(self, context: Context, options: QAdamConfig) -> None:
        super().__init__(context, options.bucket_bytes)
        self._adam = AdamState(context.optimizer, self.buffers)
        self._warmup_steps, self._scaled = options.warmup_steps, options.send == "scaled-momentum"
        self._plain = NoCompression()
        self._frozen_steps: int | None = None  # taken since the variance was frozen; None before
        self._late_report: ExchangeReport | None = None
        # Other tags than those of the gradients: collectives may keep a memory of each that belongs to one codec.
        count = len(self.buffers.flat)
        self._momentum_rounds = [Round(count + bucket, context.members) for bucket in range(count)]

    def begin_step(self) -> None:
        """Zeros; takes over the optimizer's momentum where that is to be sent."""
        frozen_steps = self._num_steps - self._warmup_steps
        self._frozen_steps = frozen_steps if frozen_steps >= 0 else None
        super().begin_step()
        if self._frozen_steps is not None:
            self._adam.adopt(self._frozen_steps)

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """In a user's loop momenta leave in the update: gradients are unscaled and clipped before that."""
        return super().micro_step(last=last and not self._late)

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """Gradients that stay on this rank are looked at, those that leave are handed over."""
        if self._late:
            check_gradients(self._context, self.buffers, range(len(self.buffers.flat)), sent=False)
        else:
            super().gradients_ready(backward_began_mono_s)

    def finish(self) -> ExchangeReport:
        """Wait for all buckets, unless they leave in the update."""
        return ExchangeReport(ready_mono_s=emulated_time.monotonic()) if self._late else super().finish()

    def update(self) -> None:
        """Adam's step, or the step along the averaged momentum with the frozen variance."""
        if self._late:
            self._launch(all_that_is_left=True)
            self._late_report = self._communicator.wait()
        if self._frozen_steps is not None:
            self._adam.step_frozen()
        else:
            super().update()
        self._num_steps += 1

    def after_update(self) -> ExchangeReport | None:
        """What was sent in the update."""
        report, self._late_report = self._late_report, None
        return report

    def rehearse(self, plain_backward_s: float) -> None:
        """Average zeros in place of every momentum, with codecs that are thrown away."""
        shapes = [tuple(parameter.shape) for parameter in self.buffers.parameters]
        for bucket, inside in enumerate(self.buffers.buckets):
            codec = self._context.codec_of([shapes[index] for index in inside], bucket)
            zeros = torch.zeros_like(self.buffers.flat[bucket])
            self._context.collective.average(zeros, codec, self._momentum_rounds[bucket])

    @property
    def _late(self) -> bool:
        return self._context.user_loop is not None and self._frozen_steps is not None

    @property
    def _sends_gradients(self) -> bool:
        """While warming up."""
        return self._frozen_steps is None

    def _look_at(self, bucket: int) -> None:
        if not self._late:  # what is not finite in the update is what the user steps with
            super()._look_at(bucket)

    def _average(self, bucket: int) -> None:
        collective = self._context.collective
        host = self._looked_at(bucket)
        if self._frozen_steps is None:
            collective.average(self.buffers.flat[bucket], self._plain, self._rounds[bucket], host)
            return
        momentum, deviation = self._adam.momentum[bucket], self._adam.deviation[bucket]
        with collective.meter.codec():  # no waiting, and no longer the optimizer's
            self._adam.update_momentum(bucket)
            if self._scaled:
                momentum.div_(deviation)
        collective.average(momentum, self._codecs[bucket], self._momentum_rounds[bucket])
        with collective.meter.codec():
            if self._scaled:
                momentum.mul_(deviation)
            momentum.masked_fill_(deviation.isinf(), 0.0)  # codecs such as sign send something where nothing is


def _variant_refusal(options: Mapping[str, object]) -> str | None:
    """Why a variant of Adam has no form with a frozen variance; None where it has one."""
    for option in WITHOUT_FROZEN_FORM:
        if options.get(option):
            return f"Adam with {option}=True cannot go on with a frozen variance; leave it out"
    return None


class AdamState:
    """Momentum of each bucket as a flat vector, ``exp_avg`` in the optimizer's state being views into it.

    Learning rates, betas, eps and weight decay are those of the optimizer's groups at the time of each step. Raises
    ConfigError where the optimizer is not Adam or AdamW, or in a variant that has no frozen form.

    Attributes:
        momentum: fp32 vectors, one a bucket.
        deviation: of the same shapes, sqrt(v^) + eps once v is frozen; infinite where v is 0, so that nothing moves.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, buffers: GradientBuffers) -> None:
        if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
            raise ConfigError(f"the averaged momentum is Adam's; got the optimizer {type(optimizer).__name__}")
        if refusals := [reason for group in optimizer.param_groups if (reason := _variant_refusal(group)) is not None]:
            raise ConfigError(refusals[0])
        self._optimizer, self._buffers = optimizer, buffers
        self._decoupled = isinstance(optimizer, torch.optim.AdamW)
        self.momentum = [torch.zeros_like(flat) for flat in buffers.flat]
        self.deviation = [torch.full_like(flat, math.inf) for flat in buffers.flat]
        self._views: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for number, bucket in enumerate(buffers.buckets):
            momenta = views(self.momentum[number], buffers.parameters, bucket)
            deviations = views(self.deviation[number], buffers.parameters, bucket)
            for (index, momentum), (_, deviation) in zip(momenta, deviations, strict=True):
                self._views[index] = momentum, deviation
        self._group_of: dict[int, int] = {}  # of the optimizer's groups, by parameter; of those that have a momentum

    def adopt(self, frozen_steps: int) -> None:
        """Make the optimizer's momentum views into the buffers, where it has any; loading a state undoes that.

        Args:
            frozen_steps: steps that were taken since v was frozen.
        """
        groups = self._optimizer.param_groups
        group_of = {id(parameter): number for number, group in enumerate(groups) for parameter in group["params"]}
        self._group_of = {}
        for index, (momentum, deviation) in self._views.items():
            parameter = self._buffers.parameters[index]
            state = self._optimizer.state.get(parameter)
            if not state or id(parameter) not in group_of:
                continue
            number = self._group_of[index] = group_of[id(parameter)]
            if frozen_steps == 0 or state["exp_avg"] is not momentum:
                momentum.copy_(state["exp_avg"])
                state["exp_avg"] = momentum
                variance = state["exp_avg_sq"]
                correction = 1 - groups[number]["betas"][1] ** (float(state["step"]) - frozen_steps)
                torch.sqrt(variance, out=deviation).div_(math.sqrt(correction)).add_(groups[number]["eps"])
                deviation.masked_fill_(variance == 0, math.inf)

    def update_momentum(self, bucket: int) -> None:
        """Take the gradients of a bucket into its momentum, weight decay of Adam's kind included."""
        for index in self._buffers.buckets[bucket]:
            number = self._group_of.get(index)
            if number is None:
                continue
            group, parameter = self._optimizer.param_groups[number], self._buffers.parameters[index]
            if parameter.grad is None:  # on all ranks
                continue
            gradient = parameter.grad.detach()
            if self._scale is not None:
                gradient = gradient / self._scale
            if group["weight_decay"] and not self._is_decoupled(number):
                gradient = gradient.add(parameter.detach(), alpha=group["weight_decay"])
            self._views[index][0].lerp_(gradient, 1 - group["betas"][0])

    def step_frozen(self) -> None:
        """Step along the momentum, scaled by the variance as it was when it was frozen."""
        with torch.no_grad():
            for index, number in self._group_of.items():
                group, parameter = self._optimizer.param_groups[number], self._buffers.parameters[index]
                if parameter.grad is None:
                    continue
                momentum, deviation = self._views[index]
                step = self._optimizer.state[parameter]["step"]
                step += 1
                if group["weight_decay"] and self._is_decoupled(number):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                correction = 1 - group["betas"][0] ** float(step)
                parameter.addcdiv_(momentum, deviation, value=-group["lr"] / correction)

    @property
    def _scale(self) -> torch.Tensor | None:
        """What gradients have been multiplied with, where a ``GradScaler`` leaves it to a fused step to undo that."""
        scale: torch.Tensor | None = getattr(self._optimizer, "grad_scale", None)
        return scale

    def _is_decoupled(self, group: int) -> bool:
        return self._decoupled or bool(self._optimizer.param_groups[group].get("decoupled_weight_decay"))
