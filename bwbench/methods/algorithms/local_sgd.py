"""Local SGD: every node trains on its own, and every so many steps all go on from their mean.

When a round begins and ends, and what is averaged, stands in ``periodic.py``; here is what a warm-up adds.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.algorithm import AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.buckets import BucketExchange
from bwbench.methods.algorithms.periodic import AbstractPeriodic, PeriodicConfig, RoundSchedule, RunningPeriodic
from bwbench.methods.memory import State, below, part
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
    virtual = True

    def rounds(self, num_parts: int) -> RoundSchedule:
        """Counted from the end of the warm-up."""
        return replace(super().rounds(num_parts), warm_up=self.options.warmup)

    def for_timing(self) -> ComponentConfig:
        """With a short warm-up, too."""
        return super().for_timing().model_copy(update={"warmup": min(self.options.warmup, LEAST_STEPS)})

    def attach(self, context: Context) -> AbstractRunning:
        """Put gradients and parameters into flat buffers; with a warm-up, hook into the gradients as well."""
        return RunningPostLocalSgd(context, self) if self.options.warmup else super().attach(context)


class RunningPostLocalSgd(RunningPeriodic):
    """One rank of local SGD with a warm-up: an exchange of gradients holds them, during the warm-up and after it."""

    def __init__(self, context: Context, method: LocalSgd) -> None:
        super().__init__(context, method)
        self._warm_up_steps = method.options.warmup
        self._warm_up = BucketExchange(context, None)
        self._gradients = self._warm_up.buffers

    def begin_step(self) -> None:
        """Zeros everywhere."""
        self._warm_up.begin_step()

    def micro_step(self, *, last: bool) -> AbstractContextManager[None]:
        """Gradients are sent in the last micro-step of the warm-up's steps only."""
        return self._warm_up.micro_step(last=last and self._warming_up)

    def gradients_ready(self, backward_began_mono_s: float | None = None) -> None:
        """One pass over them; what is sent while warming up is looked at before it leaves."""
        ready = self._warm_up.gradients_ready if self._warming_up else super().gradients_ready
        ready(backward_began_mono_s)

    def finish(self) -> ExchangeReport:
        """Wait for the mean of the gradients while warming up; nobody to agree with later."""
        return self._warm_up.finish() if self._warming_up else super().finish()

    def after_update(self) -> ExchangeReport | None:
        """Begin and end rounds. At the end of the warm-up all replicas are equal: what they agree on."""
        report = super().after_update()
        if self._num_steps == self._warm_up_steps:
            for bucket in self.buckets:
                bucket.settle()
        return report

    @property
    def averages_gradients(self) -> bool:
        """While warming up."""
        return self._warming_up

    def sending_state(self) -> State:
        """That of the gradients while warming up."""
        return self._warm_up.sending_state()

    def restore_sending(self, state: State) -> None:
        """Take back what ``sending_state`` gave."""
        self._warm_up.restore_sending(state)

    def reset(self) -> None:
        """Forget the residuals of the gradients as well."""
        super().reset()
        self._warm_up.reset()

    def state_dict(self) -> State:
        """Of rounds and warm-up."""
        return super().state_dict() | below(_GRADIENTS, self._warm_up.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._warm_up.load_state_dict(part(state, _GRADIENTS))

    def close(self) -> None:
        """End the communication threads."""
        super().close()
        self._warm_up.close()

    @property
    def _warming_up(self) -> bool:
        return self._num_steps < self._warm_up_steps
