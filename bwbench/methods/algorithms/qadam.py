"""Adam whose momentum is averaged compressed, once its variance is known well enough to be frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.base import Context
from bwbench.methods.algorithms.buckets import bucket_payloads
from bwbench.methods.algorithms.gradient_exchange import AbstractGradientExchange
from bwbench.methods.algorithms.momentum_exchange import MomentumExchange
from bwbench.methods.collectives.base import AbstractCollective
from bwbench.methods.compression.base import AbstractCodec, Shape
from bwbench.methods.phases import LEAST_STEPS, Phase
from bwbench.methods.traffic import Traffic

if TYPE_CHECKING:
    import torch


class QAdamConfig(ComponentConfig):
    """Options of ``qadam``.

    Attributes:
        warmup_steps: optimizer steps of plain Adam on gradients that are averaged in fp32, before the variance is
            frozen; the papers take 15-20 % of all steps.
        send: ``momentum`` m, as published, or ``scaled-momentum`` m / (sqrt(v^) + eps). The mean is the same; the codec
            then sees entries of like size. A sign with one scale for many entries needs that: where v is small, the
            scale of the others would be a step of many times the learning rate.
    """

    warmup_steps: int = Field(100, ge=1)
    send: Literal["momentum", "scaled-momentum"] = "momentum"


class QAdam(AbstractGradientExchange):
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
    options: QAdamConfig
    _exchange: MomentumExchange
    optimizers = ("adam", "adamw")
    preferred_collective = "scatter-gather"

    def traffic(
        self,
        parameter_shapes: Sequence[Shape],
        num_nodes: int,
        collective: AbstractCollective,
        make_codec: Callable[[], AbstractCodec],
    ) -> Traffic:
        """One exchange of the momentum: a step after the warm-up. In the warm-up gradients are sent as fp32."""
        return collective.traffic(num_nodes, bucket_payloads(parameter_shapes, None, make_codec))

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Gradients in fp32 at first, then momenta."""
        return (Phase("warm-up", self.options.warmup_steps), Phase("training"))

    def for_timing(self) -> ComponentConfig:
        """With a short warm-up."""
        return self.options.model_copy(update={"warmup_steps": min(self.options.warmup_steps, LEAST_STEPS)})

    def attach(self, context: Context) -> None:
        """Hook into the gradients. Raises ConfigError where the optimizer is not Adam or AdamW in their plain form."""
        self._optimizer = context.optimizer
        self._exchange = MomentumExchange(context, scaled=self.options.send == "scaled-momentum")
        self._num_steps = 0

    def clear_gradients(self) -> None:
        """Begin a step."""
        frozen_steps = self._num_steps - self.options.warmup_steps
        self._exchange.frozen_steps = frozen_steps if frozen_steps >= 0 else None
        self._exchange.clear_gradients()

    def update(self) -> None:
        """Adam's step, or the step along the averaged momentum with the frozen variance."""
        if self._exchange.frozen_steps is not None:
            self._exchange.adam.step_frozen()
        else:
            super().update()
        self._num_steps += 1

    def rehearse(self) -> None:
        """Average zeros as the momentum will be."""
        self._exchange.rehearse()

    def reset(self) -> None:
        """Begin with the warm-up anew, with empty residuals."""
        self._num_steps = 0
        self._exchange.reset()

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The number of steps and the residuals; moments are in the optimizer's state."""
        import torch

        return {"num_steps": torch.tensor(self._num_steps), **self._exchange.state_dict()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        self._num_steps = int(state["num_steps"])
        self._exchange.load_state_dict({key: value for key, value in state.items() if key != "num_steps"})
