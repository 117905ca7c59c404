"""Averaging gradients, and from some step on momenta, while the backward pass is still running."""

from __future__ import annotations

from bwbench.algorithms.adam_state import AdamState
from bwbench.algorithms.base import Context
from bwbench.algorithms.exchange import BucketExchange
from bwbench.compression.none import NoCompression


class MomentumExchange(BucketExchange):
    """Sends gradients in fp32 until it is told that the variance is frozen, then Adam's momentum through the codecs.

    The momentum of a bucket is brought up to date as soon as its gradients are there, and leaves at once.

    Attributes:
        adam: the momentum.
        frozen: send momenta. Set it between two steps.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, None)
        self.adam = AdamState(context.optimizer, self.buffers)
        self.frozen = False
        self._plain = NoCompression()

    def clear_gradients(self) -> None:
        """Begin a step; takes over the optimizer's momentum where that is to be sent."""
        super().clear_gradients()
        if self.frozen:
            self.adam.adopt()

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
        if not self.frozen:
            collective.average(self.buffers.flat[bucket], self._plain, tag=bucket)
            return
        with collective.meter.codec():  # no waiting, and no longer the optimizer's
            self.adam.update_momentum(bucket)
        collective.average(self.adam.momentum[bucket], self._codecs[bucket], self._momentum_tag(bucket))

    def _momentum_tag(self, bucket: int) -> int:
        """Not that of the gradients: collectives may keep a memory of each tag that belongs to one codec."""
        return len(self.buffers.flat) + bucket
