"""Decentralized SGD: weights are averaged instead of gradients, and travel while the gradients are computed.

With low precision what travels are differences: every rank keeps replicas of its neighbours and learns how they change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

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
from bwbench.methods.algorithms.buckets import ParameterBuffers, RunningLocally
from bwbench.methods.algorithms.communicator import Communicator, threads_for
from bwbench.methods.buffers import give_back, moved_to_host, on_host
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.gossip import Neighbours
from bwbench.methods.compression.codec import AbstractCodec, MakeCodec, Shape
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.deferred import torch
from bwbench.methods.devices import device_of
from bwbench.methods.memory import State
from bwbench.methods.phases import TIMED_PERIOD, Phase
from bwbench.methods.traffic import Traffic

LEAST_BITS = 16  # a step of training changes a weight by some 1e-3 of it; fp16 resolves 5e-4, int8 4e-3 at best
_SAMPLE_ELEMENTS = 4096  # enough for the headers of a payload not to count


class DecentralizedConfig(BucketsConfig):
    """Options of ``decentralized``, beside the size of its buckets.

    Attributes:
        interval: weights are averaged in every ``interval``-th optimizer step, the first time in step ``interval`` of
            those counted from 1 (Bagua: in the very first one); the others send nothing.
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
    copies = 3.0  # parameters, gradients, and the parameters that leave
    options: DecentralizedConfig
    virtual = True
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
        return RunningDecentralized(context, self.options)


class RunningOnWeights(RunningLocally):
    """One rank that sends its weights, or what belongs to them, in threads and with a codec a bucket.

    Args:
        refusal: why weights cannot be sent with a codec; None where they can. Raises ConfigError with what it says.
        what: is sent, for that message.
    """

    def __init__(
        self,
        context: Context,
        bucket_bytes: float | None,
        refusal: Callable[[AbstractCodec], str | None],
        what: str = "weights",
    ) -> None:
        super().__init__(context, bucket_bytes)
        self._weights = ParameterBuffers(self._parameters, self._gradients.buckets)
        self._codecs = weight_codecs(context, self._weights, refusal, what)
        self.bucket_bytes = [flat.nbytes for flat in self._weights.flat]
        self._rounds = context.rounds(len(self._codecs))
        self._collective = context.collective
        num_threads = threads_for(self._collective, len(self._codecs))
        self._communicator = Communicator(self._collective.meter, num_threads, device_of(self._weights.flat[0]))

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

    _steps_key = "num_steps"

    def __init__(self, context: Context, options: DecentralizedConfig) -> None:
        super().__init__(context, options.bucket_bytes, weight_codec_refusal)
        self._interval = options.interval
        self._copies = [flat.clone() for flat in self._weights.flat]
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
            return ExchangeReport(ready_mono_s=emulated_time.monotonic())
        self._under_way = False
        report = self._communicator.wait()
        with emulated_time.work_on_vectors():
            for flat, mean in zip(self._weights.flat, self._copies, strict=True):
                flat.copy_(mean)
        return report

    def agreement_step(self, step: int) -> int | None:
        """A later step in which weights are exchanged: those of ``step`` itself may have left before the request.

        Where the mean is not over all ranks a request needs more exchanges.
        """
        done = step // self._interval
        return (done + self._collective.rounds_to_reach_all(done, self._context.members.size)) * self._interval

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
        """Count steps and bytes from the begin, too."""
        super().reset()
        self._unreported_bytes = 0

    def _begin(self) -> None:
        self._under_way = True
        for bucket, (copy, flat) in enumerate(zip(self._copies, self._weights.flat, strict=True)):
            with emulated_time.work_on_vectors():
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


LEAST_DIFFERENCE_BITS = (
    4  # terngrad, of 2 bits, adds more noise to a difference than mixing takes away: neighbours never meet
)


class LowPrecisionDecentralized(AbstractAlgorithm):
    """D-PSGD on a ring with compressed differences (DCD-PSGD, Tang et al. 2018), as in Bagua.

    x-hat is what the neighbours know of this rank, x-hat_L and x-hat_R what it knows of them; all three start from the
    common initial weights. After the optimizer's update to x::

        z = x + w (x-hat_L + x-hat_R) - (1 + 2w) x-hat      w = 1/3
        x-hat_L += Q(z_L),  x-hat_R += Q(z_R),  x = x-hat = x-hat + Q(z)

    so that with an exact Q the rank has x plus w times the neighbours' distance from it. Two ranks have one neighbour
    each, not two: z = x + w x-hat_L - (1 + w) x-hat with w = 1/2.

    Sender and receiver add the same decoded values to equal memory: a replica is bit-equal to what it stands for.

    Codecs go without error feedback here. The weights become what was sent, so what Q leaves out is lost, and is small
    only because the difference is. A residual would not mend that for a sparse codec: z holds the distance from the
    neighbours anew in every step until it is gone, and a residual would add up what is the same distance each time.
    """

    Config = BucketsConfig
    options: BucketsConfig
    averages_partially = True
    preferred_collective = "neighbours"
    replicas_equal = "never"
    steps_alike = True
    copies = 5.0  # parameters, gradients, and what three nodes are known to have
    virtual = True

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """Only ``neighbours``: replicas are kept of two fixed ranks."""
        if not callable(getattr(collective, "exchange", None)):
            return "it keeps a replica of each ring neighbour, so it needs collective: neighbours"
        return None

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Codecs that send every entry, unbiased or nearly so."""
        return _difference_refusal(codec())

    def attach(self, context: Context) -> AbstractRunning:
        """Put weights and gradients into flat buffers. Raises ConfigError where the codec is none for differences."""
        return RunningLowPrecisionDecentralized(context, self.options)


class RunningLowPrecisionDecentralized(RunningOnWeights):
    """One rank of ``low-precision-decentralized``. Replicas of itself and of its neighbours lie in host memory."""

    def __init__(self, context: Context, options: BucketsConfig) -> None:
        super().__init__(context, options.bucket_bytes, _difference_refusal, "differences of weights")
        self._own, self._left, self._right = (self._weights_copied() for _ in range(3))

    def after_update(self) -> ExchangeReport | None:
        """Send the differences, move on to what was sent, and follow the neighbours."""
        if self._context.members.size == 1:
            return None
        for bucket in range(len(self._own)):
            self._communicator.submit(partial(self._exchange, bucket))
        return self._communicator.wait()

    def agreement_step(self, step: int) -> int | None:
        """A request moves on by one rank on both sides in every step, from ``step`` on."""
        return step + max(1, self._context.members.size // 2) - 1

    def reset(self) -> None:
        """All replicas hold the weights that this rank has: the common initial ones."""
        super().reset()
        for replica in (self._own, self._left, self._right):  # in place: three more of the model would be many
            for copied, flat in zip(replica, self._weights.flat, strict=True):
                copied.copy_(flat)

    def state_dict(self) -> State:
        """The replicas of both neighbours; that of this rank is its weights."""
        left = {f"left.{number}": flat.clone() for number, flat in enumerate(self._left)}
        right = {f"right.{number}": flat.clone() for number, flat in enumerate(self._right)}
        return left | right | super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._own = self._weights_copied()
        self._left = [moved_to_host(state[f"left.{number}"]).clone() for number in range(len(self._own))]
        self._right = [moved_to_host(state[f"right.{number}"]).clone() for number in range(len(self._own))]

    def _weights_copied(self) -> list[torch.Tensor]:
        return [on_host(flat).clone() for flat in self._weights.flat]

    def _exchange(self, bucket: int) -> None:
        collective = cast(Neighbours, self._collective)
        codec, own = self._codecs[bucket], self._own[bucket]
        replicas = [(self._left[bucket], 0), (self._right[bucket], 1)][: min(2, self._context.members.size - 1)]
        share = 1 / (1 + len(replicas))  # of each neighbour in the mean of a neighbourhood
        with self._collective.meter.codec():
            weights = on_host(self._weights.flat[bucket])
            difference = weights - (1 + share * len(replicas)) * own
            for replica, _ in replicas:
                difference.add_(replica, alpha=share)
            payload = codec.encode(difference)
        received = collective.exchange(payload, codec.max_payload_bytes(own.numel()), self._rounds[bucket])
        with self._collective.meter.codec():
            codec.decode_add(payload, own)
            for replica, side in replicas:
                codec.decode_add(received[side], replica)
            give_back(weights.copy_(own), self._weights.flat[bucket])


def _difference_refusal(codec: AbstractCodec) -> str | None:
    if codec.linear:
        return "its messages are sums over all ranks, and here every neighbour needs this rank's own"
    if codec.biased or codec.carries or isinstance(codec, ErrorFeedback):
        return "the weights become what was sent, so that whatever a codec leaves out would be lost; int8 sends all"
    if 8 * codec.payload_bytes(_SAMPLE_ELEMENTS) < LEAST_DIFFERENCE_BITS * _SAMPLE_ELEMENTS:
        return f"with fewer than {LEAST_DIFFERENCE_BITS} bits an entry its noise keeps neighbours apart; int8 does not"
    return None
