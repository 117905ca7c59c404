"""Decentralized SGD: weights are averaged instead of gradients, and travel while the gradients are computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pydantic import Field

from bwbench.base.component import ComponentConfig
from bwbench.base.errors import ConfigError
from bwbench.methods.algorithms import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.buckets import Communicator, ParameterBuffers, RunningLocally, threads_for
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, Shape
from bwbench.methods.deferred import torch
from bwbench.methods.memory import State, remember, remembered
from bwbench.methods.phases import TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

LEAST_BITS = 16  # a step of training changes a weight by some 1e-3 of it; fp16 resolves 5e-4, int8 4e-3 at best
_SAMPLE_ELEMENTS = 4096  # enough for the headers of a payload not to count


class DecentralizedConfig(ComponentConfig):
    """Options of ``decentralized``.

    Attributes:
        interval: weights are averaged in every ``interval``-th optimizer step; the others send nothing.
    """

    interval: int = Field(1, ge=1)


class Decentralized(AbstractAlgorithm):
    """x_i <- mean_j(x_j) - lr * g(x_i): the mean over all ranks, over a pair, or over ring neighbours.

    After Lian et al. 2017 (D-PSGD); ``shift-one`` as in Bagua (Gan et al. 2021). The collective decides whom the mean
    is over. A copy of the weights leaves when the step begins; forward and backward pass work on this rank's own
    weights meanwhile, and the mean replaces them right before the optimizer's update. Replicas therefore differ by one
    step's updates even where the mean is over all ranks.
    """

    Config = DecentralizedConfig
    options: DecentralizedConfig
    averages_partially = True
    replicas_equal = "never"

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Only codecs that keep weights nearly as they are."""
        return weight_codec_refusal(codec())

    def traffic(
        self, parameter_shapes: Sequence[Shape], num_nodes: int, collective: AbstractCollective, make_codec: MakeCodec
    ) -> Traffic:
        """One exchange of all weights in every ``interval``-th step.

        With an interval of 1 all of it is in the background. With a larger one it is not: the exchange has the
        computing of one step to hide behind, not that of the whole interval.
        """
        interval = self.options.interval
        traffic = super().traffic(parameter_shapes, num_nodes, collective, make_codec)
        return replace(traffic.scaled(1 / interval), in_background=interval == 1)

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """Steps that exchange weights, and those between."""
        return (Phase("training", period=self.options.interval),)

    def for_timing(self) -> ComponentConfig:
        """Exchanges come more often."""
        return self.options.model_copy(update={"interval": min(self.options.interval, TIMED_PERIOD)})

    def attach(self, context: Context) -> AbstractRunning:
        """Put weights and gradients into flat buffers. Raises ConfigError where the codec is none for weights."""
        return RunningDecentralized(context, self.options.interval)


class RunningOnWeights(RunningLocally):
    """One rank that sends its weights, or what belongs to them, in threads and with a codec a bucket.

    Args:
        refusal: why weights cannot be sent with a codec; None where they can. Raises ConfigError with what it says.
        what: is sent, for that message.
    """

    def __init__(self, context: Context, refusal: Callable[[AbstractCodec], str | None], what: str = "weights") -> None:
        super().__init__(context)
        self._weights = ParameterBuffers(self._parameters, self._buckets)
        self._codecs = weight_codecs(context, self._weights, refusal, what)
        self.bucket_bytes = self._weights.bucket_bytes
        self._rounds = context.rounds(len(self._codecs))
        self._collective = context.collective
        self._communicator = Communicator(self._collective.meter, threads_for(self._collective, len(self._codecs)))

    def reset(self) -> None:
        """Forget what codecs and collective remember."""
        self._context.forget(self._codecs)

    def state_dict(self) -> State:
        """What codecs and collective remember."""
        return remembered(self._codecs, self._collective)

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        remember(state, self._codecs, self._collective)

    def close(self) -> None:
        """End the communication threads."""
        self._communicator.close()


def weight_codecs(
    context: Context, weights: ParameterBuffers, refusal: Callable[[AbstractCodec], str | None], what: str = "weights"
) -> list[AbstractCodec]:
    """A codec for each bucket of weights. Raises ConfigError where it is none for them."""
    codecs = [context.codec_of(shapes, number) for number, shapes in enumerate(weights.shapes)]
    for codec in codecs:
        if (reason := refusal(codec)) is not None:
            raise ConfigError(f"{what} cannot be sent with this compression: {reason}")
    return codecs


class RunningDecentralized(RunningOnWeights):
    """One rank of ``decentralized``."""

    def __init__(self, context: Context, interval: int) -> None:
        super().__init__(context, weight_codec_refusal)
        self._interval = interval
        self._copies = [flat.clone() for flat in self._weights.flat]
        self._num_steps = 0
        self._under_way = False
        self._unreported_bytes = 0

    def begin_step(self) -> None:
        """Begin a step: zeros, and the weights leave where their turn has come."""
        super().begin_step()
        self._abandon()
        self._num_steps += 1
        if self._num_steps % self._interval == 0:
            self._begin()

    def finish(self) -> ExchangeReport:
        """Wait for the mean of the weights and step from there."""
        if not self._under_way:
            return ExchangeReport(ready_mono_s=time.monotonic())
        self._under_way = False
        report = self._communicator.wait()
        for flat, mean in zip(self._weights.flat, self._copies, strict=True):
            flat.copy_(mean)
        return report

    def agreement_step(self, step: int) -> int | None:
        """A later step in which weights are exchanged: those of ``step`` itself may have left before the request.

        Where the mean is not over all ranks a request needs more exchanges. N are enough among N ranks on a ring, where
        it moves on by one rank, and for ``shift-one``, where half the ranks meet the other half within N/2.
        """
        exchanges = 1 if self._collective.exact else self._context.members.size
        return (step // self._interval + exchanges) * self._interval

    def rehearse(self, plain_backward_s: float) -> None:
        """Exchange copies of the weights; the weights stay as they are."""
        self._abandon()
        self._begin()
        self._abandon()

    def drain(self) -> int:
        """Nothing is on its way between two steps; an exchange of a step that was not finished is thrown away."""
        self._abandon()
        unreported, self._unreported_bytes = self._unreported_bytes, 0
        return unreported

    def reset(self) -> None:
        """Count the steps from the begin, too."""
        super().reset()
        self._num_steps = self._unreported_bytes = 0

    def state_dict(self) -> State:
        """The number of steps as well."""
        return {"num_steps": torch.tensor(self._num_steps), **super().state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._num_steps = int(state["num_steps"])

    def _begin(self) -> None:
        self._under_way = True
        for bucket, (copy, flat) in enumerate(zip(self._copies, self._weights.flat, strict=True)):
            copy.copy_(flat)
            self._communicator.submit(partial(self._average, bucket))

    def _average(self, bucket: int) -> None:
        self._collective.average(self._copies[bucket], self._codecs[bucket], self._rounds[bucket])

    def _abandon(self) -> None:
        """Wait for an exchange that nobody has finished, e.g. of a measurement, without using its result."""
        if self._under_way:
            self._under_way = False
            self._unreported_bytes += self._communicator.wait().payload_bytes


def weight_codec_refusal(codec: AbstractCodec) -> str | None:
    """Why weights cannot be sent with ``codec``; None where they can. Imports no torch.

    A gradient that is rounded costs one noisy step. Weights that are rounded forget every change smaller than the
    grid they are rounded to, and what a sparse or low-rank codec leaves out is no longer part of the model.
    """
    advice = "send their differences: algorithm: low-precision-decentralized"
    if codec.linear or codec.biased or codec.carries:
        return f"what it leaves out of a weight would be missing from the model; {advice}"
    bits = 8 * codec.payload_bytes(_SAMPLE_ELEMENTS) / _SAMPLE_ELEMENTS
    if bits < LEAST_BITS:
        return f"it keeps {bits:.2g} bits of a weight, a coarser grid than the steps of training; {advice}"
    return None
