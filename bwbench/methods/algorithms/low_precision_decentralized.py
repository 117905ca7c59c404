"""Gossip that sends differences: every rank keeps replicas of its neighbours and learns only how they change."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, cast

from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, AbstractRunning, Context, ExchangeReport
from bwbench.methods.algorithms.decentralized import RunningOnWeights
from bwbench.methods.buffers import give_back, on_host
from bwbench.methods.collectives.collective import AbstractCollective
from bwbench.methods.collectives.transport import Round
from bwbench.methods.compression.codec import AbstractCodec, Shape
from bwbench.methods.compression.error_feedback import ErrorFeedback
from bwbench.methods.deferred import torch
from bwbench.methods.memory import State, below
from bwbench.methods.phases import Phase

LEAST_BITS = 4  # terngrad, of 2 bits, adds more noise to a difference than mixing takes away: neighbours never meet
SAMPLE_ELEMENTS = 4096


class NeighbourExchange(Protocol):
    """The part of the collective ``neighbours`` that is used here."""

    def exchange(self, payload: torch.Tensor, max_bytes: int, round_: Round) -> tuple[torch.Tensor, torch.Tensor]:
        """Send ``payload`` to both neighbours; returns what the left and the right one have sent."""


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

    averages_partially = True
    preferred_collective = "neighbours"
    replicas_equal = "never"

    @classmethod
    def accepts(cls, collective: type[AbstractCollective]) -> str | None:
        """Only ``neighbours``: replicas are kept of two fixed ranks."""
        if not callable(getattr(collective, "exchange", None)):
            return "it keeps a replica of each ring neighbour, so it needs collective: neighbours"
        return None

    @classmethod
    def accepts_codec(cls, codec: type[AbstractCodec]) -> str | None:
        """Codecs that send every entry, unbiased or nearly so."""
        return _refusal(codec())

    def phases(self, parameter_shapes: Sequence[Shape]) -> tuple[Phase, ...]:
        """All steps are alike."""
        return (Phase("training"),)

    def attach(self, context: Context) -> AbstractRunning:
        """Put weights and gradients into flat buffers. Raises ConfigError where the codec is none for differences."""
        return RunningLowPrecisionDecentralized(context)


class RunningLowPrecisionDecentralized(RunningOnWeights):
    """One rank of ``low-precision-decentralized``. Replicas of itself and of its neighbours lie in host memory."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, _refusal, "differences of weights")
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
        self._own, self._left, self._right = (self._weights_copied() for _ in range(3))

    def state_dict(self) -> State:
        """The replicas of both neighbours; that of this rank is its weights."""
        left = {str(number): flat.clone() for number, flat in enumerate(self._left)}
        right = {str(number): flat.clone() for number, flat in enumerate(self._right)}
        return below("left.", left) | below("right.", right) | super().state_dict()

    def load_state_dict(self, state: State) -> None:
        """Take back what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._own = self._weights_copied()
        self._left = [state[f"left.{number}"].clone() for number in range(len(self._own))]
        self._right = [state[f"right.{number}"].clone() for number in range(len(self._own))]

    def _weights_copied(self) -> list[torch.Tensor]:
        return [on_host(flat).clone() for flat in self._weights.flat]

    def _exchange(self, bucket: int) -> None:
        collective = cast(NeighbourExchange, self._collective)
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
            weights.copy_(own)
            give_back(weights, self._weights.flat[bucket])


def _refusal(codec: AbstractCodec) -> str | None:
    if codec.linear:
        return "its messages are sums over all ranks, and here every neighbour needs this rank's own"
    if codec.biased or codec.carries or isinstance(codec, ErrorFeedback):
        return "the weights become what was sent, so that whatever a codec leaves out would be lost; int8 sends all"
    if 8 * codec.payload_bytes(SAMPLE_ELEMENTS) < LEAST_BITS * SAMPLE_ELEMENTS:
        return f"with fewer than {LEAST_BITS} bits an entry its noise keeps neighbours apart; int8 does not"
    return None
