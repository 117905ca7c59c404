"""Averaging gradients, and from some step on momenta, while the backward pass is still running."""

from __future__ import annotations

from bwbench.methods.algorithms.adam_state import AdamState
from bwbench.methods.algorithms.base import Context
from bwbench.methods.algorithms.exchange import BucketExchange
from bwbench.methods.compression.none import NoCompression


class MomentumExchange(BucketExchange):
    """Sends gradients in fp32 until it is told that the variance is frozen, then Adam's momentum through the codecs.

    The momentum of a bucket is brought up to date as soon as its gradients are there, and leaves at once.

    Args:
        scaled: what is sent is momentum / deviation, and comes back as momentum; the deviation is equal on all ranks.

    Attributes:
        adam: the momentum.
        frozen_steps: steps that were taken since the variance was frozen; None before. Set it between two steps.
    """

    def __init__(self, context: Context, scaled: bool) -> None:
        super().__init__(context, None)
        self.adam = AdamState(context.optimizer, self.buffers)
        self.frozen_steps: int | None = None
        self._scaled = scaled
        self._plain = NoCompression()

    def clear_gradients(self) -> None:
        """Begin a step; takes over the optimizer's momentum where that is to be sent."""
        super().clear_gradients()
        if self.frozen_steps is not None:
            self.adam.adopt(self.frozen_steps)

    def rehearse(self) -> None:
        """Average zeros in place of every momentum, with codecs that are thrown away."""
        import torch

        shapes = [tuple(parameter.shape) for parameter in self.buffers.parameters]
        for bucket, flat in enumerate(self.buffers.flat):
            inside = [shapes[index] for index, number in self.buffers.bucket_of.items() if number == bucket]
            codec = self._context.codec_of(inside, bucket)
            self._context.collective.average(torch.zeros_like(flat), codec, self._momentum_tag(bucket))

    def _average(self, bucket: int) -> None:
        collective = self._context.collective
        self._watch.check(bucket)
        if self.frozen_steps is None:
            collective.average(self.buffers.flat[bucket], self._plain, tag=bucket)
            return
        momentum, deviation = self.adam.momentum[bucket], self.adam.deviation[bucket]
        with collective.meter.codec():  # no waiting, and no longer the optimizer's
            self.adam.update_momentum(bucket)
            if self._scaled:
                momentum.div_(deviation)
        collective.average(momentum, self._codecs[bucket], self._momentum_tag(bucket))
        with collective.meter.codec():
            if self._scaled:
                momentum.mul_(deviation)
            momentum.masked_fill_(deviation.isinf(), 0.0)  # codecs such as sign send something where nothing is

    def _momentum_tag(self, bucket: int) -> int:
        """Not that of the gradients: collectives may keep a memory of each tag that belongs to one codec."""
        return len(self.buffers.flat) + bucket
