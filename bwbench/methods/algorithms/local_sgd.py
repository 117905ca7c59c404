"""Local SGD: every node trains on its own, and every so many steps all go on from their mean."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.base import Context, ExchangeReport
from bwbench.methods.algorithms.exchange import BucketExchange
from bwbench.methods.algorithms.finite import GradientWatch
from bwbench.methods.algorithms.layout import Layout, in_one_part
from bwbench.methods.algorithms.memory import State, part
from bwbench.methods.algorithms.periodic import AbstractPeriodic, PeriodicConfig
from bwbench.methods.algorithms.round_schedule import RoundSchedule
from bwbench.methods.compression.base import Shape
from bwbench.methods.phases import LEAST_STEPS

_GRADIENTS = "gradients."  # prefix in the state dict


class LocalSgdConfig(PeriodicConfig):
    """Options of ``local-sgd``.

    Attributes:
        period: optimizer steps from one average to the next.
        overlap: steps that the nodes go on computing while an average is formed; what they learn meanwhile is kept.
            0 waits at once, ``period`` is the most; ``auto`` applies it as soon as it is there.
        warmup: steps at the begin in which gradients are averaged instead, in every step (post-local SGD).
    """

    warmup: int = Field(0, ge=0)


class LocalSgd(AbstractPeriodic):
    """The mean of all replicas every ``period`` steps (Stich 2019; McMahan et al. 2017 call it federated averaging).

    With ``warmup`` it is post-local SGD (Lin et al. 2020): first gradients are averaged in every step, as in
    ``every-step``, later replicas. With ``overlap`` the mean x̄ of step t comes into effect τ steps late,
    x := x̄_t + (x − x_t): nothing that a node has learnt meanwhile is lost (DaSGD, Zhou et al. 2020).
    """

    Config = LocalSgdConfig
    options: LocalSgdConfig
    replicas_equal = "after a round"

    def layout(self, parameter_shapes: Sequence[Shape]) -> Layout:
        """Everything at once."""
        return in_one_part(parameter_shapes)

    def rounds(self, num_parts: int) -> RoundSchedule:
        """Counted from the end of the warm-up."""
        return replace(super().rounds(num_parts), warm_up=self.options.warmup)

    def for_timing(self) -> ComponentConfig:
        """With a short warm-up, too."""
        return super().for_timing().model_copy(update={"warmup": min(self.options.warmup, LEAST_STEPS)})

    def attach(self, context: Context) -> None:
        """Put gradients and parameters into flat buffers; with a warm-up, hook into the gradients as well."""
        super().attach(context)
        self._warm_up = BucketExchange(context, None) if self.options.warmup else None
        if self._warm_up is not None:  # which holds the gradients from now on
            self._gradients = self._warm_up.buffers
            self._watch = GradientWatch(context.model, self._gradients, context.control)

    @property
    def _gradients_leave(self) -> BucketExchange | None:
        """What averages the gradients of the present step; None behind the warm-up."""
        return self._warm_up if self._step < self.options.warmup else None

    def clear_gradients(self) -> None:
        """Begin a step."""
        if (exchange := self._gradients_leave) is not None:
            exchange.clear_gradients()
        else:
            super().clear_gradients()

    def micro_step(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are sent in the last micro-step of the warm-up's steps only."""
        exchange = self._gradients_leave
        return nullcontext() if exchange is None else exchange.micro_step(last)

    def check_gradients(self) -> None:
        """One pass over them; what is sent while warming up is looked at before it leaves."""
        if self._gradients_leave is None:
            super().check_gradients()

    def finish(self) -> ExchangeReport:
        """Wait for the mean of the gradients while warming up; nobody to agree with later."""
        exchange = self._gradients_leave
        return super().finish() if exchange is None else exchange.finish(self.plain_backward_s)

    def after_update(self) -> ExchangeReport | None:
        """Begin and end rounds. At the end of the warm-up all replicas are equal: what they agree on."""
        report = super().after_update()
        if self._step == self.options.warmup:
            for bucket in self.buckets:
                bucket.settle()
        return report

    def reset(self) -> None:
        """Forget the residuals of the gradients as well."""
        super().reset()
        if self._warm_up is not None:
            self._warm_up.reset()

    def state_dict(self) -> State:
        """Of rounds and warm-up."""
        state = super().state_dict()
        if self._warm_up is not None:
            state |= {f"{_GRADIENTS}{key}": value for key, value in self._warm_up.state_dict().items()}
        return state

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        if self._warm_up is not None:
            self._warm_up.load_state_dict(part(state, _GRADIENTS))

    def close(self) -> None:
        """End the communication threads."""
        super().close()
        if self._warm_up is not None:
            self._warm_up.close()
