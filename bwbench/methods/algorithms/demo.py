"""DeMo: momenta that are never averaged, of which each node sends what is strongest, and steps of one size by its sign.

The momentum is the residual of the codec: what a node has not sent yet, decaying. So this file holds what is left, the
signed step; which part of a momentum is strongest is the codec's affair (``dct-top-k``).
"""

from __future__ import annotations

from bwbench.base.component import ComponentConfig
from bwbench.methods.algorithms.algorithm import AbstractAlgorithm, AbstractRunning, Context
from bwbench.methods.algorithms.buckets import BucketExchange


class Demo(AbstractAlgorithm):
    """Decoupled momentum, after Peng, Quesnelle and Kingma 2024. With the codec ``dct-top-k`` C, and B its residual's
    ``decay``, on each rank i::

        d_i = B d_i + lr g_i          q_i = C(d_i)          d_i = d_i - q_i
        x   = (1 - lr wd) x - lr sign(mean of q_i)

    ``{dct-top-k: {error_feedback: {in: update, decay: 0.999}}}`` is the first line in units of the gradient, which no
    sign depends on. Weight decay is decoupled, because torch's SGD adds it to what it steps along, and that is the sign
    by then.

    The published code divides each frequency by the number of nodes that have sent it, the paper adds up; so do we.
    """

    virtual = True
    copies = 2.0  # parameters and gradients
    steps_alike = True
    tells_rate = True
    optimizers = ("sgd",)
    rates = (0.000125, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008)  # a step has this size in every parameter
    preferred_collective = "all-gather"

    @classmethod
    def accepts_optimizer(cls, name: str, options: ComponentConfig) -> str | None:
        """Only SGD without a momentum."""
        if (refusal := super().accepts_optimizer(name, options)) is not None:
            return refusal
        if not getattr(options, "momentum", 0.0):
            return None
        return (
            "what its codec keeps back is the momentum, and one in the optimizer would add up signs; write "
            "'optimizer: {sgd: {momentum: 0}}' and give the momentum to the codec, as in "
            "{dct-top-k: {error_feedback: {in: update, decay: 0.999}}}"
        )

    def attach(self, context: Context) -> AbstractRunning:
        """Hook into the gradients."""
        return RunningDemo(context)


class RunningDemo(BucketExchange):
    """One rank of ``demo``: gradients are averaged as in ``every-step``, and only their signs are stepped along."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, None)

    def update(self) -> None:
        """One step of the size of the learning rate in every parameter; none where the mean is zero."""
        for parameter in self.buffers.parameters:
            if parameter.grad is not None:
                parameter.grad.sign_()
        super().update()
